import mongoose, { type ClientSession, type Connection, type Model, type mongo } from 'mongoose';
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type BatchOptions, createBatcher, type ItemFailure } from '../process/batch.ts';
import { followServerClock } from '../process/clock.ts';
import { unavailable } from '../process/errors.ts';
import type { Logger } from '../process/logger.ts';
import { createLru } from '../process/lru.ts';
import { createSlices } from '../process/slices.ts';
import {
  createSlots,
  mapAtMost,
  oneEach,
  restAsLong,
  UNBOUNDED,
  whatRemains,
  withRests,
  workInSlot,
} from '../process/slots.ts';
import { hasLabel, isMongoUnavailable, OutcomeUnknown } from './failures.ts';
import { failOnEndedConnections } from './silence.ts';

/** The write concern of every write that decides something: a majority must have the write in its journal. */
export const DURABLE = { w: 'majority', j: true } as const;

const CONNECT_RETRY_MS = 200;
/**
 * A connection that waits for an answer and gets no data for this time is closed. The limit is short enough that an
 * accept can check afterwards whether its turn was stored. Longer work uses `timeLimit` or `inBatches`.
 */
const SILENT_AFTER_MS = 3_500;

/**
 * Opens a connection pool. Operations fail when no primary answers within 800 ms, so that a caller gets 503 within a
 * second. Heartbeats detect a silent server, and the socket timeout detects a silent connection. At the start, the
 * server must answer within `timeoutMs`. `aside`: the pool is the second one of its process. The clock follows only the
 * first pool. The second pool watches each server with one connection instead of two.
 */
export const openMongo = async (
  {
    url,
    timeoutMs = 10_000,
    maxPoolSize = 32,
    silentAfterMs = SILENT_AFTER_MS,
    aside = false,
  }: {
    url: string;
    timeoutMs?: number | undefined;
    maxPoolSize?: number;
    silentAfterMs?: number;
    aside?: boolean;
  },
  logger: Logger,
): Promise<Connection> => {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const connection = mongoose.createConnection(url, {
      bufferCommands: false,
      autoIndex: false,
      autoCreate: false,
      maxPoolSize,
      serverSelectionTimeoutMS: 800,
      connectTimeoutMS: 2000,
      socketTimeoutMS: silentAfterMs,
      heartbeatFrequencyMS: 2000,
      ...(aside && { serverMonitoringMode: 'poll' }),
      // Reads return only data that a majority has. Otherwise a failover could roll back data that was already sent to
      // a caller or that already allowed a send.
      readConcernLevel: 'majority',
      writeConcern: DURABLE,
      // Strings from MongoDB need no check: every stored string was written from a JavaScript string, so it is valid.
      enableUtf8Validation: false,
    });
    connection.on('error', (cause: unknown) => logger.warn({ err: cause }, 'mongodb connection failed'));
    try {
      await connection.asPromise();
      if (!aside) await followServerClock(connection);
      failOnEndedConnections(connection);
      const onDisconnected = () => logger.warn('mongodb is unavailable');
      connection
        .on('disconnected', onDisconnected)
        .once('disconnecting', () => connection.off('disconnected', onDisconnected)); // we closed it
      connection.on('reconnected', () => logger.info('mongodb is available again'));
      return connection;
    } catch (cause) {
      await connection.destroy().catch(() => undefined);
      if (Date.now() > deadline) throw cause;
      await sleep(CONNECT_RETRY_MS);
    }
  }
};

/**
 * Options for a read that may take longer than the socket timeout. The server ends a read that takes too long; the
 * connection is closed only if the server does not end it. The driver honours `socketTimeoutMS` here, although its
 * types do not list it.
 */
export const timeLimit = (ms: number): { maxTimeMS: number } => {
  const limits = { maxTimeMS: ms, socketTimeoutMS: Math.max(ms + 1_000, SILENT_AFTER_MS) };
  return limits;
};

/** A text as a pattern that matches only this text. */
export const escapeRegExp = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

/**
 * The schema of a collection: its name, and the indexes that `index` adds. It names no fields: TypeScript says what the
 * documents are, and what comes from outside was checked before.
 */
export const schemaOf = <Stored>(collection: string): mongoose.Schema<Stored> =>
  new mongoose.Schema<Stored>({ _id: String } as never, { collection, versionKey: false, strict: false });

/** The part of a model that defines its indexes. */
export type Indexed = Pick<Model<unknown>, 'collection'> & { schema: Pick<mongoose.Schema, 'indexes'> };

/** MongoDB builds at most three indexes at once. More would open a connection each, and wait. */
const BUILDS_AT_ONCE = 3;

type Built = { _id: string; count: number; lists: string[] };
const BUILT = { _id: 'indexes' };

/** How many indexes a database has, without those of `_id`. The collection of the profiler has none. */
const countIndexes = async ({ db }: Connection): Promise<number> => {
  const ours = { type: 'collection', name: { $not: /^system\./ } };
  const [stats, collections] = await Promise.all([
    db?.stats(),
    db?.listCollections(ours, { nameOnly: true }).toArray(),
  ]);
  return Number(stats?.['indexes']) - Number(collections?.length);
};

/**
 * Builds missing indexes. The builds have no time limit, because building an index over many documents takes longer
 * than any other command. The database keeps which lists were built, and how many indexes it had then. While both are as
 * they were, nothing is asked of MongoDB that waits for a majority: a process starts although there is none. If somebody
 * drops an index and makes another by hand, no start makes it again: to read the names of all took 20 ms more.
 */
export const buildIndexes = async (connection: Connection, models: Indexed[]): Promise<void> => {
  const wanted = models.flatMap(({ collection, schema }) => {
    const indexes = schema.indexes().map(([key, options]) => ({ ...options, key }) as mongo.IndexDescription);
    return indexes.length > 0 ? [{ collection, indexes }] : [];
  });
  const definitions = wanted.map(({ collection, indexes }) => [collection.name, indexes]);
  const list = createHash('sha256').update(JSON.stringify(definitions)).digest('base64url');
  const built = connection.collection<Built>('built');
  const [known, before] = await Promise.all([built.findOne(BUILT), countIndexes(connection)]);
  if (known?.count === before && known.lists.includes(list)) return;

  // The driver honours the time limit, although its types do not list it.
  const options = { socketTimeoutMS: 0 } as mongo.CreateIndexesOptions;
  await mapAtMost(BUILDS_AT_ONCE, wanted, async ({ collection, indexes }) => {
    await collection.createIndexes(indexes, options);
  });
  const count = await countIndexes(connection);
  // Another count says nothing of the other lists: an index of theirs may be the one that is gone.
  const lists = { $cond: [{ $eq: ['$count', count] }, { $setUnion: ['$lists', [list]] }, [list]] };
  await built.updateOne(BUILT, [{ $set: { count, lists } }], { upsert: true });
};

/**
 * The driver's collection behind a model. Used where speed matters, and for updates that mongoose would cast wrongly.
 * Schema and indexes stay with the model.
 */
export const collectionOf = <Stored extends { _id: string }>(model: Model<Stored>): mongo.Collection<Stored> =>
  model.collection as unknown as mongo.Collection<Stored>; // mongoose wraps the collection and keeps the driver's methods

/** Writes in one transaction of a session, which is not repeated. After a failure nothing of it is stored. */
export const transact = async <Result>(
  session: ClientSession,
  write: (session: ClientSession) => Promise<Result>,
): Promise<Result> => {
  try {
    session.startTransaction();
    const result = await write(session);
    await session.commitTransaction();
    return result;
  } catch (cause) {
    if (session.inTransaction()) await session.abortTransaction().catch(() => undefined);
    throw cause;
  }
};

/** The same, in a session of its own. */
export const inTransaction = async (
  connection: Connection,
  write: (session: ClientSession) => Promise<void>,
): Promise<void> => {
  const session = await connection.startSession();
  try {
    await transact(session, write);
  } finally {
    await session.endSession();
  }
};

/** How long a write waits for another one of the same document, such as the publishing of a large draft. */
const WAITS_FOR_MS = 5_000;
const WAITS_MS = { first: 50, most: 1_000 };

/**
 * Writes in one transaction, which is repeated if it meets another one. It holds no connection while it waits to be
 * repeated. A plain write would hold one until the other transaction ends, and many of them would hold all connections.
 */
export const inTurn = async (
  connection: Connection,
  write: (session: ClientSession) => Promise<void>,
): Promise<void> => {
  const until = performance.now() + WAITS_FOR_MS;
  for (let tries = 1; ; tries += 1) {
    try {
      return await inTransaction(connection, write);
    } catch (cause) {
      if (!hasLabel(cause, 'TransientTransactionError')) throw cause;
      if (isMongoUnavailable(cause) || performance.now() > until) throw unavailable(cause);
      await sleep(Math.min(WAITS_MS.most, WAITS_MS.first * tries) * Math.random());
    }
  }
};

/** A batcher over MongoDB. While MongoDB is unavailable, all items of a batch fail together. */
export const createStoreBatcher = <Item, Result>(
  write: (items: Item[]) => Promise<(Result | ItemFailure)[]>,
  options: Omit<BatchOptions<Item>, 'isShared'> = {},
): ((item: Item) => Promise<Result>) => createBatcher(write, { ...options, isShared: isMongoUnavailable });

/** A write that takes longer may be one of large documents. Their sizes are then looked at, and known for a while. */
const SLOW_MS = 20;
const LARGE_BYTES = 128 * 1024;
const KNOWN_SIZES = { most: 20_000, ttl: 60_000 };
/** Longer, so that after a pause the large documents of a holder do not all go through the common batches again. */
const KNOWN_HOLDERS = { ...KNOWN_SIZES, ttl: 3_600_000 };
/**
 * The weight of each look in a moving average: the part of a holder's documents that is large. Above this value, its
 * documents of unknown size go apart. So one large document does not send all others there.
 */
const LOOK_SHARE = 0.2;

/** The `_id` of a document, and whose it is. */
type Owned = [id: string, holder: string];

/** `look` finds out which of these documents are large. */
type Sizes = { isLarge: (document: Owned) => boolean; look: (documents: Owned[]) => void };

const createSizes = <Stored extends { _id: string }>(collection: mongo.Collection<Stored>): Sizes => {
  const isLarge = createLru<boolean>(KNOWN_SIZES);
  /** The part of each holder's documents that is large, as the last looks found it. */
  const largeParts = createLru<number>(KNOWN_HOLDERS);
  const projection = { isLarge: { $gt: [{ $bsonSize: '$$ROOT' }, LARGE_BYTES] } };

  const look = async (documents: Owned[]): Promise<void> => {
    const isOld = (id: string): boolean => isLarge.getRemainingTTL(id) < KNOWN_SIZES.ttl / 2;
    const ids = new Set(documents.map(([id]) => id).filter(isOld));
    if (ids.size === 0) return;
    const rows = await readRows<Stored, { _id: string; isLarge: boolean }>(collection, [...ids], projection);
    for (const [id, holder] of new Map(documents)) {
      const row = rows.get(id);
      if (!row || !isOld(id)) continue; // another look was faster
      isLarge.set(id, row.isLarge);
      largeParts.set(holder, (1 - LOOK_SHARE) * (largeParts.get(holder) ?? 0) + (row.isLarge ? LOOK_SHARE : 0));
    }
  };

  return {
    isLarge: ([id, holder]) => isLarge.get(id) ?? (largeParts.get(holder) ?? 0) > LOOK_SHARE,
    look: (documents) => void look(documents).catch(() => undefined),
  };
};

/** By collection: what one writer found out, the others know. */
const known = new WeakMap<object, Sizes>();
const sizesOf = <Stored extends { _id: string }>(collection: mongo.Collection<Stored>): Sizes => {
  const sizes = known.get(collection) ?? createSizes(collection);
  known.set(collection, sizes);
  return sizes;
};

const LARGE_AT_ONCE = 8;
const LARGE = { maxItems: LARGE_AT_ONCE, maxInFlight: 1, rests: true };

type UpdateOptions<Item> = Omit<BatchOptions<Item>, 'isShared'> & { documentOf: (item: Item) => Owned };

/**
 * A batcher of updates, each of one document of the collection. To update a large document takes ten times as long as a
 * small one, so large ones have batches of their own, one at a time with a rest after it. Holders share their places.
 */
export const createUpdateBatcher = <Item, Result, Stored extends { _id: string }>(
  collection: mongo.Collection<Stored>,
  write: (items: Item[]) => Promise<(Result | ItemFailure)[]>,
  { documentOf, ...options }: UpdateOptions<Item>,
): ((item: Item) => Promise<Result>) => {
  const sizes = sizesOf(collection);
  const thenLook =
    (afterMs: number): typeof write =>
    async (items) => {
      const since = performance.now();
      try {
        return await write(items);
      } finally {
        if (performance.now() - since > afterMs) sizes.look(items.map(documentOf));
      }
    };

  const [small, large] = [
    createStoreBatcher(thenLook(SLOW_MS), options),
    createStoreBatcher(thenLook(0), { ...options, ...LARGE }),
  ];
  const places = createSlots(whatRemains(LARGE_AT_ONCE), UNBOUNDED);
  return (item) => {
    const document = documentOf(item);
    return sizes.isLarge(document) ? workInSlot(places, document[1], () => large(item)) : small(item);
  };
};

/** How many updates of large documents outside batches are made at once, one of each holder. */
const ALONE_AT_ONCE = 2;

/** Makes an update of one document that has no place in a batch. */
export type Update = <Result>(document: Owned, update: () => Promise<Result>) => Promise<Result>;

/** The same for updates that have no place in a batch. Each of a large document is followed by a rest as long as it took. */
export const createUpdate = <Stored extends { _id: string }>(collection: mongo.Collection<Stored>): Update => {
  const sizes = sizesOf(collection);
  const places = withRests(createSlots(oneEach(ALONE_AT_ONCE), UNBOUNDED), restAsLong);
  return async (document, update) => {
    const isLarge = sizes.isLarge(document);
    const since = performance.now();
    try {
      return await (isLarge ? workInSlot(places, document[1], update) : update());
    } finally {
      if (isLarge || performance.now() - since > SLOW_MS) sizes.look([document]);
    }
  };
};

/** Reads documents by `_id`. An answer may have 16 MB, so other work runs while its documents are decoded. */
export const readRows = async <Stored extends { _id: string }, Row extends { _id: string } = Stored>(
  collection: mongo.Collection<Stored>,
  ids: string[],
  projection: mongo.Document,
): Promise<Map<string, Row>> => {
  const wanted = { _id: { $in: [...new Set(ids)] } } as mongo.Filter<Stored>;
  const byId = new Map<string, Row>();
  const rows = collection.find<Row>(wanted, { projection });
  while (await rows.hasNext()) {
    const slices = createSlices(); // the time of MongoDB is not counted
    for (let left = rows.bufferedCount(); left > 0; left -= 1) {
      for (const row of rows.readBufferedDocuments(1) as Row[]) byId.set(row._id, row);
      if (slices.isOver()) await slices.next();
    }
  }
  return byId;
};

/** Reads single documents by `_id`. Concurrent reads share one command. A missing one gives null. */
export const createReader = <Stored extends { _id: string }, Row extends { _id: string } = Stored>(
  collection: mongo.Collection<Stored>,
  projection: mongo.Document,
  options: Pick<BatchOptions<string>, 'maxItems' | 'maxInFlight' | 'rests'> = {},
): ((id: string) => Promise<Row | null>) =>
  createStoreBatcher(async (ids: string[]) => {
    const byId = await readRows<Stored, Row>(collection, ids, projection);
    return ids.map((id) => byId.get(id) ?? null);
  }, options);

/**
 * How many shared reads of one line wait for MongoDB. A holder alone may have 18: a few more than an assistant has turns
 * that are being accepted.
 */
const SHARED_READS = 48;

/**
 * Shares a reader among the holders of its documents. These may be large and only on the disk, so one who asks for
 * thousands must not delay others by more than a few.
 */
export const shareRead = <Row>(
  read: (id: string) => Promise<Row | null>,
): ((id: string, holder: string) => Promise<Row | null>) => {
  const places = createSlots(whatRemains(SHARED_READS), UNBOUNDED);
  return (id, holder) => workInSlot(places, holder, () => read(id));
};

const PARTS_AT_ONCE = 4;

/**
 * Like `createReader`, for parts of documents. Concurrent reads of the same part of several documents share one
 * command.
 */
export const createPartReader = <Row extends { _id: string }>(
  collection: mongo.Collection<Row>,
  projectionOf: (part: number) => mongo.Document,
): ((wanted: { id: string; part: number }) => Promise<Row | null>) =>
  createStoreBatcher(async (wanted: { id: string; part: number }[]) => {
    const byPart = [...Map.groupBy(wanted, ({ part }) => part)];
    const rows = await mapAtMost(PARTS_AT_ONCE, byPart, async ([part, some]) => {
      const ids = some.map(({ id }) => id);
      return [part, await readRows(collection, ids, projectionOf(part))] as const;
    });
    const found = new Map(rows);
    return wanted.map(({ id, part }) => found.get(part)?.get(id) ?? null);
  });

type WriteError = { index: number; code: number; errmsg: string };
type WriteReply = {
  n: number;
  nModified?: number;
  writeErrors?: WriteError[];
};

export type UpdateStatement = {
  q: Record<string, unknown>;
  u: Record<string, unknown> | Record<string, unknown>[];
  upsert?: boolean;
  arrayFilters?: Record<string, unknown>[];
};

const failOnConcern = (reply: WriteReply & { writeConcernError?: { errmsg: string } }): WriteReply => {
  // The primary has applied the write, but a majority has not confirmed it.
  if (reply.writeConcernError) throw new OutcomeUnknown(`write concern failed: ${reply.writeConcernError.errmsg}`);
  return reply;
};

const writeMany = async (connection: Connection, command: Record<string, unknown>): Promise<WriteReply> =>
  failOnConcern(
    (await database(connection).command({
      ...command,
      ordered: false,
      writeConcern: DURABLE,
    })) as unknown as WriteReply,
  );

/**
 * Sends many updates as one command. A refused statement does not stop the others; `writeErrors` contains the index of
 * each refused statement. A raw command is measurably cheaper than `bulkWrite`.
 */
export const updateMany = async (
  connection: Connection,
  collection: string,
  updates: UpdateStatement[],
): Promise<WriteReply> => writeMany(connection, { update: collection, updates });

/**
 * Updates one document and returns the updated document: one round trip instead of two. Null if no document matched.
 */
export const updateAndRead = async <Row>(
  connection: Connection,
  collection: string,
  { q, u, fields }: Pick<UpdateStatement, 'q' | 'u'> & { fields: mongo.Document },
): Promise<Row | null> => {
  const command = { findAndModify: collection, query: q, update: u, new: true, fields, writeConcern: DURABLE };
  const reply = await database(connection).command(command);
  failOnConcern(reply as unknown as WriteReply);
  return (reply.value as Row | undefined) ?? null;
};

/** An update that sets a field to MongoDB's cluster time, at the moment in which MongoDB executes it. */
export const setClusterTime = <Field extends string>(field: Field) => ({
  $currentDate: { [field]: { $type: 'timestamp' } } as Record<Field, { $type: 'timestamp' }>,
});

/**
 * An update that sets `fields` if the document has the `expected` values, and otherwise changes nothing. With this
 * update, the filter needs only `_id`, which MongoDB finds directly; planning any other filter costs as much as the
 * update. All values are literals, never expressions. `clusterTime` names a field that gets MongoDB's cluster time.
 */
export const setWhere = (
  expected: Record<string, unknown>,
  fields: Record<string, unknown>,
  clusterTime?: string,
): Record<string, unknown>[] => {
  const conditions = Object.entries(expected).map(([field, value]) => ({ $eq: [`$${field}`, { $literal: value }] }));
  const changed = {
    $mergeObjects: [
      '$$ROOT',
      { $literal: fields },
      ...(clusterTime === undefined ? [] : [{ [clusterTime]: '$$CLUSTER_TIME' }]),
    ],
  };
  return [{ $replaceWith: { $cond: [{ $and: conditions }, changed, '$$ROOT'] } }];
};

/**
 * Sends many inserts as one command. A document whose `_id` exists is reported in `writeErrors`; the other documents
 * are stored.
 */
export const insertMany = async (
  connection: Connection,
  collection: string,
  documents: Record<string, unknown>[],
): Promise<WriteReply> => writeMany(connection, { insert: collection, documents });

const database = (connection: Connection) => {
  if (!connection.db) throw new Error('MongoDB is not connected');
  return connection.db;
};
