import { setImmediate } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { AssistantProfile } from '../engine.ts';
import { buildIndexInSteps, type KnowledgeIndex } from './knowledge-index.ts';

export type IndexOptions = {
  /** The maximum number of cached indexes. */
  maxIndexes?: number;
  /** The maximum number of entries in all cached indexes together. */
  maxEntries?: number;
};

/** A build yields to other turns after this time. */
const SLICE_MS = 3;
/** For at most this many entries, a turn waits for the new index, so that it sees the latest edit. */
const SMALL_KNOWLEDGE = 500;

type Build = { key: string; index: Promise<KnowledgeIndex>; next: AssistantProfile | null };

const keyOf = ({ assistantId, version }: AssistantProfile): string => JSON.stringify([assistantId, version]);
const isSmall = ({ knowledge }: AssistantProfile): boolean => knowledge.length <= SMALL_KNOWLEDGE;

/** Caches indexes by assistant and version. A large index is built in slices, because the build takes seconds. */
export const createIndexes = ({ maxIndexes = 200, maxEntries = 100_000 }: IndexOptions) => {
  const built = new LRUCache<string, KnowledgeIndex>({
    max: maxIndexes,
    maxSize: maxEntries,
    sizeCalculation: ({ entriesById }) => 1 + entriesById.size,
  });
  /**
   * The cache key and build number of each assistant's newest index. With the number, an older build that finishes
   * later does not replace the newest index.
   */
  const latest = new LRUCache<string, { key: string; nth: number }>({ max: maxIndexes });
  const building = new Map<string, Build>();
  let builds = 0;
  let lastSlice: Promise<unknown> = Promise.resolve();

  /** Waits for the next slice. All builds share one queue, so that the event loop runs between any two slices. */
  const nextSlice = async (): Promise<void> => {
    const slice = lastSlice.then(() => setImmediate());
    lastSlice = slice;
    await slice;
  };

  const build = async (assistant: AssistantProfile): Promise<KnowledgeIndex> => {
    const steps = buildIndexInSteps(assistant);
    for (;;) {
      await nextSlice();
      const ends = performance.now() + SLICE_MS;
      do {
        const step = steps.next();
        if (step.done) return step.value;
      } while (performance.now() < ends);
    }
  };

  const startBuild = (slot: string, assistant: AssistantProfile): Build => {
    const { assistantId } = assistant;
    const key = keyOf(assistant);
    builds += 1;
    const nth = builds;
    const index = build(assistant)
      .then((done) => {
        built.set(key, done);
        if ((latest.get(assistantId)?.nth ?? 0) < nth) latest.set(assistantId, { key, nth });
        return done;
      })
      .finally(() => {
        const { next } = started;
        building.delete(slot);
        if (next && !built.has(keyOf(next))) startBuild(slot, next);
      });
    const started: Build = { key, index, next: null };
    building.set(slot, started);
    index.catch(() => undefined); // nobody waits for this build while an older index serves
    return started;
  };

  /**
   * Builds the index of an assistant. For a large index, only one version is built at a time. Meanwhile turns of newer
   * versions get that version, and only the newest is built next, so a turn never waits for more than two builds.
   */
  const obtain = (assistant: AssistantProfile): Promise<KnowledgeIndex> => {
    const key = keyOf(assistant);
    const slot = isSmall(assistant) ? key : assistant.assistantId;
    const running = building.get(slot) ?? startBuild(slot, assistant);
    if (running.key !== key) running.next = assistant;
    return running.index;
  };

  /** The index that can be used now. While a large index is built, turns use the older index. */
  const current = (assistant: AssistantProfile): KnowledgeIndex | undefined => {
    const index = built.get(keyOf(assistant));
    if (index || isSmall(assistant)) return index;
    const before = latest.get(assistant.assistantId);
    const last = before && built.get(before.key);
    if (last) void obtain(assistant);
    return last;
  };

  return {
    current,
    of: async (assistant: AssistantProfile): Promise<KnowledgeIndex> => current(assistant) ?? obtain(assistant),
  };
};
