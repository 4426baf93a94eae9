import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type Connection, type Model, type mongo } from 'mongoose';
import { type BatchOptions, createBatcher, ItemFailure } from './batch.ts';
import { followServerClock } from './clock.ts';
import { unavailable } from './errors.ts';
import type { Logger } from './logger.ts';

/** Every write that decides something: a majority has it in its journal before anybody is told. */
export const DURABLE = { w: 'majority', j: true } as const;

export const DUPLICATE_KEY = 11000;

const CONNECT_RETRY_MS = 200;
/**
 * A connection that brings nothing for so long while an answer is due is given up: soon enough for an accept to look for
 * its turn once more. What may take longer says so (`timeLimit`) or goes by steps (`inBatches`).
 */
const SILENT_AFTER_MS = 3_500;

/**
 * One connection pool per process. Operations fail instead of waiting when no primary answers for 800 ms, so that a
 * caller hears 503 within a second; a server that stops answering is noticed by its heartbeat, a single connection that
 * does by its silence. At start the server gets `timeoutMs` to appear.
 */
export const openMongo = async (
  { url, timeoutMs = 10_000, maxPoolSize = 32 }: { url: string; timeoutMs?: number; maxPoolSize?: number },
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
      socketTimeoutMS: SILENT_AFTER_MS,
      heartbeatFrequencyMS: 2000,
      // What is told to a caller, or licenses a send, must not be rolled back by a fail-over.
      readConcernLevel: 'majority',
      writeConcern: DURABLE,
    });
    connection.on('error', (cause: unknown) => logger.warn({ err: cause }, 'mongodb connection failed'));
    try {
      await connection.asPromise();
      await followServerClock(connection);
      const onDisconnected = () => logger.warn('mongodb is unavailable');
      connection
        .on('disconnected', onDisconnected)
        .once('disconnecting', () => connection.off('disconnected', onDisconnected)); // closed by us
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
 * For a reading that may take longer than a connection may be silent: the server ends it, and only where that says nothing
 * either is the connection given up. The second option is heeded, if not in the driver's types.
 */
export const timeLimit = (ms: number): { maxTimeMS: number } => {
  const limits = { maxTimeMS: ms, socketTimeoutMS: Math.max(ms + 1_000, SILENT_AFTER_MS) };
  return limits;
};

/** What of a model its indexes are made by. */
export type Indexed = Pick<Model<unknown>, 'collection'> & { schema: Pick<mongoose.Schema, 'indexes'> };

/** Builds what is missing, for as long as it takes: over many documents that is longer than any other command may. */
export const buildIndexes = async (models: Indexed[]): Promise<void> => {
  const build = ({ collection, schema }: Indexed) =>
    schema.indexes().map(([fields, options]) => {
      const own = { ...options, socketTimeoutMS: 0 } as mongo.CreateIndexesOptions; // heeded, if not in its type
      return collection.createIndex(fields as mongo.IndexSpecification, own);
    });
  await Promise.all(models.flatMap(build));
};

/**
 * The driver's own collection behind a model: for the hot paths and for updates whose shape mongoose's casting would get
 * in the way of. Schema and indexes stay with the model.
 */
export const collectionOf = <Stored extends { _id: string }>(model: Model<Stored>): mongo.Collection<Stored> =>
  model.collection as unknown as mongo.Collection<Stored>; // mongoose wraps it, the methods are the driver's

/** A batcher over MongoDB: while that is away, all items of a batch fail together. */
export const createStoreBatcher = <Item, Result>(
  write: (items: Item[]) => Promise<(Result | ItemFailure)[]>,
  options: Omit<BatchOptions<Item>, 'isShared'> = {},
): ((item: Item) => Promise<Result>) => createBatcher(write, { ...options, isShared: isConnectionFailure });

/** Reads single documents by `_id`, those asked for at once in one command; null = there is none. */
export const createReader = <Row extends { _id: string }>(
  collection: mongo.Collection<Row>,
  projection: mongo.Document,
): ((id: string) => Promise<Row | null>) =>
  createStoreBatcher(async (ids: string[]) => {
    const wanted = { _id: { $in: [...new Set(ids)] } } as mongo.Filter<Row>;
    const rows = (await collection.find(wanted, { projection }).toArray()) as Row[];
    const byId = new Map(rows.map((row) => [row._id, row]));
    return ids.map((id) => byId.get(id) ?? null);
  });

type WriteError = { index: number; code: number; errmsg: string };
type WriteReply = {
  n: number;
  nModified?: number;
  upserted?: { index: number; _id: unknown }[];
  writeErrors?: WriteError[];
};

export type UpdateStatement = {
  q: Record<string, unknown>;
  u: Record<string, unknown> | Record<string, unknown>[];
  upsert?: boolean;
  arrayFilters?: Record<string, unknown>[];
};

/** A write went out, and whether it stands must be read back. */
export class OutcomeUnknown extends Error {
  override name = 'OutcomeUnknown';
}

const failOnConcern = (reply: WriteReply & { writeConcernError?: { errmsg: string } }): WriteReply => {
  // Applied here, not yet known to a majority.
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
 * Many updates as one command. Statements stand alone: one refused does not stop the others, and `writeErrors` names it
 * by index. Written as a raw command since that is measurably cheaper than `bulkWrite`.
 */
export const updateMany = async (
  connection: Connection,
  collection: string,
  updates: UpdateStatement[],
): Promise<WriteReply> => writeMany(connection, { update: collection, updates });

/**
 * An update that sets these fields where those have these values, and changes nothing elsewhere. For a statement whose
 * filter is `_id` alone: MongoDB finds that one directly, and plans any other anew each time, which costs as much as the
 * update. Values are literal: none is taken for an expression.
 */
export const setWhere = (
  expected: Record<string, unknown>,
  fields: Record<string, unknown>,
): Record<string, unknown>[] => {
  const conditions = Object.entries(expected).map(([field, value]) => ({ $eq: [`$${field}`, { $literal: value }] }));
  const changed = { $mergeObjects: ['$$ROOT', { $literal: fields }] };
  return [{ $replaceWith: { $cond: [{ $and: conditions }, changed, '$$ROOT'] } }];
};

/** Many inserts as one command; a document whose `_id` exists is reported in `writeErrors`, the others are stored. */
export const insertMany = async (
  connection: Connection,
  collection: string,
  documents: Record<string, unknown>[],
): Promise<WriteReply> => writeMany(connection, { insert: collection, documents });

const database = (connection: Connection) => {
  if (!connection.db) throw new Error('MongoDB is not connected');
  return connection.db;
};

const NEVER_SENT = new Set([
  'MongoServerSelectionError',
  'MongoNotConnectedError',
  'MongoTopologyClosedError',
  'MongoPoolClearedError',
  'MongoPoolClosedError',
  'MongoWaitQueueTimeoutError',
]);

const CONNECTION_LOST = new Set(['MongoNetworkError', 'MongoNetworkTimeoutError', 'PoolClearedOnNetworkError']);

/** The server itself says that it is not the primary. */
const NOT_PRIMARY = new Set([10058, 10107, 13435, 13436]);
/** It steps down or stops, and broke off what was under way. */
const INTERRUPTED = new Set([91, 189, 11600, 11602]);

/**
 * One item's failure in a batch of statements that stand alone. A server that changes its office breaks off single
 * statements as well; those may have been written.
 */
export const toItemFailure = ({ code }: Pick<WriteError, 'code'>): ItemFailure =>
  new ItemFailure(
    NOT_PRIMARY.has(code) || INTERRUPTED.has(code)
      ? new OutcomeUnknown(`a statement was broken off (code ${code})`)
      : new Error(`MongoDB refused a statement (code ${code})`),
  );

const codeOf = (cause: unknown): number => (cause instanceof mongoose.mongo.MongoServerError ? Number(cause.code) : 0);

/** True where the server refused a command as a whole since it is not the primary. */
export const wasNotPrimary = (cause: unknown): boolean => NOT_PRIMARY.has(codeOf(cause));

/**
 * True where the driver never put the command on a wire: surely nothing was written by a raw command. A retryable write of
 * the driver's may end so too after its first try was sent.
 */
export const wasNeverSent = (cause: unknown): boolean =>
  cause instanceof Error &&
  (NEVER_SENT.has(cause.name) || (cause as { beforeHandshake?: boolean }).beforeHandshake === true);

/** True where MongoDB is away or changes its primary, not for a wrong command; a write's outcome may be unknown. */
export const isConnectionFailure = (cause: unknown): boolean =>
  wasNeverSent(cause) ||
  cause instanceof OutcomeUnknown ||
  NOT_PRIMARY.has(codeOf(cause)) ||
  INTERRUPTED.has(codeOf(cause)) ||
  (cause instanceof Error && CONNECTION_LOST.has(cause.name));

/**
 * For what runs before anything a caller asked for is written: here every lost connection is 503 (docs/contract.md, Errors).
 */
export const beforeWriting = async <Value>(work: Promise<Value>): Promise<Value> => {
  try {
    return await work;
  } catch (cause) {
    throw isConnectionFailure(cause) ? unavailable(cause) : cause;
  }
};

/** True where a reading took longer than the `maxTimeMS` it was given. */
export const exceededTimeLimit = (cause: unknown): boolean =>
  (cause as { codeName?: string } | null)?.codeName === 'MaxTimeMSExpired';

export const isDuplicateKey = (cause: unknown): boolean =>
  typeof cause === 'object' && cause !== null && (cause as { code?: unknown }).code === DUPLICATE_KEY;
