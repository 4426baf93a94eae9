import type { TextKind } from '@parley/understanding/text';
import { LRUCache } from 'lru-cache';
import { notFound } from '../process/errors.ts';
import { newId } from '../process/ids.ts';
import { collectionOf } from '../mongo/mongo.ts';
import { createSlices } from '../process/slices.ts';
import { createSlots } from '../process/slots.ts';
import type { Assistant, StoredKnowledge, assistantModels } from './assistant.ts';
import type { KnowledgeEntry, KnowledgeInput } from './knowledge-input.ts';
import { createKnowledgePositions, visibleEntries } from './knowledge-positions.ts';
import type { VectorStore } from './knowledge-vectors.ts';

/** The most memory of all cached entries. */
const CACHED_BYTES = 128_000_000;
/** The most memory of one assistant's entries. Beyond it, variants are left out, and then entries. */
const MAX_BYTES = CACHED_BYTES / 4;
/** Estimated memory of an entry and of each of its texts without their characters. */
const ENTRY_BYTES = 400;
const TEXT_BYTES = 40;
/** When the entries exceed the memory, the number of variants kept of each entry is divided by this. */
const FEWER_VARIANTS = 3;
/** Entries of more than this are not read again for each change, but after a rest of so many times the read before. */
const LARGE_BYTES = 4_000_000;
const REST_SHARE = 4;
/** How many assistants' entries are read at the same time. */
const READS = 4;
/** Decoding one batch takes a few milliseconds; other work runs between batches. */
const READ_BATCH = 250;
/** A batch of a read that is not cached. It may have 1.5 MB. */
const LIST_BATCH = 50;
/** How many of them are decoded at once: up to 300 kB. */
const DECODED_AT_ONCE = 5;
/** Encoding one batch takes a few milliseconds; other work runs between batches. */
const WRITE_BATCH = 500;

const toEntry = ({ _id, assistantId: _assistant, position: _position, ...entry }: StoredKnowledge): KnowledgeEntry => ({
  ...entry,
  entryId: _id,
});

const bytesOf = ({ question, variants, answer, tags }: KnowledgeInput): number => {
  let bytes = ENTRY_BYTES;
  for (const text of [question, answer, ...variants, ...tags]) bytes += TEXT_BYTES + Buffer.byteLength(text);
  return bytes;
};

/**
 * The entries for replies, at one version of the assistant. `leftOut` is the number of questions and variants that exceed
 * the memory.
 */
type KnowledgeEntries = { entries: KnowledgeEntry[]; leftOut: number; version: number };
type Held = KnowledgeEntries & { bytes: number; restUntil: number };

type Dependencies = ReturnType<typeof assistantModels> & {
  vectors: VectorStore;
  onChanged: (assistantId: string) => void;
};

/**
 * The knowledge entries of assistants, in order. Removing an entry also retires its vectors. `onChanged` is called when
 * the knowledge has changed, because new vectors may be needed.
 */
export type KnowledgeStore = {
  readKnowledge: (assistantId: string, signal: AbortSignal) => AsyncGenerator<KnowledgeEntry[], undefined>;

  /** The entries of an assistant, cached until its version changes. Large knowledge may be of a version shortly before. */
  findKnowledge: (assistant: Assistant) => Promise<KnowledgeEntries>;

  /** Stores how many texts of the knowledge are not searched, for the owner to see. */
  reportLeftOut: (assistantId: string, leftOut: number) => Promise<void>;

  /** The same for kinds of texts whose vectors are not used. */
  reportVectorsLeftOut: (assistantId: string, kinds: TextKind[]) => Promise<void>;

  listKnowledge: (assistantId: string) => Promise<KnowledgeEntry[]>;
  countKnowledge: (assistantId: string) => Promise<number>;

  /**
   * Adds entries after the existing entries. Either all new entries become visible together, or none. With `replace`,
   * the same write hides the earlier entries, so there is never a moment without entries. If two replacements run
   * concurrently, only the entries of the later replacement stay.
   */
  addKnowledge: (
    assistantId: string,
    entries: KnowledgeInput[],
    options?: { replace?: boolean | undefined },
  ) => Promise<KnowledgeEntry[]>;

  /** Changes an entry. The entry keeps its id and its position. */
  updateKnowledge: (assistantId: string, entryId: string, entry: KnowledgeInput) => Promise<KnowledgeEntry>;

  removeKnowledge: (assistantId: string, entryIds: string[]) => Promise<void>;
};

export const createKnowledgeStore = ({ assistants, knowledge, vectors, onChanged }: Dependencies): KnowledgeStore => {
  const byVersion = new LRUCache<string, Held>({ maxSize: CACHED_BYTES, sizeCalculation: ({ bytes }) => bytes + 1 });
  const loading = new Map<string, Promise<Held>>();
  const now = (): number => performance.now();
  const reads = createSlots(({ own, inUse }) => own === 0 && inUse < READS);
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

  const listAll = async (assistantId: string): Promise<KnowledgeEntry[]> => {
    return readConsistently(assistantId, async (filter) => {
      const entries: KnowledgeEntry[] = [];
      const rows = knowledge.find(filter).sort({ position: 1 }).lean().cursor({ batchSize: READ_BATCH });
      for await (const row of rows) entries.push(toEntry(row));
      return entries;
    });
  };

  /** Reads the entries within `MAX_BYTES`. Whenever they exceed it, fewer variants of each entry are kept. */
  const loadWithin = async (assistantId: string, version: number): Promise<Held> =>
    readConsistently(assistantId, async (filter) => {
      const held: Held = { entries: [], leftOut: 0, version, bytes: 0, restUntil: 0 };
      let variants = Number.POSITIVE_INFINITY;
      const slices = createSlices();
      const trimmed = (entry: KnowledgeEntry): KnowledgeEntry => {
        held.leftOut += Math.max(0, entry.variants.length - variants);
        return entry.variants.length > variants ? { ...entry, variants: entry.variants.slice(0, variants) } : entry;
      };
      const rows = knowledge.find(filter).sort({ position: 1 }).lean().cursor({ batchSize: READ_BATCH });
      for await (const row of rows) {
        const entry = trimmed(toEntry(row));
        held.bytes += bytesOf(entry);
        held.entries.push(entry);
        while (held.bytes > MAX_BYTES && variants > 0) {
          variants = variants > 50 ? 25 : Math.floor(variants / FEWER_VARIANTS);
          held.bytes = 0;
          for (const [nth, before] of held.entries.entries()) {
            const less = trimmed(before);
            held.entries[nth] = less;
            held.bytes += bytesOf(less);
            if (slices.isOver()) await slices.next();
          }
        }
        if (held.bytes > MAX_BYTES) {
          held.bytes -= bytesOf(entry);
          held.entries.pop();
          held.leftOut += 1;
        }
      }
      return held;
    });

  const load = async (assistantId: string, version: number): Promise<Held> => {
    const slot = await reads.acquire(assistantId);
    try {
      const before = byVersion.get(assistantId);
      const startedAt = now();
      const held = await loadWithin(assistantId, version);
      if (before && held.bytes > LARGE_BYTES) held.restUntil = now() + REST_SHARE * (now() - startedAt);
      byVersion.set(assistantId, held);
      return held;
    } finally {
      slot?.release();
    }
  };

  /** Runs one load per assistant at a time. Meanwhile turns get the large knowledge of the version before. */
  const loadCurrent = async (assistantId: string, version: number): Promise<Held> => {
    for (;;) {
      const held = byVersion.get(assistantId);
      if (held && (held.version >= version || held.restUntil > now())) return held;
      const running = loading.get(assistantId);
      if (!running) {
        const started = load(assistantId, version).finally(() => loading.delete(assistantId));
        loading.set(assistantId, started);
        return started;
      }
      if (held && held.bytes > LARGE_BYTES) return held;
      await running;
    }
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

  /**
   * Reads the entries in batches, in their order, so that they are never all in memory. All batches show the same moment.
   * The connection to MongoDB is free between batches.
   */
  async function* readKnowledge(assistantId: string, signal: AbortSignal): AsyncGenerator<KnowledgeEntry[], undefined> {
    const session = await assistants.db.startSession({ snapshot: true });
    try {
      // The first read of the session sets its moment.
      const options = { session, readConcern: { level: 'snapshot' as const }, signal };
      const stored = await collectionOf(assistants).findOne({ _id: assistantId }, options);
      const filter = visibleEntries(assistantId, stored?.knowledgePlaces ?? {});
      const rows = collectionOf(knowledge)
        .find(filter, { ...options, batchSize: LIST_BATCH })
        .sort({ position: 1 });
      const slices = createSlices();
      while (await rows.hasNext()) {
        yield rows.readBufferedDocuments(DECODED_AT_ONCE).map(toEntry);
        if (slices.isOver()) await slices.next();
      }
    } finally {
      await session.endSession();
    }
  }

  return {
    readKnowledge,

    findKnowledge: ({ assistantId, version }) => loadCurrent(assistantId, version),

    reportLeftOut: async (assistantId, leftOut) => {
      if (leftOut > 0) await assistants.updateOne({ _id: assistantId }, { $set: { leftOut } });
      else await assistants.updateOne({ _id: assistantId, leftOut: { $exists: true } }, { $unset: { leftOut: '' } });
    },

    reportVectorsLeftOut: async (assistantId, kinds) => {
      const had = { _id: assistantId, vectorsLeftOut: { $exists: true } };
      if (kinds.length > 0) await assistants.updateOne({ _id: assistantId }, { $set: { vectorsLeftOut: kinds } });
      else await assistants.updateOne(had, { $unset: { vectorsLeftOut: '' } });
    },

    listKnowledge: listAll,

    countKnowledge: (assistantId) => readConsistently(assistantId, (filter) => knowledge.countDocuments(filter).exec()),

    addKnowledge: async (assistantId, entries, { replace = false } = {}) => {
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

    updateKnowledge: async (assistantId, entryId, entry) => {
      const { matchedCount } = await knowledge.updateOne({ _id: entryId, assistantId }, { $set: entry });
      if (matchedCount === 0) throw notFound();
      await raiseVersion(assistantId);
      return { entryId, ...entry };
    },

    removeKnowledge: async (assistantId, entryIds) => {
      await removeAll({ assistantId, _id: { $in: entryIds } });
      await raiseVersion(assistantId);
    },
  };
};
