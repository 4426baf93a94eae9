import { hash } from 'node:crypto';
import type { KnowledgeEntry } from './knowledge-input.ts';

export type TextKind = 'question' | 'variant' | 'answer';

/** A text of an entry that gets a vector. The hash depends on the text alone, so equal texts share a vector. */
export type KnowledgeText = { kind: TextKind; hash: string; text: string };

/**
 * Only this many characters of an answer get a vector, because the start of an answer says what it is about. More text
 * costs time and makes the vector less precise.
 */
const ANSWER_CHARS = 300;
/** A long answer is cut between words, unless its last word has more characters than this. */
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

/** The texts of an entry in the order of its vectors: question, distinct variants, answer. */
export const textsOf = ({
  question,
  variants,
  answer,
}: Pick<KnowledgeEntry, 'question' | 'variants' | 'answer'>): KnowledgeText[] => [
  textOf('question', question),
  ...[...new Set(variants)].filter((one) => one !== question).map((one) => textOf('variant', one)),
  // The question is added, because an answer alone often does not say what it is about.
  textOf('answer', `${question} ${beginningOf(answer)}`),
];

/** Question and variants. Their vectors are made before those of answers, because they are enough to find an entry. */
export const questionTexts = (texts: KnowledgeText[]): KnowledgeText[] => texts.filter(({ kind }) => kind !== 'answer');

/** The key of a text in the list that is stored beside the vectors. */
export const textKeyOf = ({ kind, hash: digested }: Pick<KnowledgeText, 'kind' | 'hash'>): string =>
  `${kind} ${digested}`;

export const parseTextKey = (name: string): Pick<KnowledgeText, 'kind' | 'hash'> => {
  const [kind, digested] = name.split(' ') as [TextKind, string]; // as `textKeyOf` wrote it
  return { kind, hash: digested };
};

/**
 * A hash of a model and a list of texts. Two hashes are equal only if the model, the texts and their order are equal.
 */
export const textsHash = (model: string, texts: KnowledgeText[]): string =>
  digest([model, ...texts.map(textKeyOf)].join('\n'));
