import { hash } from 'node:crypto';
import type { KnowledgeEntry } from './knowledge-input.ts';

export type TextKind = 'question' | 'variant' | 'answer';

/** A text of an entry that gets a vector. The hash is of the text alone: the same words have the same vector anywhere. */
export type KnowledgeText = { kind: TextKind; hash: string; text: string };

/** An answer's beginning says what it is about; the rest of it costs time and blurs its vector. */
const ANSWER_CHARS = 300;
/** A word is not cut unless it is longer than this. */
const LONG_WORD = 60;
const HASH_CHARS = 16;

const digest = (text: string): string => hash('sha256', text, 'base64url').slice(0, HASH_CHARS);

const beginningOf = (answer: string): string => {
  if (answer.length <= ANSWER_CHARS) return answer;
  const cut = answer.slice(0, ANSWER_CHARS);
  const end = Math.max(cut.lastIndexOf(' '), cut.lastIndexOf('\n'));
  return (ANSWER_CHARS - end < LONG_WORD ? cut.slice(0, end) : cut).toWellFormed();
};

const textOf = (kind: TextKind, text: string): KnowledgeText => ({ kind, text, hash: digest(text) });

/** The texts of an entry in the order of its vectors: its question, each other wording once, its answer. */
export const textsOf = ({
  question,
  variants,
  answer,
}: Pick<KnowledgeEntry, 'question' | 'variants' | 'answer'>): KnowledgeText[] => [
  textOf('question', question),
  ...[...new Set(variants)].filter((one) => one !== question).map((one) => textOf('variant', one)),
  // With its question: an answer alone often does not say what it is about.
  textOf('answer', `${question} ${beginningOf(answer)}`),
];

/** What visitors' questions are like: made first, and enough for an entry to be found. */
export const questionTexts = (texts: KnowledgeText[]): KnowledgeText[] => texts.filter(({ kind }) => kind !== 'answer');

/** As a text is named beside its vector. */
export const textKeyOf = ({ kind, hash: digested }: Pick<KnowledgeText, 'kind' | 'hash'>): string =>
  `${kind} ${digested}`;

export const parseTextKey = (name: string): Pick<KnowledgeText, 'kind' | 'hash'> => {
  const [kind, digested] = name.split(' ') as [TextKind, string]; // as `nameOf` wrote it
  return { kind, hash: digested };
};

/** Equal where model, texts and their order are. */
export const textsHash = (model: string, texts: KnowledgeText[]): string =>
  digest([model, ...texts.map(textKeyOf)].join('\n'));
