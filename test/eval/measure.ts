import { baseLanguage } from '../../src/turns/language/base.ts';
import { decideLanguage } from '../../src/turns/language.ts';
import type { AssistantProfile } from '../../workers/reply/engines/engine.ts';
import { createRetrievalEngine } from '../../workers/reply/engines/retrieval/engine.ts';
import { readTerms } from '../../workers/reply/engines/retrieval/terms.ts';
import { BASES, type ChatMessage, type Half, isEntry, loadBase, loadQuestions, type Question } from './sets.ts';

export type Outcome = 'answeredRight' | 'askedBack' | 'askedInVain' | 'answeredWrong' | 'refusedRight' | 'refusedWrong';
export type Measured = { question: Question; outcome: Outcome; isFar: boolean; explanation: string };

/** Share of a message's stems that its nearest stored question holds. */
const sharedStems = (message: string, language: string, { knowledge }: AssistantProfile): number => {
  const asked = readTerms(message, language).map((term) => term.stem);
  if (asked.length === 0) return 1;
  const shares = knowledge.flatMap((entry) =>
    [entry.question, ...entry.variants].map((wording) => {
      const stored = new Set(readTerms(wording, baseLanguage(entry.language ?? 'en')).map((term) => term.stem));
      return asked.filter((stem) => stored.has(stem)).length / asked.length;
    }),
  );
  return Math.max(...shares);
};

/** A paraphrase: it shares at most half its stems with any stored question. */
export const isFar = (question: Question, assistant: AssistantProfile): boolean =>
  question.expected !== null && sharedStems(question.message, question.language, assistant) <= 0.5;

/** Puts the questions of one half to the engine, each as a first message whose language is decided as in a turn. */
export const measureAnswers = async (half: Half, threshold: number | null): Promise<Measured[]> => {
  const engine = createRetrievalEngine();
  const bases = new Map(BASES.map((name) => [name, loadBase(name, threshold)]));
  const measured: Measured[] = [];
  for (const question of loadQuestions().filter((each) => each.half === half)) {
    const assistant = bases.get(question.base);
    if (!assistant) throw new Error(`no knowledge base ${question.base}`);
    const { message, expected } = question;
    const { language } = decideLanguage({ message, allowed: assistant.languages });
    const reply = await engine.reply({
      assistant,
      message,
      language,
      history: async () => [],
      signal: new AbortController().signal,
    });
    const { kind, hits } = reply.why as { kind: string; hits: { entryId: string; score: number }[] };
    const offered = hits.slice(0, reply.suggestedActions.length).some(({ entryId }) => isEntry(entryId, expected));
    let outcome: Outcome = expected === null ? 'refusedRight' : 'refusedWrong';
    if (kind === 'answer') outcome = isEntry(hits[0]?.entryId ?? '', expected) ? 'answeredRight' : 'answeredWrong';
    if (kind === 'askBack') outcome = offered ? 'askedBack' : 'askedInVain';
    const scores = hits.map(({ entryId, score }) => `${entryId} ${score}`).join(', ');
    const explanation = `[${question.base} ${language}] ${message} → ${expected ?? 'none'}; ${kind}: ${scores}`;
    measured.push({ question, outcome, isFar: isFar(question, assistant), explanation });
  }
  return measured;
};

export type MeasuredLanguage = { chat: ChatMessage; right: boolean; explanation: string };

export const measureLanguage = (messages: ChatMessage[]): MeasuredLanguage[] =>
  messages.map((chat) => {
    const { language, by, decided } = decideLanguage({ message: chat.message, allowed: chat.allowed });
    const explanation = `${chat.expected} taken for ${language} (${by}${decided ? '' : ', undecided'}): ${chat.message}`;
    return { chat, right: language === chat.expected, explanation };
  });
