import { decideLanguage, mainLanguage, type TextKind } from '@parley/understanding/text';
import type { ClientSession } from 'mongoose';
import { createDeletionsUpTo, DELETED_WITHIN_MS, deleteInBatches, inPages } from '../../platform/mongo/batches.ts';
import { collectionOf, inTurn, timeLimit } from '../../platform/mongo/mongo.ts';
import { serverDate, serverNow } from '../../platform/process/clock.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import { ApiError, invalid, notFound } from '../../platform/process/errors.ts';
import { newId } from '../../platform/process/ids.ts';
import type { SharedMemory } from '../../platform/process/lru.ts';
import { createSlices } from '../../platform/process/slices.ts';
import { createPacedSlots } from '../../platform/process/paced-slots.ts';
import { oneEach, workInSlot } from '../../platform/process/slots.ts';
import {
  type Assistant,
  type assistantModels,
  type DraftedSettings,
  draftedSettingsOf,
  type KnowledgePositions,
  type StoredKnowledge,
  toAssistant,
  visibleEntries,
} from '../assistant.ts';
import { bytesOfEntry, type KnowledgeEntry, type KnowledgeInput, MAX_KNOWLEDGE } from './entry.ts';
import type { VectorStore } from './vectors.ts';

/**
 * An import that stays unfinished for longer than this counts as crashed. Its range no longer counts towards the limit.
 */
const DEAD_AFTER_MS = 10 * 60_000;

const tooMany = () =>
  invalid(
    'knowledge',
    'too_many',
    `would have more than ${MAX_KNOWLEDGE.toLocaleString('en')} entries, the most an assistant may have`,
  );

/**
 * Assigns positions to entries and decides which entries are visible. All of this is stored in the assistant's
 * document, so every change is atomic.
 */
const createKnowledgePositions = ({ assistants, knowledge }: ReturnType<typeof assistantModels>) => {
  const read = async (assistantId: string): Promise<KnowledgePositions> =>
    (await assistants.findById(assistantId).select({ knowledgePlaces: 1 }).lean())?.knowledgePlaces ?? {};

  const appendRange = async (assistantId: string, count: number) => {
    // Assistants that were created before this field existed have no highest position, so it is read from their
    // entries.
    const highest =
      (await knowledge.findOne({ assistantId }, { position: 1 }).sort({ position: -1 }).lean())?.position ?? 0;
    const last = { $add: [{ $max: ['$knowledgePlaces.last', highest] }, count] };
    const range = {
      first: { $subtract: ['$knowledgePlaces.last', count - 1] },
      last: '$knowledgePlaces.last',
      at: serverDate(),
    };
    const unfinished = { $concatArrays: [{ $ifNull: ['$knowledgePlaces.unfinished', []] }, [range]] };
    const stored = await assistants
      .findOneAndUpdate(
        { _id: assistantId },
        [{ $set: { 'knowledgePlaces.last': last } }, { $set: { 'knowledgePlaces.unfinished': unfinished } }],
        { returnDocument: 'after', updatePipeline: true },
      )
      .lean();
    if (!stored) throw notFound();
    return stored.knowledgePlaces ?? {};
  };

  /**
   * The number of entries before position `first`. Ranges of running imports count too, so that concurrent imports
   * together cannot exceed the limit.
   */
  const countBefore = async (assistantId: string, first: number, positions: KnowledgePositions): Promise<number> => {
    const reserved = (positions.unfinished ?? [])
      .filter((range) => range.first < first && range.first >= (positions.from ?? 0))
      .filter(({ at }) => at.getTime() > serverNow() - DEAD_AFTER_MS)
      .reduce((sum, range) => sum + range.last - range.first + 1, 0);
    return reserved + (await knowledge.countDocuments(visibleEntries(assistantId, { ...positions, last: first - 1 })));
  };

  /** Takes back a range whose entries will never become visible. */
  const takeBack = async (assistantId: string, first: number): Promise<void> => {
    await assistants.updateOne({ _id: assistantId }, { $pull: { 'knowledgePlaces.unfinished': { first } } });
  };

  return {
    read,
    takeBack,

    /**
     * Reserves `count` positions for one import after all assigned positions, so that concurrent imports do not mix.
     * The entries at these positions stay invisible until `publish`. Throws if the assistant would have too many
     * entries.
     */
    reserve: async (assistantId: string, count: number, { replace }: { replace: boolean }): Promise<number> => {
      if (count > MAX_KNOWLEDGE) throw tooMany();
      const positions = await appendRange(assistantId, count);
      const first = (positions.last ?? count) - count + 1;
      if (!replace && (await countBefore(assistantId, first, positions)) + count > MAX_KNOWLEDGE) {
        await takeBack(assistantId, first);
        throw tooMany();
      }
      return first;
    },

    /** Throws if so many more entries cannot be reserved. */
    requireRoom: async (assistantId: string, count: number): Promise<void> => {
      const positions = await read(assistantId);
      const before = await countBefore(assistantId, (positions.last ?? 0) + 1, positions);
      if (before + count > MAX_KNOWLEDGE) throw tooMany();
    },

    /**
     * Makes the import's entries visible in one write. With `replace`, the same write hides all earlier entries.
     * Returns the first visible position.
     */
    publish: async (
      assistantId: string,
      first: number,
      { replace, session = null }: { replace: boolean; session?: ClientSession | null },
    ): Promise<number> => {
      const update = {
        $inc: { version: 1 },
        $set: { 'semantic.stale': true },
        // Entries before this position are hidden, so the ranges of crashed imports before this position are no longer
        // needed.
        $pull: { 'knowledgePlaces.unfinished': { first: replace ? { $lte: first } : first } },
        ...(replace && { $max: { 'knowledgePlaces.from': first } }),
      };
      const stored = await assistants
        .findOneAndUpdate({ _id: assistantId }, update, { returnDocument: 'after', session })
        .lean();
      if (!stored) throw notFound();
      return stored.knowledgePlaces?.from ?? 0;
    },
  };
};

/**
 * In which order an assistant gives back memory that it uses, if there is too little. Without passages or vectors, turns
 * are answered by the rest.
 */
export const WORTH = {
  draft: { worth: 0 },
  passages: { worth: 1 },
  vectors: { worth: 2 },
  words: { worth: 3, isNeeded: true },
  entries: { worth: 4, isNeeded: true },
};
/** The maximum memory of one assistant's entries. Beyond it, first variants are left out, then entries. */
const MAX_BYTES = 32_000_000;
/** When the entries exceed the memory, the number of variants kept of each entry is divided by this. */
const FEWER_VARIANTS = 3;
/**
 * Entries of more bytes than this are not read again at each change, but after a rest: `REST_SHARE` times as long as
 * the last read took.
 */
const LARGE_BYTES = 4_000_000;
const REST_SHARE = 4;
/** For the count of texts that do not fit in memory, which only the owner sees. */
const COUNTED_WITHIN_MS = 1_000;
/** How many assistants' entries are read at the same time. Those that take longer have half of these places, or one. */
const READS_AT_ONCE = 4;
const READS = { total: READS_AT_ONCE, slowMs: 250, hangsMs: 1_000 };
/** Decoding one batch takes a few milliseconds; other work runs between batches. */
const READ_BATCH = 250;
/** Entries in a batch of a read that is not cached. A batch may have 1.5 MB. */
export const LIST_BATCH = 50;
/** So many entries, the oldest and as many of the newest, tell the language of all. Deciding one takes 0.3 ms. */
const LANGUAGE_SAMPLE = 20;
/** The most entries and bytes of a batch. Encoding one takes a few milliseconds; other work runs between batches. */
const WRITE_BATCH = 500;
const WRITE_BYTES = 1_000_000;

export const toEntry = ({
  _id,
  assistantId: _assistant,
  position: _position,
  since: _since,
  ...entry
}: StoredKnowledge): KnowledgeEntry => ({
  ...entry,
  entryId: _id,
});

/** `variants`: how many of each entry are kept. `isFull`: without any variants, an entry exceeded the memory. */
type Kept = { entries: KnowledgeEntry[]; leftOut: number; bytes: number; variants: number; isFull: boolean };
const noneKept = (): Kept => ({ entries: [], leftOut: 0, bytes: 0, variants: Number.POSITIVE_INFINITY, isFull: false });

/** Keeps entries within `MAX_BYTES`. Whenever they exceed it, fewer variants of each entry are kept. */
export const keepWithin = async (entries: AsyncIterable<KnowledgeEntry>, kept = noneKept()): Promise<Kept> => {
  const slices = createSlices();
  const trimmed = (entry: KnowledgeEntry): KnowledgeEntry => {
    kept.leftOut += Math.max(0, entry.variants.length - kept.variants);
    return entry.variants.length > kept.variants
      ? { ...entry, variants: entry.variants.slice(0, kept.variants) }
      : entry;
  };
  for await (const one of entries) {
    if (slices.isOver()) await slices.next();
    const entry = trimmed(one);
    kept.bytes += bytesOfEntry(entry);
    kept.entries.push(entry);
    while (kept.bytes > MAX_BYTES && kept.variants > 0) {
      kept.variants = kept.variants > 50 ? 25 : Math.floor(kept.variants / FEWER_VARIANTS);
      kept.bytes = 0;
      for (const [nth, before] of kept.entries.entries()) {
        const less = trimmed(before);
        kept.entries[nth] = less;
        kept.bytes += bytesOfEntry(less);
        if (slices.isOver()) await slices.next();
      }
    }
    if (kept.bytes > MAX_BYTES) {
      kept.bytes -= bytesOfEntry(entry);
      kept.entries.pop();
      kept.leftOut += 1;
      kept.isFull = true;
    }
  }
  return kept;
};

/**
 * The entries for replies, at one version of the assistant. `leftOut`: how many questions and variants exceed the
 * memory. `published`: with drafts, the live version and its settings, read at the same moment.
 */
type KnowledgeEntries = {
  entries: KnowledgeEntry[];
  leftOut: number;
  version: number;
  published: { version: number; settings: DraftedSettings } | null;
};
type CachedEntries = KnowledgeEntries & { bytes: number; restUntil: number };
type Snapshot = { session: ClientSession; readConcern: { level: 'snapshot' } };

type Dependencies = ReturnType<typeof assistantModels> & {
  vectors: VectorStore;
  onChanged: (assistantId: string) => void;
  /** Where entries are held. */
  memory: SharedMemory;
};

/** `alongside` writes in the transaction that adds the entries. If it throws, nothing is added. */
export type AddOptions = {
  replace?: boolean | undefined;
  alongside?: ((session: ClientSession, added: KnowledgeEntry[]) => Promise<void>) | undefined;
};

/**
 * The knowledge entries of assistants, in order. Removing an entry also retires its vectors. `onChanged` is called when
 * the knowledge has changed, because new vectors may be needed.
 */
export type KnowledgeStore = {
  /** Reads the entries in their order, without the first `skipped` ones. */
  readKnowledge: (
    assistantId: string,
    signal: AbortSignal,
    skipped?: number,
  ) => AsyncGenerator<KnowledgeEntry[], undefined>;

  /**
   * The entries of an assistant, cached until its version changes. Large knowledge may be of an earlier version for a
   * short time.
   */
  findKnowledge: (assistant: Assistant) => Promise<KnowledgeEntries>;

  /** True if the entries must be read first. */
  mustRead: (assistant: Assistant) => boolean;

  /** Stores how many texts of the knowledge are not searched, for the owner to see. */
  reportLeftOut: (assistantId: string, leftOut: number) => Promise<void>;

  /** Stores the kinds of text whose vectors are not used, for the owner to see. */
  reportVectorsLeftOut: (assistantId: string, kinds: TextKind[]) => Promise<void>;

  listKnowledge: (assistantId: string) => Promise<KnowledgeEntry[]>;
  countKnowledge: (assistantId: string) => Promise<number>;

  /** Throws if the assistant has no room for so many more entries. `addKnowledge` checks it again. */
  requireRoom: (assistantId: string, count: number) => Promise<void>;

  /**
   * Adds entries after the existing entries. Either all new entries become visible together, or none. With `replace`,
   * the same write hides the earlier entries, so there is never a moment without entries. If two replacements run
   * concurrently, only the entries of the later replacement are kept.
   */
  addKnowledge: (assistantId: string, entries: KnowledgeInput[], options?: AddOptions) => Promise<KnowledgeEntry[]>;

  /** Changes an entry. The entry keeps its id and its position. */
  updateKnowledge: (assistantId: string, entryId: string, entry: KnowledgeInput) => Promise<KnowledgeEntry>;

  /** Changes the answer of an entry, if it still has the answer `before`. */
  replaceAnswer: (assistantId: string, entryId: string, change: { before: string; after: string }) => Promise<boolean>;

  removeKnowledge: (assistantId: string, entryIds: string[]) => Promise<void>;

  /**
   * Stores the main language of the entries (`textLanguage`), after each change of them. If that fails, the next change
   * does it.
   */
  noteLanguage: (assistantId: string) => Promise<void>;
};

/** What tells the language of an entry. Its variants may have 75 KB, so they are not read for it. */
const TELLING = { language: 1, question: 1, answer: 1 } as const;

const languageOfEntry = ({ language, question, answer }: Pick<KnowledgeInput, keyof typeof TELLING>): string | null => {
  if (language !== null) return language;
  const found = decideLanguage({ message: `${question} ${answer}` });
  return found.decided ? found.language : null;
};

export const createKnowledgeStore = ({
  assistants,
  knowledge,
  vectors,
  onChanged,
  memory,
}: Dependencies): KnowledgeStore => {
  const newest = memory.openCache<CachedEntries>(WORTH.entries);
  const loading = new Map<string, Promise<CachedEntries>>();
  const now = (): number => performance.now();
  const reads = createPacedSlots({ ...READS, shareOf: oneEach, leastTimeFirst: true });
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

  /** Reads only what can be kept: no variants that are left out, and no entries once there is no room for one. */
  async function* readUntilFull(
    filter: ReturnType<typeof visibleEntries>,
    kept: Kept,
    options: Snapshot,
  ): AsyncGenerator<KnowledgeEntry> {
    for (let [after, isOver] = [-1, false]; !isOver && !kept.isFull; ) {
      const { variants } = kept;
      isOver = true;
      const rows = collectionOf(knowledge)
        .find({ $and: [filter, { position: { $gt: after } }] }, { ...options, batchSize: READ_BATCH })
        .sort({ position: 1 });
      if (Number.isFinite(variants)) rows.project({ variants: { $slice: variants } });
      for await (const row of rows) {
        yield toEntry(row);
        after = row.position;
        isOver = kept.variants === variants;
        if (!isOver || kept.isFull) break;
      }
    }
  }

  /** How many questions and variants the entries have. MongoDB must read them all. */
  const countTexts = async (filter: ReturnType<typeof visibleEntries>, options: Snapshot): Promise<number> => {
    const texts = { $sum: { $add: [1, { $size: '$variants' }] } };
    const steps = [{ $match: filter }, { $group: { _id: null, texts } }];
    const counted = collectionOf(knowledge).aggregate(steps, { ...options, ...timeLimit(COUNTED_WITHIN_MS) });
    return Number((await counted.next())?.['texts'] ?? 0);
  };

  /** Reads the assistant and its entries as they were at one moment, so a reply is made from one version. */
  const loadWithin = async (assistantId: string, version: number): Promise<CachedEntries> => {
    const session = await assistants.db.startSession({ snapshot: true });
    try {
      const options: Snapshot = { session, readConcern: { level: 'snapshot' } };
      const stored = await collectionOf(assistants).findOne({ _id: assistantId }, options);
      const at = stored && toAssistant(stored);
      const published = at?.drafts ? { version: at.publishedVersion ?? 0, settings: draftedSettingsOf(at) } : null;
      const filter = visibleEntries(assistantId, stored?.knowledgePlaces ?? {});
      const kept = noneKept();
      const { entries, bytes } = await keepWithin(readUntilFull(filter, kept, options), kept);
      const texts = entries.reduce((sum, { variants }) => sum + 1 + variants.length, 0);
      const countLeftOut = async (): Promise<number> => (await countTexts(filter, options)) - texts;
      // If the count takes too long, the owner sees at least what was left out of what was read.
      const leftOut = Number.isFinite(kept.variants) ? await countLeftOut().catch(() => kept.leftOut) : 0;
      return { entries, bytes, leftOut, version: at?.version ?? version, published, restUntil: 0 };
    } finally {
      await session.endSession();
    }
  };

  const load = (assistantId: string, version: number): Promise<CachedEntries> =>
    workInSlot(reads, assistantId, async () => {
      const before = newest.get(assistantId);
      const startedAt = now();
      const held = await reads.watch(assistantId, loadWithin(assistantId, version));
      if (before && held.bytes > LARGE_BYTES) held.restUntil = now() + REST_SHARE * (now() - startedAt);
      newest.set(assistantId, held, held);
      return held;
    });

  /** The entries that turns get now. If the knowledge is large, those of the previous version while it is read. */
  const heldFor = (assistantId: string, version: number): CachedEntries | undefined => {
    const held = newest.get(assistantId);
    if (!held || held.version >= version || held.restUntil > now()) return held;
    return held.bytes > LARGE_BYTES && loading.has(assistantId) ? held : undefined;
  };

  /** Runs one load per assistant at a time. */
  const loadCurrent = async (assistantId: string, version: number): Promise<CachedEntries> => {
    for (;;) {
      const held = heldFor(assistantId, version);
      if (held) return held;
      const running = loading.get(assistantId);
      if (!running) {
        const started = load(assistantId, version).finally(() => loading.delete(assistantId));
        loading.set(assistantId, started);
        return started;
      }
      const loaded = await running;
      if (loaded.version >= version) return loaded; // there may have been no room to keep it
    }
  };

  const raiseVersion = async (assistantId: string, options: { session?: ClientSession } = {}): Promise<void> => {
    const change = { $inc: { version: 1 }, $set: { 'semantic.stale': true } };
    const { matchedCount } = await assistants.updateOne({ _id: assistantId }, change, options);
    if (matchedCount === 0) throw notFound();
  };

  /** Changes an entry that matches. False if none does. */
  const changeEntry = async (
    filter: { _id: string; assistantId: string; answer?: string },
    set: Partial<KnowledgeInput>,
  ): Promise<boolean> => {
    let isFound = false;
    await inTurn(assistants.db, async (session) => {
      isFound = (await knowledge.updateOne(filter, { $set: set }, { session })).matchedCount > 0;
      if (isFound) await raiseVersion(filter.assistantId, { session });
    });
    if (isFound) onChanged(filter.assistantId);
    return isFound;
  };

  const insert = async (assistantId: string, first: number, entries: KnowledgeInput[]): Promise<KnowledgeEntry[]> => {
    const inserted: KnowledgeEntry[] = [];
    let rows: StoredKnowledge[] = [];
    let bytes = 0;
    for (const [nth, entry] of entries.entries()) {
      rows.push({ _id: newId(), assistantId, position: first + nth, ...entry });
      bytes += bytesOfEntry(entry);
      if (rows.length < WRITE_BATCH && bytes < WRITE_BYTES && nth < entries.length - 1) continue;
      await collectionOf(knowledge).insertMany(rows);
      inserted.push(...rows.map(toEntry));
      [rows, bytes] = [[], 0];
    }
    return inserted;
  };

  const deleteUpTo = createDeletionsUpTo();
  /** Deletes the entries before a position, which are hidden. After this time, it goes on. */
  const removeHidden = (assistantId: string, from: number, waitMs: number): Promise<void> =>
    deleteUpTo({ key: assistantId, bound: from, waitMs }, (until) => {
      const of = { collection: collectionOf(knowledge), holder: assistantId, onDeleted: vectors.retire };
      return deleteInBatches({ ...of, filter: { assistantId, position: { $lt: until } } });
    });

  /**
   * Reads the entries in batches, in their order, so that they are never all in memory. All batches show the same
   * moment. The connection to MongoDB is free between batches.
   */
  async function* readKnowledge(
    ...[assistantId, signal, skipped = 0]: Parameters<KnowledgeStore['readKnowledge']>
  ): ReturnType<KnowledgeStore['readKnowledge']> {
    const session = await assistants.db.startSession({ snapshot: true });
    try {
      // The first read of the session sets its moment.
      const options = { session, readConcern: { level: 'snapshot' as const }, signal };
      const stored = await collectionOf(assistants).findOne({ _id: assistantId }, options);
      const filter = visibleEntries(assistantId, stored?.knowledgePlaces ?? {});
      const rows = collectionOf(knowledge)
        .find(filter, { ...options, skip: skipped, batchSize: LIST_BATCH })
        .sort({ position: 1 });
      for await (const page of inPages(rows)) yield page.map(toEntry);
    } finally {
      await session.endSession();
    }
  }

  const storeLanguage = async (assistantId: string): Promise<void> => {
    const languages = await readConsistently(assistantId, async (filter) => {
      const slices = createSlices();
      const found: { language: string | null }[] = [];
      for (const position of [1, -1] as const) {
        const rows = collectionOf(knowledge).find(filter, { projection: TELLING });
        for await (const page of inPages(rows.sort({ position }).limit(LANGUAGE_SAMPLE))) {
          for (const entry of page) {
            found.push({ language: languageOfEntry(entry) });
            if (slices.isOver()) await slices.next();
          }
        }
      }
      return found;
    });
    const language = mainLanguage(languages);
    await assistants.updateOne({ _id: assistantId }, { $set: { 'textLanguage.entries': language } });
  };

  const noteLanguage: KnowledgeStore['noteLanguage'] = (assistantId) =>
    storeLanguage(assistantId).catch(() => undefined);

  return {
    readKnowledge,
    noteLanguage,

    findKnowledge: ({ assistantId, version }) => loadCurrent(assistantId, version),

    mustRead: ({ assistantId, version }) => heldFor(assistantId, version) === undefined,

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

    requireRoom: positions.requireRoom,

    addKnowledge: async (assistantId, entries, { replace = false, alongside } = {}) => {
      const first = await positions.reserve(assistantId, entries.length, { replace });
      const removeAdded = (): Promise<void> => {
        const filter = { assistantId, position: { $gte: first, $lt: first + entries.length } };
        return deleteInBatches({ collection: collectionOf(knowledge), holder: assistantId, filter });
      };
      /** The range stays reserved until its entries are gone, because it hides them. */
      const withdraw = async (): Promise<void> => {
        await removeAdded();
        await positions.takeBack(assistantId, first);
      };
      /** A failure of the removal must not hide why it was needed. */
      const forAWhile = (removal: Promise<void>) => withDeadline(removal, DELETED_WITHIN_MS).catch(() => undefined);
      const added = await insert(assistantId, first, entries).catch(async (cause: unknown) => {
        // The entries of a failed import never become visible. Their range stays reserved, because a write that timed
        // out may still arrive.
        await forAWhile(removeAdded());
        throw cause;
      });
      let from = 0;
      const publishAlongside = async (session: ClientSession): Promise<void> => {
        await alongside?.(session, added);
        from = await positions.publish(assistantId, first, { replace, session });
      };
      try {
        if (alongside) await inTurn(assistants.db, publishAlongside);
        else from = await positions.publish(assistantId, first, { replace });
      } catch (cause) {
        // Such an error says that the transaction was not committed. After any other one, it may have been.
        if (alongside && cause instanceof ApiError) await forAWhile(withdraw());
        throw cause;
      }
      // Called even if a concurrent import has already replaced these entries, because the vectors then need an update
      // too.
      onChanged(assistantId);
      // Each later import deletes what a failure or a kill has left, but does not wait for it.
      const waitMs = replace || from > first ? DELETED_WITHIN_MS : 0;
      await Promise.all([from > 0 && removeHidden(assistantId, from, waitMs), noteLanguage(assistantId)]);
      return added;
    },

    updateKnowledge: async (assistantId, entryId, entry) => {
      if (!(await changeEntry({ _id: entryId, assistantId }, entry))) throw notFound();
      await noteLanguage(assistantId);
      return { entryId, ...entry };
    },

    replaceAnswer: (assistantId, entryId, { before, after }) =>
      changeEntry({ _id: entryId, assistantId, answer: before }, { answer: after }),

    removeKnowledge: async (assistantId, entryIds) => {
      const filter = { assistantId, _id: { $in: entryIds } };
      const removed = await knowledge.distinct('_id', filter);
      await inTurn(assistants.db, async (session) => {
        await knowledge.deleteMany(filter, { session });
        await raiseVersion(assistantId, { session });
      });
      await vectors.retire(removed);
      onChanged(assistantId);
      await noteLanguage(assistantId);
    },
  };
};
