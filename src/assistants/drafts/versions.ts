import { isDeepStrictEqual } from 'node:util';
import type { ClientSession, Connection, mongo } from 'mongoose';
import { DELETED_WITHIN_MS, deleteInBatches, inPages } from '../../platform/mongo/batches.ts';
import { collectionOf, type Indexed, schemaOf } from '../../platform/mongo/mongo.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import { conflict, notFound } from '../../platform/process/errors.ts';
import { newId } from '../../platform/process/ids.ts';
import type { Resealing } from '../../platform/process/vault.ts';
import {
  type assistantModels,
  DRAFTED_FIELDS,
  type DraftedField,
  type DraftedSettings,
  draftedSettingsOf,
  type KnowledgePositions,
  type StoredAssistant,
  type StoredKnowledge,
  toAssistant,
  visibleEntries,
} from '../assistant.ts';
import { type EngineSettings, secretsOfEngine } from '../settings.ts';
import { bytesOfEntry, type KnowledgeInput } from '../knowledge/entry.ts';
import { LIST_BATCH } from '../knowledge/store.ts';

/** How many versions of an assistant are kept and listed. */
export const VERSIONS_MAX = 50;
/**
 * The maximum bytes of the entries that one version replaces, and of the entries that a roll back brings back. MongoDB
 * holds them in its cache until the transaction ends.
 */
export const REPLACED_MAX_BYTES = 32_000_000;
/** The maximum memory of all replaced entries of an assistant. */
const PAST_MAX_BYTES = 128_000_000;
/** The maximum that one command writes, in entries and in bytes. */
const WRITE_BATCH = 200;
const WRITE_BYTES = 500_000;

/** Who changed something: an operator or a token. Both are null for the service itself. */
export type EditAuthor = { operatorId: string | null; name: string | null };

export type DraftCounts = { added: number; changed: number; removed: number; isReplaced: boolean };

/** What the last comparison of the draft found, or since then the last evaluation of the version by a question set. */
export type VersionResult = {
  evaluationId: string;
  /** The name of the question set. Null: questions of visitors. */
  set: string | null;
  counts: Record<string, number>;
  judged: Record<string, number>;
};

type VersionWords = { name: string | null; note: string | null; by: EditAuthor; at: Date };
export type SourcesChanged = { added: number; removed: number };

type StoredVersion = VersionWords & {
  /** Sorts by assistant and version. */
  _id: string;
  assistantId: string;
  version: number;
  /** `sources` is absent in versions of a time when drafts had none. */
  changes: DraftCounts & { settings: DraftedField[]; sources?: SourcesChanged };
  result?: VersionResult | null;
  settings: DraftedSettings;
  /**
   * The memory of the entries that this version replaced, and what its removed sources count as. Null: the entries are
   * not kept, so no earlier version can come back.
   */
  pastBytes: number | null;
};

/** `canRollBack`: a roll back may make this version live again. */
export type AssistantVersion = Omit<StoredVersion, '_id' | 'assistantId' | 'settings' | 'pastBytes'> & {
  canRollBack: boolean;
};

/** An entry as it was in all versions with `since ≤ version < until`. It is never changed. */
type PastEntry = {
  _id: string;
  assistantId: string;
  entryId: string;
  position: number;
  since: number;
  until: number;
  entry: KnowledgeInput;
};

/**
 * A change of a live entry. `position` is null for an entry that comes after all others. `entry` is null for an entry
 * that is removed.
 */
export type LiveChange = { entryId: string; position: number | null; entry: KnowledgeInput | null };

/**
 * The transaction that makes a version. It has changed the assistant's document, so versions are made one after the
 * other.
 */
type VersionWrite = { session: ClientSession; assistant: StoredAssistant };

type AtVersion = { assistantId: string; version: number };

/**
 * The sources of versions. `src/sources` stores them, each with the versions that answer from it, and writes in the
 * transaction that makes a version.
 */
export type VersionedSources = {
  /** Makes drafted sources live, and hides removed ones, from this version on. */
  publish: (session: ClientSession, at: AtVersion & { added: string[]; removed: string[] }) => Promise<SourcesMade>;
  /** Makes those live that version `to` had, and hides the other ones. Those of the draft stay there. */
  rollBack: (session: ClientSession, at: AtVersion & { to: number }) => Promise<SourcesMade>;
  /** Removes sources that only the draft has. */
  discard: (session: ClientSession, assistantId: string, sourceIds: string[]) => Promise<void>;
  /** Removes hidden sources that no version from `oldest` on has. */
  forget: (assistantId: string, oldest: number) => Promise<void>;
  /** Drafts are off: removes all hidden sources. The others answer without versions. */
  release: (session: ClientSession, assistantId: string) => Promise<void>;
};
/** How many passages the live version has, and their main language. */
type PassagesMade = { count: number; language: string | null };
/** `bytes`: what the hidden sources count as. */
type SourcesMade = { counts: SourcesChanged; bytes: number; passages: PassagesMade };

/**
 * What is left to do once the version is stored. `oldest`: the oldest version that a roll back may make live. `from`: the
 * entries before this position are hidden.
 */
export type VersionMade = { version: AssistantVersion; removed: string[]; oldest: number; from: number };

const versionSchema = schemaOf<StoredVersion>('versions');
const pastSchema = schemaOf<PastEntry>('pastEntries');
// With the ids, so that those that no version needs are found without reading them.
pastSchema.index({ assistantId: 1, until: 1, since: 1, _id: 1 });

const versionIdOf = (assistantId: string, version: number): string =>
  `${assistantId}:${String(version).padStart(9, '0')}`;
const versionsOf = (assistantId: string) => ({ $gte: versionIdOf(assistantId, 0), $lt: `${assistantId};` });

/** The oldest version whose entries are all kept. `newest`: the versions, the newest first. */
const findOldest = (newest: Pick<StoredVersion, 'version' | 'pastBytes'>[]): number => {
  let oldest = 0;
  let bytes = 0;
  for (const { version, pastBytes } of newest) {
    oldest = version;
    bytes += pastBytes ?? Number.POSITIVE_INFINITY;
    if (bytes > PAST_MAX_BYTES) break;
  }
  return oldest;
};

/**
 * The engine of an earlier version with the present key of its provider: a key that was changed or removed since does
 * not come back.
 */
const withKeyOfNow = (engine: EngineSettings, now: EngineSettings): EngineSettings =>
  engine.kind === 'openai' && now.kind === 'openai' && engine.baseUrl === now.baseUrl
    ? { ...engine, apiKeySealed: now.apiKeySealed }
    : engine;

const NO_SOURCES = { counts: { added: 0, removed: 0 }, bytes: 0, passages: null };

const settingsNow = (assistant: StoredAssistant): DraftedSettings => draftedSettingsOf(toAssistant(assistant));

type Dependencies = Pick<ReturnType<typeof assistantModels>, 'assistants' | 'knowledge'> & {
  connection: Connection;
  sources: VersionedSources;
  /** Marks the vectors of removed entries as not live. */
  retireVectors: (entryIds: string[]) => Promise<void>;
  onPublished: (assistantId: string) => Promise<void>;
};

/** `places`: those that the version changes. */
type Placed = { places?: Pick<KnowledgePositions, 'last' | 'from'>; passages: PassagesMade | null };

type Publishing = VersionWords & {
  settings: Partial<DraftedSettings>;
  counts: DraftCounts;
  sources: { added: string[]; removed: string[] };
  changes: AsyncIterable<LiveChange[]>;
  result: VersionResult | null;
};

/**
 * The versions of assistants with drafts (docs/design.md, Drafts and versions). A version that replaces or removes an
 * entry keeps it as a past entry, so a version costs what it changes. Live entries name the version that wrote them.
 */
export type VersionStore = {
  models: Indexed[];

  /** The newest first. */
  list: (assistantId: string, session?: ClientSession) => Promise<AssistantVersion[]>;

  /** Makes a version of what is live. No earlier version can come back. */
  begin: (write: VersionWrite, words: VersionWords) => Promise<void>;

  /** True if the live entries have more bytes, or those that a roll back to `to` removes or brings back. */
  exceed: (at: { assistantId: string; to?: number }, most: number, session?: ClientSession) => Promise<boolean>;

  /** Makes the changes live. They may replace all entries. */
  publish: (write: VersionWrite, publishing: Publishing) => Promise<VersionMade>;

  /** Makes the entries and the settings of an earlier version, which is not live, live again, as a new version. */
  rollBack: (write: VersionWrite, to: number, words: VersionWords) => Promise<VersionMade>;

  /** Keeps what an evaluation found, all of whose questions were answered by this version. */
  keepResult: (at: AtVersion, result: VersionResult) => Promise<void>;

  /** Seals the provider keys of all versions again, in the transaction of `drafts.ts`. */
  resealKeys: (write: VersionWrite, resealing: Resealing) => Promise<void>;

  /**
   * Called after the transaction. Much that no version needs is deleted after the answer. If a kill prevents it, the next
   * version does what was left undone.
   */
  finish: (assistantId: string, made: Omit<VersionMade, 'version'>) => Promise<void>;
};

export const createVersions = (dependencies: Dependencies): VersionStore => {
  const { connection, sources, retireVectors, onPublished } = dependencies;
  const models = {
    versions: connection.model<StoredVersion>('Version', versionSchema),
    past: connection.model<PastEntry>('PastEntry', pastSchema),
  };
  const versions = collectionOf<StoredVersion>(models.versions);
  const past = collectionOf<PastEntry>(models.past);
  const assistants = collectionOf(dependencies.assistants);
  const knowledge = collectionOf(dependencies.knowledge);

  const readNewest = (assistantId: string, session?: ClientSession) =>
    versions
      .find({ _id: versionsOf(assistantId) }, { projection: { settings: 0 }, ...(session && { session }) })
      .sort({ _id: -1 })
      .limit(VERSIONS_MAX)
      .toArray();

  /** Sends writes of a transaction together. */
  const createWrites = <Row extends { _id: string }>(collection: mongo.Collection<Row>, session: ClientSession) => {
    let writes: mongo.AnyBulkWriteOperation<Row>[] = [];
    let bytes = 0;
    const flush = async (): Promise<void> => {
      if (writes.length > 0) await collection.bulkWrite(writes, { session });
      writes = [];
      bytes = 0;
    };
    const add = async (write: mongo.AnyBulkWriteOperation<Row>, size: number): Promise<void> => {
      writes.push(write);
      bytes += size;
      if (writes.length === WRITE_BATCH || bytes > WRITE_BYTES) await flush();
    };
    return { add, flush };
  };

  /** Keeps the entries that a version replaces. If they exceed `REPLACED_MAX_BYTES`, they count as not kept. */
  const createKeeper = (session: ClientSession, until: number) => {
    const writes = createWrites(past, session);
    let bytes = 0;
    return {
      keep: async ({ _id: entryId, assistantId, position, since = 0, ...entry }: StoredKnowledge): Promise<void> => {
        const size = bytesOfEntry(entry);
        bytes += size;
        const document = { _id: newId(), assistantId, entryId, position, since, until, entry };
        if (bytes <= REPLACED_MAX_BYTES) await writes.add({ insertOne: { document } }, size);
      },
      end: async (more: number): Promise<number | null> => {
        await writes.flush();
        return bytes <= REPLACED_MAX_BYTES ? bytes + more : null;
      },
    };
  };

  const entriesOf = (filter: mongo.Filter<StoredKnowledge>, session: ClientSession) =>
    inPages(knowledge.find(filter, { session, batchSize: LIST_BATCH }));

  /** True if these rows have more bytes than `most`. Not many more are read. */
  const areOver = async <Row extends { _id: string }>(
    collection: mongo.Collection<Row>,
    filter: mongo.Filter<Row>,
    { most, session }: { most: number; session?: ClientSession | undefined },
  ): Promise<boolean> => {
    const projection = { _id: 0, size: { $bsonSize: '$$ROOT' } };
    const options = { projection, batchSize: LIST_BATCH, ...(session && { session }) };
    let bytes = 0;
    for await (const { size } of collection.find<{ size: number }>(filter, options)) {
      bytes += size;
      if (bytes > most) return true;
    }
    return false;
  };

  /** The live entries that are newer than version `to`, and the past ones that it had. */
  const differingFrom = (assistantId: string, to: number, from = 0) => ({
    newer: { assistantId, since: { $gt: to } },
    // Entries before `from` were replaced by an import that ended after drafts had been switched on.
    older: { assistantId, until: { $gt: to }, since: { $lte: to }, position: { $gte: from } },
  });

  /** Deletes what no version needs any more. `from`: the live entries before this position are hidden. */
  const removeUnneeded = async (assistantId: string, oldest: number, from: number): Promise<void> => {
    const holder = assistantId;
    const unneeded = { assistantId, until: { $lte: oldest } };
    await deleteInBatches({ collection: past, filter: unneeded, holder }).catch(() => undefined);
    const hidden = { assistantId, position: { $lt: from } };
    const ofLive = { collection: knowledge, filter: hidden, holder, onDeleted: retireVectors };
    await deleteInBatches(ofLive).catch(() => undefined);
    await sources.forget(assistantId, oldest).catch(() => undefined);
  };

  /** Stores the version. Returns the oldest version whose entries are all kept. */
  const add = async (
    { session, assistant }: VersionWrite,
    version: Omit<StoredVersion, '_id' | 'assistantId'>,
  ): Promise<number> => {
    const assistantId = assistant._id;
    await versions.insertOne({ _id: versionIdOf(assistantId, version.version), assistantId, ...version }, { session });
    const last = versionIdOf(assistantId, Math.max(0, version.version - VERSIONS_MAX + 1));
    await versions.deleteMany({ _id: { ...versionsOf(assistantId), $lt: last } }, { session });
    return findOldest(await readNewest(assistantId, session));
  };

  /** Writes the settings and the number of the version to the assistant, and stores the version. */
  const makeLive = async (
    write: VersionWrite,
    version: Omit<StoredVersion, '_id' | 'assistantId' | 'settings'>,
    { settings, places = {}, passages }: { settings: Partial<DraftedSettings> } & Placed,
  ): Promise<Omit<VersionMade, 'removed'>> => {
    const { session, assistant } = write;
    const { last, from } = places;
    const set = {
      ...settings,
      publishedVersion: version.version,
      'semantic.stale': true,
      ...(last !== undefined && { 'knowledgePlaces.last': last }),
      ...(from !== undefined && { 'knowledgePlaces.from': from }),
      ...(passages && { 'passages.count': passages.count, 'textLanguage.passages': passages.language }),
    } as Partial<StoredAssistant>;
    const inc = { version: 1, ...(passages && { 'passages.version': 1 }) };
    await assistants.updateOne({ _id: assistant._id }, { $set: set, $inc: inc }, { session });
    const oldest = await add(write, { ...version, settings: { ...settingsNow(assistant), ...settings } });
    const { pastBytes: _bytes, ...made } = version;
    return { version: { ...made, canRollBack: false }, oldest, from: from ?? assistant.knowledgePlaces?.from ?? 0 };
  };

  return {
    models: [models.versions, models.past],

    list: async (assistantId, session) => {
      const newest = await readNewest(assistantId, session);
      const oldest = findOldest(newest);
      return newest.map(({ _id, assistantId: _assistant, pastBytes: _bytes, ...version }, nth) => ({
        ...version,
        canRollBack: nth > 0 && version.version >= oldest,
      }));
    },

    begin: async (write, words) => {
      const counts = { added: 0, changed: 0, removed: 0, isReplaced: false };
      const changes = { ...counts, settings: [], sources: NO_SOURCES.counts };
      const { assistant } = write;
      const version = assistant.publishedVersion ?? 1;
      await add(write, { version, ...words, changes, settings: settingsNow(assistant), pastBytes: null });
    },

    exceed: async ({ assistantId, to }, most, session) => {
      const bound = { most, session };
      if (to === undefined) return areOver(knowledge, { assistantId }, bound);
      const { newer, older } = differingFrom(assistantId, to);
      return (await areOver(knowledge, newer, bound)) || areOver(past, older, bound);
    },

    publish: async (write, { settings, counts, sources: { added, removed: leaving }, changes, result, ...words }) => {
      const { session, assistant } = write;
      const { _id: assistantId, knowledgePlaces = {} } = assistant;
      const version = (assistant.publishedVersion ?? 0) + 1;
      const removed: string[] = [];
      const keeper = createKeeper(session, version);
      const writes = createWrites(knowledge, session);
      let last = knowledgePlaces.last ?? -1;
      if (last < 0) {
        const highest = await knowledge.find({ assistantId }, { session }).sort({ position: -1 }).limit(1).toArray();
        last = highest[0]?.position ?? 0;
      }
      const live = visibleEntries(assistantId, knowledgePlaces);
      // All entries together may have 880 MB. What is too much to be kept is hidden, and removed after the transaction.
      const isHidden = counts.isReplaced && (await areOver(knowledge, live, { most: REPLACED_MAX_BYTES, session }));
      const places = { last, ...(isHidden && { from: last + 1 }) };
      if (counts.isReplaced && !isHidden) {
        for await (const page of entriesOf(live, session)) {
          for (const row of page) {
            removed.push(row._id);
            await keeper.keep(row);
          }
        }
        await knowledge.deleteMany(live, { session });
      }
      for await (const page of changes) {
        const changed = new Map<string, StoredKnowledge>();
        const ids = page.flatMap(({ entryId, position }) => (position === null ? [] : entryId));
        for await (const rows of ids.length > 0 ? entriesOf({ _id: { $in: ids } }, session) : [])
          for (const row of rows) changed.set(row._id, row);
        for (const { entryId: _id, position, entry } of page) {
          const before = changed.get(_id);
          const size = bytesOfEntry(entry);
          if (before) await keeper.keep(before);
          if (!entry) {
            removed.push(_id);
            await writes.add({ deleteOne: { filter: { _id } } }, size);
          } else if (before) {
            await writes.add({ updateOne: { filter: { _id }, update: { $set: { ...entry, since: version } } } }, size);
          } else {
            // An entry that a roll back has removed meanwhile comes back at its old position.
            const document = { _id, assistantId, position: position ?? (places.last += 1), since: version, ...entry };
            await writes.add({ insertOne: { document } }, size);
          }
        }
      }
      await writes.flush();
      const fields = DRAFTED_FIELDS.filter((field) => field in settings);
      const ofSources =
        added.length + leaving.length > 0
          ? await sources.publish(session, { assistantId, version, added, removed: leaving })
          : NO_SOURCES;
      const made = { version, ...words, changes: { ...counts, settings: fields, sources: ofSources.counts }, result };
      const pastBytes = isHidden ? null : await keeper.end(ofSources.bytes);
      const { passages } = ofSources;
      return { removed, ...(await makeLive(write, { ...made, pastBytes }, { settings, places, passages })) };
    },

    rollBack: async (write, to, words) => {
      const { session, assistant } = write;
      const { _id: assistantId, publishedVersion: live = 0, knowledgePlaces } = assistant;
      const target = await versions.findOne({ _id: versionIdOf(assistantId, to) }, { session });
      if (!target) throw notFound();
      if (to < findOldest(await readNewest(assistantId, session)))
        throw conflict(`Not all entries of version ${to} are kept.`);
      const { newer, older } = differingFrom(assistantId, to, knowledgePlaces?.from);
      const bound = { most: REPLACED_MAX_BYTES, session };
      if ((await areOver(knowledge, newer, bound)) || (await areOver(past, older, bound)))
        throw conflict(
          `Version ${to} differs too much from what is live. Roll back to a later one, or remove entries in a draft first.`,
        );
      const version = live + 1;
      const keeper = createKeeper(session, version);
      const leaving = new Set<string>();
      for await (const page of entriesOf(newer, session)) {
        for (const row of page) {
          leaving.add(row._id);
          await keeper.keep(row);
        }
      }
      await knowledge.deleteMany(newer, { session });
      const writes = createWrites(knowledge, session);
      const counts = { added: 0, changed: 0, removed: 0, isReplaced: false };
      for await (const page of inPages(past.find(older, { session, batchSize: LIST_BATCH }))) {
        for (const { entryId: _id, position, entry } of page) {
          counts[leaving.delete(_id) ? 'changed' : 'added'] += 1;
          const document = { _id, assistantId, position, since: version, ...entry };
          await writes.add({ insertOne: { document } }, bytesOfEntry(entry));
        }
      }
      await writes.flush();
      const removed = [...leaving];
      const now = settingsNow(assistant);
      const settings = { ...target.settings, engine: withKeyOfNow(target.settings.engine, now.engine) };
      const changes = {
        ...counts,
        removed: removed.length,
        settings: DRAFTED_FIELDS.filter((field) => !isDeepStrictEqual(now[field], settings[field])),
      };
      const ofSources = await sources.rollBack(session, { assistantId, version, to });
      const { passages } = ofSources;
      const made = {
        version,
        ...words,
        changes: { ...changes, sources: ofSources.counts },
        result: null,
        pastBytes: await keeper.end(ofSources.bytes),
      };
      return { removed, ...(await makeLive(write, made, { settings, passages })) };
    },

    keepResult: async ({ assistantId, version }, result) => {
      await versions.updateOne({ _id: versionIdOf(assistantId, version) }, { $set: { result } });
    },

    resealKeys: async ({ session, assistant: { _id: assistantId } }, { reseal }) => {
      const options = { session, projection: { version: 1, 'settings.engine': 1 } };
      for await (const { _id, version, settings } of versions.find({ _id: versionsOf(assistantId) }, options)) {
        const places = secretsOfEngine(settings.engine, { path: 'settings.engine', assistantId });
        const fields = reseal(places, `version ${version} of assistant ${assistantId}`);
        if (Object.keys(fields).length > 0) await versions.updateOne({ _id }, { $set: fields }, { session });
      }
    },

    finish: async (assistantId, { removed, oldest, from }) => {
      // If this fails, these vectors are found and removed when the vectors of the new entries are made.
      await retireVectors(removed).catch(() => undefined);
      await onPublished(assistantId);
      await withDeadline(removeUnneeded(assistantId, oldest, from), DELETED_WITHIN_MS).catch(() => undefined);
    },
  };
};
