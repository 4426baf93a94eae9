import { LRUCache } from 'lru-cache';
import { notFound } from '../platform/errors.ts';
import { newId } from '../platform/ids.ts';
import { collectionOf } from '../platform/mongo.ts';
import type { Assistant, assistantModels, StoredKnowledge } from './assistant.ts';
import type { KnowledgeEntry, KnowledgeInput } from './knowledge-input.ts';
import { createKnowledgePositions, visibleEntries } from './knowledge-positions.ts';
import type { VectorStore } from './knowledge-vectors.ts';

const CACHED_ASSISTANTS = 1000;
/** Read at once: to take it out of its bytes takes a few milliseconds, and others have their turn before the next. */
const READ_BATCH = 250;
/** Written at once: to put it into bytes takes a few milliseconds, and others have their turn before the next. */
const WRITE_BATCH = 500;

const toEntry = ({ _id, assistantId: _assistant, position: _position, ...entry }: StoredKnowledge): KnowledgeEntry => ({
  ...entry,
  entryId: _id,
});

type Dependencies = ReturnType<typeof assistantModels> & {
  vectors: VectorStore;
  onChanged: (assistantId: string) => void;
};

/** What assistants know, in its order. Its vectors end with an entry; to make those of others is for whoever is told. */
export const createKnowledgeStore = ({ assistants, knowledge, vectors, onChanged }: Dependencies) => {
  const byVersion = new LRUCache<string, { version: number; entries: KnowledgeEntry[] }>({ max: CACHED_ASSISTANTS });
  const loading = new Map<string, Promise<KnowledgeEntry[]>>();
  const positions = createKnowledgePositions({ assistants, knowledge });

  /** A replacement that ended meanwhile may have removed what was being read: then it is read again. */
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

  /** Turns that come together wait for one reading. */
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
    /** Kept in memory for as long as the assistant's version stays. */
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
     * Adds entries after those there are; they are read all at once, or never. With `replace` the earlier ones end in that
     * same write: nobody reads none, and of two that replace at once the later one's stay, alone.
     */
    addKnowledge: async (
      assistantId: string,
      entries: KnowledgeInput[],
      { replace = false } = {},
    ): Promise<KnowledgeEntry[]> => {
      const first = await positions.reserve(assistantId, entries.length, { replace });
      const added = await insert(assistantId, first, entries).catch(async (cause: unknown) => {
        // Nobody reads them; their places stay taken, since a write that was given up may still arrive.
        const position = { $gte: first, $lt: first + entries.length };
        await knowledge.deleteMany({ assistantId, position }).catch(() => undefined);
        throw cause;
      });
      const from = await positions.publish(assistantId, first, { replace });
      // Also where somebody else has replaced them in the meantime, these included.
      onChanged(assistantId);
      if (replace || from > first) await removeAll({ assistantId, position: { $lt: from } });
      return added;
    },

    /** The entry keeps its id and its place. */
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
