import { hash } from 'node:crypto';
import { type ComparedText, comparedTexts, type TextKind } from '@parley/understanding/text';
import * as z from 'zod';
import { SuggestedAction } from '../suggested-action.ts';

/** Operating systems and many libraries write `pt_BR`. */
const canonicalLanguage = (value: string): string | null => {
  try {
    // Names of locales, such as en_US.UTF-8, also say an encoding.
    const tag = value.trim().replace(/(?<=^[a-z]{2,3}_[a-z]{2})[.@][\w.@-]+$/i, '');
    return Intl.getCanonicalLocales(tag.replaceAll('_', '-'))[0] ?? null;
  } catch {
    return null;
  }
};

const MAX_LANGUAGE_LENGTH = 35;

/** A well-formed BCP 47 tag of at most 35 characters, also with underscores, converted to its canonical form (docs/contract.md, Request). */
export const LanguageTag = z
  .string()
  .transform((value, context) => {
    const canonical = value.length <= MAX_LANGUAGE_LENGTH ? canonicalLanguage(value) : null;
    if (canonical === null) {
      context.addIssue({
        code: 'custom',
        message: 'must be a well-formed BCP 47 language tag of at most 35 characters',
      });
      return z.NEVER;
    }
    return canonical;
  })
  // The pattern is only an approximation, for the description of the API. The code above decides.
  .meta({ minLength: 2, maxLength: MAX_LANGUAGE_LENGTH, pattern: '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$' });

/**
 * The maximum number of entries that an assistant or an import may have. This limit bounds the cost of reading, listing
 * and indexing all entries of an assistant.
 */
export const MAX_KNOWLEDGE = 10_000;

const line = (max: number) => z.string().trim().min(1).max(max);

/** One question with its variants and its answer, as imported or written in the dashboard. */
export const KnowledgeInput = z.object({
  question: line(500),
  variants: z.array(line(500)).max(50).default([]),
  answer: line(4000),
  language: LanguageTag.nullish().transform((value) => value ?? null),
  actions: z.array(SuggestedAction).max(5).default([]),
  tags: z.array(line(50)).max(20).default([]),
});
export type KnowledgeInput = z.infer<typeof KnowledgeInput>;

/** Estimated memory of an entry, and of each of its texts, in addition to the characters. */
const ENTRY_BYTES = 400;
const TEXT_BYTES = 40;

/** The memory that an entry needs. Null: an entry of which only the id is kept. */
export const bytesOfEntry = (entry: KnowledgeInput | null): number => {
  let bytes = ENTRY_BYTES;
  if (entry === null) return bytes;
  const { question, variants, answer, tags, actions } = entry;
  const ofActions = actions.flatMap(({ label, payload }) => [label, payload]);
  for (const text of [question, answer, ...variants, ...tags, ...ofActions])
    bytes += TEXT_BYTES + Buffer.byteLength(text);
  return bytes;
};

export type KnowledgeEntry = KnowledgeInput & { entryId: string };

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
