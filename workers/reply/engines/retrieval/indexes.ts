import { setImmediate } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { AssistantProfile } from '../engine.ts';
import { buildIndexInSteps, type KnowledgeIndex } from './knowledge-index.ts';

export type IndexOptions = {
  /** Assistants whose index is kept. */
  maxIndexes?: number;
  /** Entries that all kept indexes may hold together. */
  maxEntries?: number;
};

/** Other turns go on after so long. */
const SLICE_MS = 3;
/** The index of so many entries is built in a moment: an edit counts for the very next turn. */
const SMALL_KNOWLEDGE = 500;

type Build = { key: string; index: Promise<KnowledgeIndex>; next: AssistantProfile | null };

const keyOf = ({ assistantId, version }: AssistantProfile): string => JSON.stringify([assistantId, version]);
const isSmall = ({ knowledge }: AssistantProfile): boolean => knowledge.length <= SMALL_KNOWLEDGE;

/** Indexes by assistant and version. Thousands of entries take seconds, so they are built in slices, each version once. */
export const createIndexes = ({ maxIndexes = 200, maxEntries = 100_000 }: IndexOptions) => {
  const built = new LRUCache<string, KnowledgeIndex>({
    max: maxIndexes,
    maxSize: maxEntries,
    sizeCalculation: ({ entriesById }) => 1 + entriesById.size,
  });
  /** The key of an assistant's newest index, and which build that was: a slower, older one does not take its place. */
  const latest = new LRUCache<string, { key: string; nth: number }>({ max: maxIndexes });
  const building = new Map<string, Build>();
  let builds = 0;
  let lastSlice: Promise<unknown> = Promise.resolve();

  /** One slice between two looks at what else there is to do, however many indexes are being built. */
  const nextSlice = async (): Promise<void> => {
    const mine = lastSlice.then(() => setImmediate());
    lastSlice = mine;
    await mine;
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
    index.catch(() => undefined); // where the one before serves, nobody waits for this one
    return started;
  };

  /**
   * Of many entries one version is built at a time. Those that come meanwhile get its index, and of them the newest is built
   * next: however fast edits come, an assistant has two builds to wait for at most.
   */
  const obtain = (assistant: AssistantProfile): Promise<KnowledgeIndex> => {
    const key = keyOf(assistant);
    const slot = isSmall(assistant) ? key : assistant.assistantId;
    const running = building.get(slot) ?? startBuild(slot, assistant);
    if (running.key !== key) running.next = assistant;
    return running.index;
  };

  /** The one that serves now; that of many entries is built while the one before it serves. */
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
