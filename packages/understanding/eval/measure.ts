import { decideLanguage } from '../src/language.ts';
import type { SemanticSearch } from '../src/similarity.ts';
import {
  type Answering,
  decideReply,
  type EarlierMessage,
  indexEntries,
  type KnowledgeIndex,
} from '../src/understanding.ts';
import { type Base, type ChatMessage, isEntry, loadBase, type Question } from './sets.ts';
import type { TextVectors } from './vectors.ts';

/**
 * The result of a question. `right` and `wrong` are sure answers. `hedged` and `hedgedWrong` are answers after a sentence
 * that says "may be". `offered`: the right question is among the offered ones. `othersOffered`: only other questions are
 * offered. A question that must not be answered can be anything but `right`, `hedged` and `offered`.
 */
export type Outcome = 'right' | 'hedged' | 'offered' | 'wrong' | 'hedgedWrong' | 'othersOffered' | 'refused';
export type Measured = { question: Question; answerable: boolean; outcome: Outcome; by: string; explanation: string };

/** Asks each question as a turn does. A follow-up is asked after its first question. */
export const measureAnswers = async (
  questions: Question[],
  vectors: TextVectors | null,
  { answering = 'balanced', threshold = null }: { answering?: Answering; threshold?: number | null } = {},
): Promise<Measured[]> => {
  const bases = new Map<string, { base: Base; index: KnowledgeIndex; semanticSearch: SemanticSearch | undefined }>();
  for (const name of new Set(questions.map(({ base }) => base))) {
    const base = loadBase(name);
    const semanticSearch = vectors ? vectors.semanticSearchOf(await vectors.vectorEntries(base.knowledge)) : undefined;
    bases.set(name, { base, index: indexEntries(base), semanticSearch });
  }
  const measured: Measured[] = [];
  for (const question of questions) {
    const asked = bases.get(question.base);
    if (!asked) throw new Error(`no knowledge base ${question.base}`);
    const { base, index, semanticSearch } = asked;
    const history: EarlierMessage[] = [];
    const ask = async (message: string) => {
      const { language } = decideLanguage({ message, allowed: base.languages });
      const earlier = async () => [...history];
      const asks = { message, language, index, answering, threshold, history: earlier, semanticSearch };
      const decision = await decideReply(asks);
      history.push({ role: 'user', content: message }, { role: 'assistant', content: '', why: decision.why });
      return decision;
    };
    if (question.first !== undefined) await ask(question.first);
    const { message, expected } = question;
    const decision = await ask(message);
    const { kind, by = kind, hits, language } = decision.why;
    let outcome: Outcome = 'refused';
    if (decision.kind === 'answer') outcome = isEntry(decision.entry.entryId, expected) ? 'right' : 'wrong';
    if (decision.kind === 'hedge') outcome = isEntry(decision.entry.entryId, expected) ? 'hedged' : 'hedgedWrong';
    if (decision.kind === 'askBack') {
      outcome = decision.entries.some(({ entryId }) => isEntry(entryId, expected)) ? 'offered' : 'othersOffered';
    }
    const scores = hits.map(
      ({ entryId, score, words, meaning: cosine }) => `${entryId} ${score} (${words ?? '–'} ${cosine ?? '–'})`,
    );
    const explanation = `[${question.base} ${question.kind} ${language}] ${message} → ${expected.join('|') || 'none'}; ${kind} by ${by}: ${scores.join(', ')}`;
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

type Limit = Record<'right' | 'wrong' | 'hedgedWrong' | 'unanswerable' | 'offers', number>;

/**
 * Limits for all sets together. `right`: answered right, surely or hedged. `wrong`: surely wrong. Both are shares of the
 * answerable questions. `hedgedWrong` is a share of all questions. `unanswerable`: surely answered, although there is no
 * answer. `offers`: an unanswerable question got a hedged answer or was offered questions.
 */
export const LIMITS: { meaning: Limit; words: Limit; language: number } = {
  meaning: { right: 0.65, wrong: 0.03, hedgedWrong: 0.08, unanswerable: 0.04, offers: 0.4 },
  words: { right: 0.4, wrong: 0.03, hedgedWrong: 0.04, unanswerable: 0.05, offers: 0.3 },
  language: 0.95,
};

export const countOf = (measured: Measured[], ...outcomes: Outcome[]): number =>
  outcomes.length === 0 ? measured.length : measured.filter(({ outcome }) => outcomes.includes(outcome)).length;

export const shareOf = (measured: Measured[], ...outcomes: Outcome[]): number =>
  countOf(measured, ...outcomes) / measured.length;

/** Compares the measured shares with the limits. */
export const limitsOf = (measured: Measured[], limit: Limit) => {
  const answerable = measured.filter((one) => one.answerable);
  const unanswerable = measured.filter((one) => !one.answerable);
  const atLeast = (name: string, share: number, least: number) => ({
    name,
    share,
    least: `at least ${least * 100} %`,
    holds: share >= least,
  });
  const atMost = (name: string, share: number, most: number) => ({
    name,
    share,
    least: `at most ${most * 100} %`,
    holds: share <= most,
  });
  return [
    atLeast('right, surely or hedged', shareOf(answerable, 'right', 'hedged'), limit.right),
    atMost('surely wrong', shareOf(answerable, 'wrong'), limit.wrong),
    atMost('hedged wrong, of all', shareOf(measured, 'hedgedWrong'), limit.hedgedWrong),
    atMost('unanswerable surely answered', shareOf(unanswerable, 'wrong'), limit.unanswerable),
    atMost('unanswerable with offers', shareOf(unanswerable, 'hedgedWrong', 'othersOffered'), limit.offers),
  ];
};
