import type { Embedder, SemanticSearch, Similarities } from '@parley/understanding';
import type { Assistant } from '../../../src/assistants/assistant.ts';
import { withDeadline } from '../../../src/process/deadline.ts';
import type { Logger } from '../../../src/process/logger.ts';
import type { VectorsOf } from './reader.ts';

/**
 * The semantic search of one turn of an assistant. Undefined if there is no model, or if the assistant has no vectors
 * of this model.
 */
export type SemanticSearchOf = (
  assistant: Pick<Assistant, 'assistantId' | 'version' | 'semantic'>,
) => SemanticSearch | undefined;

/**
 * How long a turn waits for the search. The first search also reads all vectors, which may take longer. That read
 * continues after this time, so that the next turn can use its result.
 */
const MAX_MS = 2_000;

export const createSemanticSearch = (embedder: Embedder, vectorsOf: VectorsOf, logger: Logger): SemanticSearchOf => {
  const measure = async (
    assistant: Parameters<SemanticSearchOf>[0],
    since: number | undefined,
    [text, include, options]: Parameters<SemanticSearch>,
  ): Promise<Similarities | null> => {
    const asked = { holder: assistant.assistantId, since };
    const [vectors, embedded] = await Promise.all([vectorsOf(assistant), embedder.embed([text], 'query', asked)]);
    const [query] = embedded ?? [];
    // The model may have changed during the call.
    if (!query || !vectors || vectors.model !== embedder.model()) return null;
    return vectors.measureSimilarity(query, include, options);
  };

  return (assistant) => {
    const model = embedder.model();
    if (model === null || assistant.semantic?.model !== model) return undefined;
    let startedAt: number | undefined;
    return (...query) => {
      const since = startedAt;
      startedAt ??= performance.now();
      return withDeadline(
        measure(assistant, since, query).catch((cause: unknown) => {
          logger.warn(
            { err: cause, assistantId: assistant.assistantId },
            'vectors could not be read: words decide alone',
          );
          return null;
        }),
        MAX_MS,
      ).catch(() => null);
    };
  };
};
