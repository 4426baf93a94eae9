import { LRUCache } from 'lru-cache';
import { notFound } from '../platform/errors.ts';
import { newId } from '../platform/ids.ts';
import type { Assistant, assistantModels, KnowledgeEntry, KnowledgeInput, StoredKnowledge } from './assistant.ts';

const CACHED_ASSISTANTS = 1000;

const toEntry = ({ _id, assistantId: _assistant, position: _position, ...entry }: StoredKnowledge): KnowledgeEntry => ({
  ...entry,
  entryId: _id,
});

/** What assistants know, in its order. */
export const createKnowledgeStore = ({ assistants, knowledge }: ReturnType<typeof assistantModels>) => {
  const byVersion = new LRUCache<string, { version: number; entries: KnowledgeEntry[] }>({ max: CACHED_ASSISTANTS });

  const load = async (assistantId: string): Promise<KnowledgeEntry[]> => {
    const assistant = await assistants.findById(assistantId).select({ knowledgePlaces: 1 }).lean();
    const from = assistant?.knowledgePlaces?.from ?? 0;
    const rows = await knowledge
      .find({ assistantId, position: { $gte: from } })
      .sort({ position: 1 })
      .lean();
    return rows.map(toEntry);
  };

  /** So many places after all that were given out, for one import alone: two at once do not get into each other's order. */
  const takePlaces = async (assistantId: string, count: number): Promise<number> => {
    // For assistants made before places were counted.
    const highest = (await knowledge.findOne({ assistantId }).sort({ position: -1 }).lean())?.position ?? 0;
    const last = { $add: [{ $max: ['$knowledgePlaces.last', highest] }, count] };
    const stored = await assistants
      .findOneAndUpdate({ _id: assistantId }, [{ $set: { 'knowledgePlaces.last': last } }], {
        returnDocument: 'after',
        updatePipeline: true,
      })
      .lean();
    if (!stored) throw notFound();
    return (stored.knowledgePlaces?.last ?? count) - count + 1;
  };

  /** Raised after the entries are there, so that nobody indexes half of them for long. Answers where the valid ones begin. */
  const raiseVersion = async (assistantId: string, replacedBefore?: number): Promise<number> => {
    const update = {
      $inc: { version: 1 },
      ...(replacedBefore !== undefined && { $max: { 'knowledgePlaces.from': replacedBefore } }),
    };
    const stored = await assistants.findOneAndUpdate({ _id: assistantId }, update, { returnDocument: 'after' }).lean();
    if (!stored) throw notFound();
    return stored.knowledgePlaces?.from ?? 0;
  };

  return {
    /** Kept in memory for as long as the assistant's version stays. */
    findKnowledge: async ({ assistantId, version }: Assistant): Promise<KnowledgeEntry[]> => {
      const known = byVersion.get(assistantId);
      if (known?.version === version) return known.entries;
      const entries = await load(assistantId);
      byVersion.set(assistantId, { version, entries });
      return entries;
    },

    listKnowledge: load,

    /**
     * Adds entries after those there are. With `replace` the earlier ones end in one write, once these are there: nobody
     * reads none, and of two that replace at once the later one's stay, alone.
     */
    addKnowledge: async (
      assistantId: string,
      entries: KnowledgeInput[],
      { replace = false } = {},
    ): Promise<KnowledgeEntry[]> => {
      const first = await takePlaces(assistantId, entries.length);
      const rows = entries.map((entry, index) => ({ _id: newId(), assistantId, position: first + index, ...entry }));
      await knowledge.insertMany(rows);
      const from = await raiseVersion(assistantId, replace ? first : undefined);
      // Also where somebody else has replaced them in the meantime, these included.
      if (replace || from > first) await knowledge.deleteMany({ assistantId, position: { $lt: from } });
      return rows.map(toEntry);
    },

    /** The entry keeps its id and its place. */
    updateKnowledge: async (assistantId: string, entryId: string, entry: KnowledgeInput): Promise<KnowledgeEntry> => {
      const { matchedCount } = await knowledge.updateOne({ _id: entryId, assistantId }, { $set: entry });
      if (matchedCount === 0) throw notFound();
      await raiseVersion(assistantId);
      return { entryId, ...entry };
    },

    removeKnowledge: async (assistantId: string, entryIds: string[]): Promise<void> => {
      await knowledge.deleteMany({ assistantId, _id: { $in: entryIds } });
      await raiseVersion(assistantId);
    },
  };
};
