import { setImmediate } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { AssistantProfile } from '../engine.ts';
import { indexSteps, type KnowledgeIndex } from './knowledge-index.ts';

export type IndexOptions = {
  /** Assistants whose index is kept. */
  maxIndexes?: number;
  /** Entries that all kept indexes may hold together. */
  maxEntries?: number;
};

/** Other turns go on after so long. */
const SLICE_MS = 3;
/** The index of so many entries is built in a moment: an edit counts for the very next turn. */
const SOON_BUILT = 500;

const keyOf = ({ assistantId, version }: AssistantProfile): string => JSON.stringify([assistantId, version]);

/** Indexes by assistant and version. Thousands of entries take seconds, so they are built in slices, each version once. */
export const createIndexes = ({ maxIndexes = 200, maxEntries = 100_000 }: IndexOptions) => {
  const built = new LRUCache<string, KnowledgeIndex>({
    max: maxIndexes,
    maxSize: maxEntries,
    sizeCalculation: ({ places }) => 1 + places.size,
  });
  /** The key of an assistant's index that was built last. */
  const latest = new LRUCache<string, string>({ max: maxIndexes });
  const underWay = new Map<string, Promise<KnowledgeIndex>>();
  let lastSlice: Promise<unknown> = Promise.resolve();

  /** One slice between two looks at what else there is to do, however many indexes are being built. */
  const nextSlice = async (): Promise<void> => {
    const mine = lastSlice.then(() => setImmediate());
    lastSlice = mine;
    await mine;
  };

  const build = async (assistant: AssistantProfile): Promise<KnowledgeIndex> => {
    const steps = indexSteps(assistant);
    for (;;) {
      await nextSlice();
      const ends = performance.now() + SLICE_MS;
      do {
        const step = steps.next();
        if (step.done) return step.value;
      } while (performance.now() < ends);
    }
  };

  const beginToBuild = (assistant: AssistantProfile): Promise<KnowledgeIndex> => {
    const key = keyOf(assistant);
    const begun = build(assistant)
      .then((index) => {
        built.set(key, index);
        latest.set(assistant.assistantId, key);
        return index;
      })
      .finally(() => underWay.delete(key));
    underWay.set(key, begun);
    begun.catch(() => undefined); // where the one before serves, nobody waits for this one
    return begun;
  };

  /** The one that serves now; that of many entries is built while the one before it serves. */
  const now = (assistant: AssistantProfile): KnowledgeIndex | undefined => {
    const key = keyOf(assistant);
    const index = built.get(key);
    if (index || assistant.knowledge.length <= SOON_BUILT) return index;
    const before = latest.get(assistant.assistantId);
    const last = before === undefined ? undefined : built.get(before);
    if (last && !underWay.has(key)) void beginToBuild(assistant);
    return last;
  };

  return {
    now,
    of: async (assistant: AssistantProfile): Promise<KnowledgeIndex> =>
      now(assistant) ?? underWay.get(keyOf(assistant)) ?? beginToBuild(assistant),
  };
};
