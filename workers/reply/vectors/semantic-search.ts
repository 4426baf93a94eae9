import type { Assistant } from '../../../src/assistants/assistant.ts';
import { withDeadline } from '../../../src/platform/deadline.ts';
import type { Logger } from '../../../src/platform/logger.ts';
import type { Embedder } from '../embedder/embedder.ts';
import type { VectorsOf } from './reader.ts';
import type { Similarities, SimilarityOptions } from './similarity.ts';

/** What a text means, told by how near each entry is. Null: not to be had right now; what its words say stands. */
export type SemanticSearch = (
  text: string,
  include: ReadonlySet<string>,
  options?: SimilarityOptions,
) => Promise<Similarities | null>;

/** Of one assistant; undefined where there is no model or nothing made by it, so that nobody waits for it. */
export type SemanticSearchOf = (
  assistant: Pick<Assistant, 'assistantId' | 'version' | 'semantic'>,
) => SemanticSearch | undefined;

/** The embedder keeps to less by itself; the first look at thousands of entries may take longer, and goes on beside the turns. */
const MAX_MS = 2_000;

export const createSemanticSearch = (embedder: Embedder, vectorsOf: VectorsOf, logger: Logger): SemanticSearchOf => {
  const measure = async (
    assistant: Parameters<SemanticSearchOf>[0],
    text: string,
    include: ReadonlySet<string>,
    options?: SimilarityOptions,
  ): Promise<Similarities | null> => {
    const [vectors, embedded] = await Promise.all([vectorsOf(assistant), embedder.embed([text], 'query')]);
    const [query] = embedded ?? [];
    // The model may have become another one while it was asked.
    if (!query || !vectors || vectors.model !== embedder.model()) return null;
    return vectors.measureSimilarity(query, include, options);
  };

  return (assistant) => {
    const model = embedder.model();
    if (model === null || assistant.semantic?.model !== model) return undefined;
    return (text, include, options) =>
      withDeadline(
        measure(assistant, text, include, options).catch((cause: unknown) => {
          logger.warn(
            { err: cause, assistantId: assistant.assistantId },
            'vectors could not be read: words alone stand',
          );
          return null;
        }),
        MAX_MS,
      ).catch(() => null);
  };
};
