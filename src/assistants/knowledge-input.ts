import * as z from 'zod';
import { LanguageTag } from './language-tag.ts';
import { SuggestedAction } from './suggested-action.ts';

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

export type KnowledgeEntry = KnowledgeInput & { entryId: string };
