import type { ClientSession, Connection } from 'mongoose';
import { acquireInTime } from '../../platform/http/request-slots.ts';
import { inChunks, inPages } from '../../platform/mongo/batches.ts';
import { collectionOf, type Indexed, inTurn } from '../../platform/mongo/mongo.ts';
import { serverDate } from '../../platform/process/clock.ts';
import { ApiError, conflict, invalid, notFound, unavailable } from '../../platform/process/errors.ts';
import { newId } from '../../platform/process/ids.ts';
import type { SharedMemory } from '../../platform/process/lru.ts';
import { createSlices } from '../../platform/process/slices.ts';
import { createPacedSlots } from '../../platform/process/paced-slots.ts';
import { type Acquiring, createSlots, oneEach, restAsLong } from '../../platform/process/slots.ts';
import { createResealing, type SecretsFound, type Vault } from '../../platform/process/vault.ts';
import {
  type assistantModels,
  type DraftedField,
  type DraftedSettings,
  draftedSettingsOf,
  type StoredAssistant,
  toAssistant,
} from '../assistant.ts';
import {
  bytesOfEdit,
  createDraftReads,
  draftModels,
  type DraftReads,
  type Edit,
  type DraftedSourceKind,
  type EntryEditKind,
  liveEntries,
  type SettingsEdits,
  type SourceEdits,
  sourcesOf,
  type StoredDraft,
  type StoredEdit,
  withEdits,
} from './draft-reads.ts';
import { bytesOfEntry, type KnowledgeEntry, type KnowledgeInput, MAX_KNOWLEDGE } from '../knowledge/entry.ts';
import { type AddOptions, LIST_BATCH } from '../knowledge/store.ts';
import { secretsOfEngine, secretsOfWeb } from '../settings.ts';
import {
  type AssistantVersion,
  type DraftCounts,
  type EditAuthor,
  type LiveChange,
  REPLACED_MAX_BYTES,
  type VersionedSources,
  type VersionMade,
  type VersionResult,
  type VersionStore,
} from './versions.ts';

/**
 * The maximum memory of a draft's entries, as estimated by `bytesOfEntry`, with the live entries that they change or
 * remove: MongoDB holds both in its cache while the draft is published.
 */
const DRAFT_MAX_BYTES = 32_000_000;
const WRITE_BATCH = 200;
/**
 * Entries that a draft adds get positions from here on, after all live entries. Each revision has `MAX_KNOWLEDGE`
 * positions.
 */
const ADDED_FROM = 2 ** 40;

/**
 * A version of a draft with fewer bytes, which does not replace all entries, is small. So is a roll back of versions that
 * changed at most so many entries, unless it is large.
 */
const SMALL_BYTES = 20_000;
const SMALL_ENTRIES = 20;
const SMALL_AT_ONCE = 8;
/** One with up to so many bytes, and as many of what it replaces or brings back, is made in less than a second. */
export const MIDDLE_BYTES = 1_000_000;
const PACE = { slowMs: 1_000, hangsMs: 4_000, shareOf: oneEach };
/**
 * One large version may write as much as MongoDB can take before turns are delayed. So a process makes one at a time. None
 * waits for a larger one, and assistants whose versions take long have one place in the line together.
 */
const making = {
  small: createPacedSlots({ ...PACE, total: SMALL_AT_ONCE }),
  middle: createPacedSlots({ ...PACE, total: 1 }),
  large: createPacedSlots({ ...PACE, total: 1 }),
};
/** The smallest first. */
const SIZES = ['small', 'middle', 'large'] as const;
type VersionSize = (typeof SIZES)[number];
const sizeOfVersion = (isSmall: boolean, isLarge: boolean): VersionSize => {
  if (isLarge) return 'large';
  return isSmall ? 'small' : 'middle';
};
const sizeOfBytes = (bytes = 0): VersionSize => sizeOfVersion(bytes < SMALL_BYTES, bytes > MIDDLE_BYTES);
/** Ends the transaction of a version whose place is for smaller ones, before it writes what it is made of. */
class NeedsLargerPlace extends Error {
  readonly size: VersionSize;

  constructor(size: VersionSize) {
    super(`a ${size} version in the place of a smaller one`);
    this.size = size;
  }
}
/** A version that is not small may wait for this long. Then it is refused with 503. */
export const LARGE_WAIT_MS = 30_000;
/** After it, its assistant rests for as long as it took, at most so long. */
const LARGE_REST_MOST_MS = 5_000;
const ofAssistant = createSlots(({ own }) => own === 0);

type Place = { assistantId: string; size: VersionSize; signal?: AbortSignal | undefined };
type InPlace = <Value>(write: () => Promise<Value>) => Promise<Value>;

/**
 * What `work` writes with `inPlace` has a place of this size. Of an assistant's works that are not small, one goes on.
 * Throws 503 if there was no place in time, or the caller has left.
 */
export const withPlace = async <Result>(
  { assistantId, size, signal }: Place,
  work: (inPlace: InPlace) => Promise<Result>,
): Promise<Result> => {
  const turn = size === 'small' ? { signal } : { signal, waitMs: LARGE_WAIT_MS };
  const take = (slots: Acquiring) =>
    acquireInTime(slots, assistantId, turn).catch((): never => {
      throw unavailable();
    });
  const own = size === 'small' ? null : await take(ofAssistant);
  let tookMs = 0;
  try {
    return await work(async (write) => {
      const slot = await take(making[size]);
      const since = performance.now();
      try {
        return await making[size].watch(assistantId, write());
      } finally {
        slot.release();
        tookMs += performance.now() - since;
      }
    });
  } finally {
    if (own) setTimeout(own.release, restAsLong(tookMs, LARGE_REST_MOST_MS)).unref();
  }
};

const NO_AUTHOR: EditAuthor = { operatorId: null, name: null };

/** `seen`: the revision of the draft that the author has seen. A later change by somebody else is not overwritten. */
export type EditOptions = { by?: EditAuthor | undefined; seen?: number | undefined };

const isNewer = (edit: Edit, { by = NO_AUTHOR, seen }: EditOptions): boolean =>
  seen !== undefined && edit.revision > seen && edit.by.operatorId !== by.operatorId;

const changedByOthers = (field: string): ApiError => {
  const detail = { field, code: 'changed', message: 'was changed by somebody else in the draft' };
  return conflict('Somebody else has changed this in the draft meanwhile. Read it again.', detail);
};

type Dependencies = Pick<ReturnType<typeof assistantModels>, 'assistants' | 'knowledge'> & {
  connection: Connection;
  versions: VersionStore;
  sources: VersionedSources;
  vault: Vault;
  memory: SharedMemory;
};

/**
 * The drafts of assistants with the setting `drafts` (docs/design.md, Drafts and versions). A draft holds what differs
 * from the live version. Each change is one transaction that also changes the assistant's document, so changes,
 * publishing and the setting follow one another.
 */
export type Drafts = Omit<DraftReads, 'countsOf'> & {
  models: Indexed[];

  /**
   * Switches drafts on and makes a version of what is live, or switches them off. Throws if this would lose a draft.
   */
  setDrafts: (assistantId: string, isOn: boolean, options: EditOptions) => Promise<void>;

  setSettings: (
    assistantId: string,
    change: (before: DraftedSettings) => Partial<DraftedSettings>,
    options: EditOptions,
  ) => Promise<void>;

  addEntries: (
    assistantId: string,
    entries: KnowledgeInput[],
    options: EditOptions & AddOptions,
  ) => Promise<KnowledgeEntry[]>;
  updateEntry: (assistantId: string, entryId: string, entry: KnowledgeInput, options: EditOptions) => Promise<void>;
  removeEntries: (assistantId: string, entryIds: string[], options: EditOptions) => Promise<void>;

  /**
   * Changes what the draft does with a source. `write` gets what it did before and makes the changes of the source, in
   * the same transaction. It returns the name of the source and what the draft does with it now, or null for nothing.
   */
  changeSource: (
    assistantId: string,
    sourceId: string,
    write: (session: ClientSession, before: DraftedSourceKind | null) => Promise<DraftedSource | null>,
    options: EditOptions,
  ) => Promise<void>;

  discard: (assistantId: string, options: EditOptions) => Promise<void>;

  /** Makes the draft live as the next version, wholly or not at all. */
  publish: (
    assistantId: string,
    options: EditOptions & { name: string | null; note: string | null; result?: VersionResult | null },
  ) => Promise<AssistantVersion>;

  /**
   * Makes an earlier version live again, as the next version. The draft's changes are kept. `live`: the version that
   * the author has seen live.
   */
  rollBack: (
    assistantId: string,
    to: number,
    options: Pick<EditOptions, 'by'> & { live?: number | undefined; note: string | null },
  ) => Promise<AssistantVersion>;

  /** Seals the secrets of the assistant, its draft and its versions again. */
  resealSecrets: (assistantId: string, options: { dryRun: boolean }) => Promise<SecretsFound>;
};

type Transaction = {
  session: ClientSession;
  assistant: StoredAssistant;
  draft: StoredDraft | null;
  /** The revision, author and time that this change writes to each part that it changes. */
  edit: Edit;
};
/** `requirePlace`: throws if the version has a place for smaller ones only. */
type Making = Transaction & { requirePlace: (needed: VersionSize) => void };
type Write<Result> = (making: Making) => Promise<Result>;
type Placed = { assistantId: string; by: EditAuthor; size: VersionSize };
type DraftChange = {
  settings?: SettingsEdits;
  source?: { sourceId: string; drafted: DraftedSource | null };
  isReplaced?: true;
  bytes?: number;
};
type DraftedSource = Pick<SourceEdits[string], 'kind' | 'name'>;

const requireSpace = (draft: StoredDraft | null, bytes: number): void => {
  if ((draft?.bytes ?? 0) + bytes > DRAFT_MAX_BYTES && bytes > 0)
    throw invalid('knowledge', 'too_large', 'would make the draft too large: publish it first');
};

export const createDrafts = (dependencies: Dependencies): Drafts => {
  const { connection, versions, sources, vault } = dependencies;
  const models = draftModels(connection);
  const { countsOf, ...reads } = createDraftReads(connection, { ...dependencies, ...models });
  const drafts = collectionOf<StoredDraft>(models.drafts);
  const edits = collectionOf<StoredEdit>(models.edits);
  const assistants = collectionOf(dependencies.assistants);
  const knowledge = collectionOf(dependencies.knowledge);

  /** Begins a change of an assistant's draft. Other changes of the same assistant's draft wait. */
  const begin = async (session: ClientSession, assistantId: string, by: EditAuthor): Promise<Transaction> => {
    const update = { $inc: { draftRevision: 1 } };
    const filter = { _id: assistantId, drafts: true };
    const assistant = await assistants.findOneAndUpdate(filter, update, { session, returnDocument: 'after' });
    if (!assistant) {
      if (!(await assistants.findOne({ _id: assistantId }, { session, projection: { _id: 1 } }))) throw notFound();
      throw conflict('This assistant has no drafts: its setting `drafts` is off.');
    }
    const draft = await drafts.findOne({ _id: assistantId }, { session });
    return { session, assistant, draft, edit: { revision: assistant.draftRevision ?? 0, by, at: serverDate() } };
  };

  const store = async (
    { session, assistant, draft, edit }: Transaction,
    { settings = {}, source, isReplaced, bytes = 0 }: DraftChange,
  ): Promise<void> => {
    requireSpace(draft, bytes);
    const set: Record<string, unknown> = Object.fromEntries(
      Object.entries(settings).map(([name, value]) => [`settings.${name}`, value]),
    );
    const place = `sources.${source?.sourceId}`;
    if (source?.drafted) set[place] = { ...source.drafted, ...edit };
    const unset = source && !source.drafted ? { $unset: { [place]: '' as const } } : {};
    const begun = {
      begunBy: edit.by,
      begunAt: edit.at,
      ...(Object.keys(settings).length === 0 && { settings: {} }),
      ...(!isReplaced && { isReplaced: false }),
    };
    const $set = { ...edit, ...set, ...(isReplaced && { isReplaced }) };
    const update = { $set, ...unset, $inc: { bytes }, $setOnInsert: begun };
    await drafts.updateOne({ _id: assistant._id }, update, { upsert: true, session });
  };

  const change = (
    assistantId: string,
    { by = NO_AUTHOR }: EditOptions,
    write: (transaction: Transaction) => Promise<DraftChange>,
  ): Promise<void> =>
    inTurn(connection, async (session) => {
      const transaction = await begin(session, assistantId, by);
      await store(transaction, await write(transaction));
    });

  const remove = async (session: ClientSession, assistantId: string): Promise<void> => {
    await drafts.deleteOne({ _id: assistantId }, { session });
    await edits.deleteMany({ assistantId }, { session });
  };

  const writeOnce = async <Result>({ assistantId, by, size }: Placed, write: Write<Result>): Promise<Result> => {
    const requirePlace = (needed: VersionSize): void => {
      if (SIZES.indexOf(needed) > SIZES.indexOf(size)) throw new NeedsLargerPlace(needed);
    };
    let made: Result | undefined;
    await withPlace({ assistantId, size }, (inPlace) =>
      inTurn(connection, async (session) => {
        made = await inPlace(async () => write({ ...(await begin(session, assistantId, by)), requirePlace }));
      }),
    );
    return made as Result; // set by the transaction, or it has thrown
  };

  /**
   * Writes in a place of its size. What is live and the draft may change while it waits, so `size` says only where it waits
   * first. If it is larger in its transaction, it waits again, for a place of that size.
   */
  const inPlace = <Result>(placed: Placed, write: Write<Result>): Promise<Result> =>
    writeOnce(placed, write).catch((cause: unknown) => {
      if (cause instanceof NeedsLargerPlace) return inPlace({ ...placed, size: cause.size }, write);
      throw cause;
    });

  const makeVersion = async (placed: Placed, write: Write<VersionMade>): Promise<AssistantVersion> => {
    const { version, ...rest } = await inPlace(placed, write);
    await versions.finish(placed.assistantId, rest);
    return version;
  };

  /** For a change that deletes what the draft has: MongoDB holds all of it in its cache until the transaction ends. */
  const changeInPlace = async (assistantId: string, { by = NO_AUTHOR }: EditOptions, write: Write<void>) => {
    const before = await drafts.findOne({ _id: assistantId }, { projection: { bytes: 1 } });
    await inPlace({ assistantId, by, size: sizeOfBytes(before?.bytes) }, async (transaction) => {
      transaction.requirePlace(sizeOfBytes(transaction.draft?.bytes));
      await write(transaction);
    });
  };

  /** `bytes`: of the draft, or of what it changes and removes of what is live, whichever are more. */
  const sizeOfDraft = async (
    { _id: assistantId, bytes, isReplaced }: Pick<StoredDraft, '_id' | 'bytes' | 'isReplaced'>,
    session?: ClientSession,
  ): Promise<VersionSize> => {
    if (!isReplaced || bytes > MIDDLE_BYTES) return sizeOfBytes(bytes);
    return sizeOfVersion(false, await versions.exceed({ assistantId }, MIDDLE_BYTES, session));
  };

  const sizeOfRollBack = async (assistantId: string, to: number, session?: ClientSession): Promise<VersionSize> => {
    const undone = (await versions.list(assistantId, session)).filter(({ version }) => version > to);
    const changed = undone.reduce((sum, { changes: { sources = { added: 0, removed: 0 }, ...entries } }) => {
      return sum + entries.added + entries.changed + entries.removed + sources.added + sources.removed;
    }, 0);
    const isSmall = changed <= SMALL_ENTRIES && undone.every(({ changes }) => !changes.isReplaced);
    // Twenty entries may have two megabytes.
    return sizeOfVersion(isSmall, await versions.exceed({ assistantId, to }, MIDDLE_BYTES, session));
  };

  /** The entry as the draft has it. Null if there is none. */
  const findEntry = async (
    { session, assistant, draft }: Transaction,
    entryId: string,
  ): Promise<(Pick<StoredEdit, 'position' | 'question' | 'replaced'> & { row: StoredEdit | null }) | null> => {
    const assistantId = assistant._id;
    const row = await edits.findOne({ _id: entryId, assistantId }, { session });
    if (row) return row.kind === 'removed' ? null : { ...row, row };
    if (draft?.isReplaced) return null;
    const live = await knowledge.findOne({ ...liveEntries(assistant), _id: entryId }, { session });
    return live && { row: null, position: live.position, question: live.question, replaced: bytesOfEntry(live) };
  };

  /** How many entries the draft would publish. */
  const countEntries = async ({ session, assistant, draft }: Transaction): Promise<number> => {
    const assistantId = assistant._id;
    const count = (kind: EntryEditKind) => edits.countDocuments({ assistantId, kind }, { session });
    const added = await count('added');
    if (draft?.isReplaced) return added;
    const live = await knowledge.countDocuments(liveEntries(assistant), { session });
    return live + added - (await count('removed'));
  };

  /**
   * Throws if publishing the draft would make too many entries, or replace too much. A roll back since the draft was begun
   * may have brought back entries, and one that the draft changes is added if it is no longer live. Returns the bytes of
   * the live entries that the draft changes or removes.
   */
  const requireRoom = async ({ session, assistant }: Transaction, counts: DraftCounts): Promise<number> => {
    if (counts.isReplaced) return 0; // `addEntries` has counted them
    const live = liveEntries(assistant);
    let count = counts.added + (await knowledge.countDocuments(live, { session }));
    let bytes = 0;
    const ofLive = { assistantId: assistant._id, kind: { $in: ['changed', 'removed'] satisfies EntryEditKind[] } };
    const projection = { size: { $bsonSize: '$$ROOT' } };
    for await (const page of inPages(edits.find(ofLive, { session, projection: { kind: 1 } }), WRITE_BATCH)) {
      count += page.filter(({ kind }) => kind === 'changed').length;
      const filter = { ...live, _id: { $in: page.map(({ _id }) => _id) } };
      for await (const { size } of knowledge.find<{ size: number }>(filter, { session, projection })) {
        count -= 1;
        bytes += size;
      }
      if (bytes > REPLACED_MAX_BYTES)
        throw conflict('The draft changes or removes too much of what is live. Discard it and change less at once.');
    }
    if (count > MAX_KNOWLEDGE)
      throw conflict(
        `There would be more than ${MAX_KNOWLEDGE.toLocaleString('en')} entries. Remove some in the draft.`,
      );
    return bytes;
  };

  /** The changes of entries that publishing the draft would make, in the order of the entries. */
  async function* changesOf({ session, assistant }: Transaction): AsyncGenerator<LiveChange[], undefined> {
    const rows = edits.find({ assistantId: assistant._id }, { session, batchSize: LIST_BATCH }).sort({ position: 1 });
    for await (const page of inPages(rows)) {
      yield page.map(({ _id: entryId, kind, position, entry }) => {
        return { entryId, position: kind === 'added' ? null : position, entry };
      });
    }
  }

  return {
    ...reads,
    models: [models.drafts, models.edits],

    setDrafts: async (assistantId, isOn, { by = NO_AUTHOR }) => {
      let ended: Parameters<VersionStore['finish']>[1] | undefined;
      await inTurn(connection, async (session) => {
        if (!isOn) {
          const isOff = { _id: assistantId, drafts: { $ne: true } };
          if (await assistants.findOne(isOff, { session, projection: { _id: 1 } })) return;
          const { draft, assistant } = await begin(session, assistantId, by);
          const { publishedVersion: oldest = 0, knowledgePlaces: { from = 0 } = {} } = assistant;
          ended = { removed: [], oldest, from };
          if (draft) throw conflict('Publish or discard the draft before you switch drafts off.');
          await sources.release(session, assistantId);
          await assistants.updateOne(
            { _id: assistantId },
            { $set: { drafts: false }, $inc: { version: 1 } },
            { session },
          );
          return;
        }
        const update = { $set: { drafts: true }, $inc: { version: 1, publishedVersion: 1 } };
        const filter = { _id: assistantId, drafts: { $ne: true } };
        const now = await assistants.findOneAndUpdate(filter, update, { session, returnDocument: 'after' });
        if (!now) return;
        const words = { name: 'Drafts switched on', note: null, by, at: serverDate() };
        await versions.begin({ session, assistant: now }, words);
      });
      // Without drafts, changes are live at once and make no version, so no earlier version can come back.
      if (ended) await versions.finish(assistantId, ended);
    },

    setSettings: (assistantId, changeOf, options) =>
      change(assistantId, options, async ({ assistant, draft, edit }) => {
        const before = withEdits(draftedSettingsOf(toAssistant(assistant)), draft);
        const given = Object.entries(changeOf(before)) as [DraftedField, never][];
        for (const [field] of given) {
          const edited = draft?.settings[field];
          if (edited && isNewer(edited, options)) throw changedByOthers(field);
        }
        return { settings: Object.fromEntries(given.map(([field, value]) => [field, { ...edit, value }])) };
      }),

    addEntries: async (assistantId, entries, { replace, alongside, ...options }) => {
      const added = entries.map((entry) => ({ entryId: newId(), ...entry }));
      const add = async (transaction: Transaction): Promise<DraftChange> => {
        const { session, draft, edit } = transaction;
        await alongside?.(session, added);
        if (replace) await edits.deleteMany({ assistantId }, { session });
        else if ((await countEntries(transaction)) + entries.length > MAX_KNOWLEDGE)
          throw invalid('knowledge', 'too_many', `would have more than ${MAX_KNOWLEDGE.toLocaleString('en')} entries`);
        const first = ADDED_FROM + edit.revision * MAX_KNOWLEDGE;
        const rows = added.map(({ entryId, ...entry }, nth): StoredEdit => {
          const { question } = entry;
          return { _id: entryId, assistantId, position: first + nth, kind: 'added', question, entry, ...edit };
        });
        let bytes = replace ? -(draft?.bytes ?? 0) : 0;
        const slices = createSlices();
        for (const entry of entries) {
          bytes += bytesOfEntry(entry);
          if (slices.isOver()) await slices.next();
        }
        requireSpace(draft, bytes);
        for (const some of inChunks(rows, WRITE_BATCH)) {
          await edits.insertMany(some, { session });
          if (slices.isOver()) await slices.next();
        }
        return { bytes, ...(replace && { isReplaced: true }) };
      };
      if (replace) await changeInPlace(assistantId, options, async (one) => store(one, await add(one)));
      else await change(assistantId, options, add);
      return added;
    },

    updateEntry: (assistantId, entryId, entry, options) =>
      change(assistantId, options, async (transaction) => {
        const found = await findEntry(transaction, entryId);
        if (!found) throw notFound();
        const { row, position, replaced = 0 } = found;
        if (row && isNewer(row, options)) throw changedByOthers('entryId');
        const kind = row?.kind ?? 'changed';
        const { question } = entry;
        const { session, edit } = transaction;
        const edited = { assistantId, position, kind, question, entry, replaced, ...edit };
        await edits.replaceOne({ _id: entryId }, edited, { upsert: true, session });
        return { bytes: bytesOfEdit(edited) - (row ? bytesOfEdit(row) : 0) };
      }),

    removeEntries: (assistantId, entryIds, options) =>
      change(assistantId, options, async (transaction) => {
        const { session, edit } = transaction;
        let bytes = 0;
        for (const entryId of entryIds) {
          const found = await findEntry(transaction, entryId);
          if (!found) throw notFound();
          const { row, position, question, replaced = 0 } = found;
          if (row && isNewer(row, options)) throw changedByOthers('entryId');
          if (row) bytes -= bytesOfEdit(row);
          if (row?.kind === 'added') await edits.deleteOne({ _id: entryId }, { session });
          else {
            const kind = 'removed' as const;
            const removed = { assistantId, position, kind, question, entry: null, replaced, ...edit };
            await edits.replaceOne({ _id: entryId }, removed, { upsert: true, session });
            bytes += bytesOfEdit(removed);
          }
        }
        return { bytes };
      }),

    changeSource: (assistantId, sourceId, write, options) =>
      change(assistantId, options, async ({ session, draft }) => {
        const before = draft?.sources?.[sourceId];
        if (before && isNewer(before, options)) throw changedByOthers('sourceId');
        return { source: { sourceId, drafted: await write(session, before?.kind ?? null) } };
      }),

    discard: (assistantId, options) =>
      changeInPlace(assistantId, options, async ({ session, draft }) => {
        if (!draft) throw notFound();
        if (options.seen !== undefined && draft.revision !== options.seen) throw changedByOthers('revision');
        await sources.discard(session, assistantId, sourcesOf(draft, 'added'));
        await remove(session, assistantId);
      }),

    publish: async (assistantId, { by = NO_AUTHOR, seen, name, note, result = null }) => {
      const before = await drafts.findOne({ _id: assistantId }, { projection: { bytes: 1, isReplaced: 1 } });
      const size = before ? await sizeOfDraft(before) : 'small';
      return makeVersion({ assistantId, by, size }, async (transaction) => {
        const { session, draft, edit, requirePlace } = transaction;
        if (!draft) throw conflict('There is no draft to publish.');
        if (seen !== undefined && draft.revision !== seen) throw changedByOthers('revision');
        const counts = await countsOf(assistantId, draft.isReplaced, session);
        const replaced = await requireRoom(transaction, counts);
        requirePlace(await sizeOfDraft({ ...draft, bytes: Math.max(draft.bytes, replaced) }, session));
        const values = Object.entries(draft.settings).map(([field, { value }]) => [field, value]);
        const made = await versions.publish(transaction, {
          settings: Object.fromEntries(values) as Partial<DraftedSettings>,
          counts,
          sources: { added: sourcesOf(draft, 'added'), removed: sourcesOf(draft, 'removed') },
          changes: changesOf(transaction),
          name,
          note,
          by,
          at: edit.at,
          result,
        });
        await remove(session, assistantId);
        return made;
      });
    },

    rollBack: async (assistantId, to, { by = NO_AUTHOR, live, note }) => {
      /** Throws if the author has seen another version live, or if the wanted one is live. */
      const requireOther = (now: number | undefined): void => {
        if (live !== undefined && now !== live) {
          const detail = { field: 'live', code: 'changed', message: `is not ${now}, which is live by now` };
          throw conflict('Another version is live by now. Read the versions again.', detail);
        }
        if (now === to) throw conflict(`Version ${to} is live.`);
      };
      const filter = { _id: assistantId, drafts: true };
      const before = await assistants.findOne(filter, { projection: { publishedVersion: 1 } });
      if (before) requireOther(before.publishedVersion);
      const size = await sizeOfRollBack(assistantId, to);
      return makeVersion({ assistantId, by, size }, async (transaction) => {
        const { session, assistant, edit, requirePlace } = transaction;
        requireOther(assistant.publishedVersion);
        requirePlace(await sizeOfRollBack(assistantId, to, session));
        // The draft gets a new revision, because it would now be published on top of other entries.
        await drafts.updateOne({ _id: assistantId }, { $set: { revision: edit.revision } }, { session });
        const words = note === null ? `Back to version ${to}.` : `Back to version ${to}. ${note}`;
        return versions.rollBack(transaction, to, { name: null, note: words, by, at: edit.at });
      });
    },

    resealSecrets: async (assistantId, options) => {
      let resealing = createResealing(vault, options);
      await inTurn(connection, async (session) => {
        resealing = createResealing(vault, options);
        const assistant = await assistants.findOne({ _id: assistantId }, { session });
        if (!assistant) return;
        const { engine, web } = assistant;
        const ownPlaces = [
          ...secretsOfEngine(engine, { path: 'engine', assistantId }),
          ...secretsOfWeb(web, assistantId),
        ];
        const own = resealing.reseal(ownPlaces, `assistant ${assistantId}`);
        const draft = await drafts.findOne({ _id: assistantId }, { session, projection: { 'settings.engine': 1 } });
        const drafted = secretsOfEngine(draft?.settings.engine?.value, { path: 'settings.engine.value', assistantId });
        const ofDraft = resealing.reseal(drafted, `draft of assistant ${assistantId}`);
        if (Object.keys(ofDraft).length > 0)
          await drafts.updateOne({ _id: assistantId }, { $set: ofDraft }, { session });
        await versions.resealKeys({ session, assistant }, resealing);
        if (resealing.found.resealed === 0) return;
        // A version that is made meanwhile would copy the old sealed texts. Making it and this write both change the
        // assistant, so one of the two waits.
        const update = Object.keys(own).length > 0 ? { $set: own } : { $inc: { version: 1 } };
        await assistants.updateOne({ _id: assistantId }, update, { session });
      });
      return resealing.found;
    },
  };
};
