import { LRUCache } from 'lru-cache';
import { notFound } from '../platform/errors.ts';
import { newId } from '../platform/ids.ts';
import { collectionOf } from '../platform/mongo.ts';
import type { Assistant, assistantModels, StoredKnowledge } from './assistant.ts';
import type { KnowledgeEntry, KnowledgeInput } from './knowledge-input.ts';
import { createKnowledgePositions, visibleEntries } from './knowledge-positions.ts';
import type { VectorStore } from './knowledge-vectors.ts';

const CACHED_ASSISTANTS = 1000;
/** Decoding one batch takes a few milliseconds; other work runs between batches. */
const READ_BATCH = 250;
/** Encoding one batch takes a few milliseconds; other work runs between batches. */
const WRITE_BATCH = 500;

const toEntry = ({ _id, assistantId: _assistant, position: _position, ...entry }: StoredKnowledge): KnowledgeEntry => ({
  ...entry,
  entryId: _id,
});

type Dependencies = ReturnType<typeof assistantModels> & {
  vectors: VectorStore;
  onChanged: (assistantId: string) => void;
};

/**
 * The knowledge entries of assistants, in order. Removing an entry also retires its vectors. `onChanged` is called when
 * the knowledge has changed, because new vectors may be needed.
 */
export const createKnowledgeStore = ({ assistants, knowledge, vectors, onChanged }: Dependencies) => {
  const byVersion = new LRUCache<string, { version: number; entries: KnowledgeEntry[] }>({ max: CACHED_ASSISTANTS });
  const loading = new Map<string, Promise<KnowledgeEntry[]>>();
  const positions = createKnowledgePositions({ assistants, knowledge });

  /**
   * Reads entries. If an import replaced all entries during the read, the read is repeated, because some entries may
   * have been removed before they were read.
   */
  const readConsistently = async <Found>(
    assistantId: string,
    find: (filter: ReturnType<typeof visibleEntries>) => Promise<Found>,
  ): Promise<Found> => {
    for (let before = await positions.read(assistantId); ; ) {
      const found = await find(visibleEntries(assistantId, before));
      const after = await positions.read(assistantId);
      if (after.from === before.from) return found;
      before = after;
    }
  };

  const load = async (assistantId: string): Promise<KnowledgeEntry[]> => {
    return readConsistently(assistantId, async (filter) => {
      const entries: KnowledgeEntry[] = [];
      const rows = knowledge.find(filter).sort({ position: 1 }).lean().cursor({ batchSize: READ_BATCH });
      for await (const row of rows) entries.push(toEntry(row));
      return entries;
    });
  };

  /** Loads the entries of one version. Concurrent turns share one read. */
  const loadOnce = (assistantId: string, version: number): Promise<KnowledgeEntry[]> => {
    const key = JSON.stringify([assistantId, version]);
    const inFlight = loading.get(key) ?? load(assistantId).finally(() => loading.delete(key));
    loading.set(key, inFlight);
    return inFlight;
  };

  const raiseVersion = async (assistantId: string): Promise<void> => {
    const change = { $inc: { version: 1 }, $set: { 'semantic.stale': true } };
    const { matchedCount } = await assistants.updateOne({ _id: assistantId }, change);
    if (matchedCount === 0) throw notFound();
    onChanged(assistantId);
  };

  const insert = async (assistantId: string, first: number, entries: KnowledgeInput[]): Promise<KnowledgeEntry[]> => {
    const inserted: KnowledgeEntry[] = [];
    for (let from = 0; from < entries.length; from += WRITE_BATCH) {
      const rows = entries
        .slice(from, from + WRITE_BATCH)
        .map((entry, index) => ({ _id: newId(), assistantId, position: first + from + index, ...entry }));
      await collectionOf(knowledge).insertMany(rows);
      inserted.push(...rows.map(toEntry));
    }
    return inserted;
  };

  const removeAll = async (filter: { assistantId: string } & Record<string, unknown>): Promise<void> => {
    const rows = await knowledge.find(filter).select({ _id: 1 }).lean();
    await knowledge.deleteMany(filter);
    await vectors.retire(rows.map(({ _id }) => _id));
  };

  return {
    /** The entries of an assistant, cached until the assistant's version changes. */
    findKnowledge: async ({ assistantId, version }: Assistant): Promise<KnowledgeEntry[]> => {
      const cached = byVersion.get(assistantId);
      if (cached?.version === version) return cached.entries;
      const entries = await loadOnce(assistantId, version);
      byVersion.set(assistantId, { version, entries });
      return entries;
    },

    listKnowledge: load,

    countKnowledge: (assistantId: string): Promise<number> =>
      readConsistently(assistantId, (filter) => knowledge.countDocuments(filter).exec()),

    /**
     * Adds entries after the existing entries. Either all new entries become visible together, or none. With `replace`,
     * the same write hides the earlier entries, so there is never a moment without entries. If two replacements run
     * concurrently, only the entries of the later replacement stay.
     */
    addKnowledge: async (
      assistantId: string,
      entries: KnowledgeInput[],
      { replace = false } = {},
    ): Promise<KnowledgeEntry[]> => {
      const first = await positions.reserve(assistantId, entries.length, { replace });
      const added = await insert(assistantId, first, entries).catch(async (cause: unknown) => {
        // The entries of a failed import never become visible. Their range stays reserved, because a write that timed
        // out may still arrive.
        const position = { $gte: first, $lt: first + entries.length };
        await knowledge.deleteMany({ assistantId, position }).catch(() => undefined);
        throw cause;
      });
      const from = await positions.publish(assistantId, first, { replace });
      // Called even if a concurrent import has already replaced these entries, because the vectors then need an update
      // too.
      onChanged(assistantId);
      if (replace || from > first) await removeAll({ assistantId, position: { $lt: from } });
      return added;
    },

    /** Changes an entry. The entry keeps its id and its position. */
    updateKnowledge: async (assistantId: string, entryId: string, entry: KnowledgeInput): Promise<KnowledgeEntry> => {
      const { matchedCount } = await knowledge.updateOne({ _id: entryId, assistantId }, { $set: entry });
      if (matchedCount === 0) throw notFound();
      await raiseVersion(assistantId);
      return { entryId, ...entry };
    },

    removeKnowledge: async (assistantId: string, entryIds: string[]): Promise<void> => {
      await removeAll({ assistantId, _id: { $in: entryIds } });
      await raiseVersion(assistantId);
    },
  };
};
