import { decideLanguage } from '../../src/language/decide.ts';
import type { AssistantProfile, HistoryMessage } from '../../workers/reply/engines/engine.ts';
import { createRetrievalEngine } from '../../workers/reply/engines/retrieval/engine.ts';
import type { SemanticSearch } from '../../workers/reply/vectors/semantic-search.ts';
import { type ChatMessage, isEntry, loadBase, type Question } from './sets.ts';
import type { TextVectors } from './vectors.ts';

/**
 * The result of a question. `offered`: the right question is among the offered ones. `othersOffered`: only other
 * questions are offered. A question that must not be answered can be `wrong`, `othersOffered` or `refused`.
 */
export type Outcome = 'right' | 'offered' | 'wrong' | 'othersOffered' | 'refused';
export type Measured = { question: Question; answerable: boolean; outcome: Outcome; by: string; explanation: string };

type Why = { kind: string; by?: string; hits: { entryId: string; score: number; words?: number; meaning?: number }[] };

/** Asks the engine each question as a turn does. A follow-up is asked after its first question. */
export const measureAnswers = async (
  questions: Question[],
  vectors: TextVectors | null,
  threshold: number | null = null,
): Promise<Measured[]> => {
  const engine = createRetrievalEngine();
  const bases = new Map<string, { assistant: AssistantProfile; semanticSearch: SemanticSearch | undefined }>();
  for (const name of new Set(questions.map(({ base }) => base))) {
    const assistant = loadBase(name, threshold);
    const semanticSearch = vectors
      ? vectors.semanticSearchOf(await vectors.vectorEntries(assistant.knowledge))
      : undefined;
    bases.set(name, { assistant, semanticSearch });
  }
  const measured: Measured[] = [];
  for (const question of questions) {
    const { assistant, semanticSearch } = bases.get(question.base) ?? {};
    if (!assistant) throw new Error(`no knowledge base ${question.base}`);
    const history: HistoryMessage[] = [];
    const ask = async (message: string) => {
      const { language } = decideLanguage({ message, allowed: assistant.languages });
      const { signal } = new AbortController();
      const reply = await engine.reply({
        assistant,
        message,
        language,
        history: async () => [...history],
        signal,
        semanticSearch,
      });
      history.push({ role: 'user', content: message }, { role: 'assistant', content: reply.text, why: reply.why });
      return reply;
    };
    if (question.first !== undefined) await ask(question.first);
    const { message, expected } = question;
    const reply = await ask(message);
    const { kind, by = kind, hits } = reply.why as Why;
    const offered = hits.slice(0, reply.suggestedActions.length).some(({ entryId }) => isEntry(entryId, expected));
    let outcome: Outcome = 'refused';
    if (kind === 'answer') outcome = isEntry(hits[0]?.entryId ?? '', expected) ? 'right' : 'wrong';
    if (kind === 'askBack') outcome = offered ? 'offered' : 'othersOffered';
    const scores = hits.map(
      ({ entryId, score, words, meaning: cosine }) => `${entryId} ${score} (${words ?? '–'} ${cosine ?? '–'})`,
    );
    const explanation = `[${question.base} ${question.kind} ${reply.language}] ${message} → ${expected.join('|') || 'none'}; ${kind} by ${by}: ${scores.join(', ')}`;
    measured.push({ question, answerable: expected.length > 0, outcome, by, explanation });
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
