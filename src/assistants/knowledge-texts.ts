import { hash } from 'node:crypto';
import { type ComparedText, comparedTexts, type TextKind } from '@parley/understanding/text';
import type { KnowledgeEntry } from './knowledge-input.ts';

/** A text of an entry that gets a vector. The hash depends on the text alone, so equal texts share a vector. */
export type KnowledgeText = ComparedText & { hash: string };

const HASH_CHARS = 16;

const digest = (text: string): string => hash('sha256', text, 'base64url').slice(0, HASH_CHARS);

/** The texts of an entry in the order of its vectors. */
export const textsOf = (entry: Pick<KnowledgeEntry, 'question' | 'variants' | 'answer'>): KnowledgeText[] =>
  comparedTexts(entry).map((one) => ({ ...one, hash: digest(one.text) }));

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
