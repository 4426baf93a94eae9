import { type Connection, mongo } from 'mongoose';
import { serverNow } from '../platform/clock.ts';
import { withDeadline } from '../platform/deadline.ts';

/** The most changes that one read returns. */
const BATCH = 1_000;
const STARTS_BEFORE_S = 1;
const CLOSED_WITHIN_MS = 500;

/** MongoDB cannot continue at a position: it is too old, malformed, or from another database. */
const LOST = new Set([
  9, // FailedToParse
  14, // TypeMismatch
  260, // InvalidResumeToken
  280, // ChangeStreamFatalError
  286, // ChangeStreamHistoryLost
  40_647, // the token is malformed
  50_811, // the token is malformed
]);

export const isPositionLost = (cause: unknown): boolean =>
  cause instanceof PositionLost || (cause instanceof mongo.MongoServerError && LOST.has(Number(cause.code)));

/** The stream has ended for good, for example because the database was dropped. */
export class PositionLost extends Error {
  override name = 'PositionLost';
}

export type Erased = { conversationId: string; assistantId: string };

/**
 * Changes between two positions. A position is the hexadecimal text of a resume token of MongoDB. Positions compare as
 * texts, and every process understands them.
 */
export type Changes = { keys: string[]; erased: Erased[]; position: string };

type Change = { at: 'conversations'; id: string } | { at: 'tombstones'; id: string; assistantId?: string };
type Reply = {
  cursor: {
    id: mongo.Long;
    firstBatch?: Change[];
    nextBatch?: Change[];
    postBatchResumeToken: { _data: string };
  };
};

/**
 * Every change that an inbox shows sets or removes one of these fields of the conversation. Other writes, such as those
 * of deliveries, are left out.
 */
const SHOWN = [
  'updatedAt',
  'assigneeId',
  'snoozedUntil',
  'waitingSince',
  'takeBy',
  'remindedAt',
  'attributes',
  'attributesAt',
  'notedAt',
];

/** Selects the changes on the server. Only keys are sent. */
const PIPELINE = [
  {
    $match: {
      $or: [
        { 'ns.coll': 'tombstones', operationType: 'insert' },
        { 'ns.coll': 'conversations', operationType: { $in: ['insert', 'replace'] } },
        ...SHOWN.map((field) => ({
          'ns.coll': 'conversations',
          [`updateDescription.updatedFields.${field}`]: { $exists: true },
        })),
        { 'ns.coll': 'conversations', 'updateDescription.removedFields': { $in: SHOWN } },
      ],
    },
  },
  { $project: { at: '$ns.coll', id: '$documentKey._id', assistantId: '$fullDocument.assistantId' } },
];

const collect = (changes: Change[], position: string): Changes => {
  const keys = changes.flatMap((change) => (change.at === 'conversations' ? [change.id] : []));
  const erased = changes.flatMap((change) =>
    change.at === 'tombstones' && change.assistantId !== undefined
      ? [{ conversationId: change.id, assistantId: change.assistantId }]
      : [],
  );
  return { keys: [...new Set(keys)], erased, position };
};

/**
 * Opens a change stream over conversations and erasures, after `position` or at the present. Raw commands are used,
 * because the reader decides when the next batch is read: whatever happens between two reads is one batch.
 */
export const openChangeFeed = async (connection: Connection, position: string | null) => {
  const { db } = connection;
  if (!db) throw new mongo.MongoNotConnectedError('MongoDB is not connected');
  const session = connection.getClient().startSession();
  const run = async (command: mongo.Document): Promise<Reply['cursor']> =>
    ((await db.command(command, { session, promoteLongs: false })) as Reply).cursor;
  // The start is a moment before the present, because the latest writes may not be readable yet.
  const startAtOperationTime = new mongo.Timestamp({ t: Math.floor(serverNow() / 1_000) - STARTS_BEFORE_S, i: 0 });
  const start = position === null ? { startAtOperationTime } : { resumeAfter: { _data: position } };
  const open = {
    aggregate: 1,
    pipeline: [{ $changeStream: start }, ...PIPELINE],
    cursor: { batchSize: BATCH },
    readConcern: { level: 'majority' },
  };
  let cursor = await run(open).catch(async (cause: unknown) => {
    await session.endSession();
    throw cause;
  });
  let first = true;
  let closed = false;

  return {
    /** The changes since the last read. Waits up to `waitMs` for the first one. */
    read: async (waitMs: number): Promise<Changes> => {
      if (!first) {
        if (cursor.id.isZero()) throw new PositionLost('the change stream has ended');
        const more = { getMore: cursor.id, collection: '$cmd.aggregate', batchSize: BATCH, maxTimeMS: waitMs };
        cursor = await run(more);
      }
      first = false;
      return collect(cursor.firstBatch ?? cursor.nextBatch ?? [], cursor.postBatchResumeToken['_data']);
    },

    /** Ends a read in flight too. Without an answer, the server closes the cursor with the session. */
    close: async (): Promise<void> => {
      if (closed) return;
      closed = true;
      const kill = () => db.command({ killCursors: '$cmd.aggregate', cursors: [cursor.id] });
      if (!cursor.id.isZero()) await withDeadline(kill, CLOSED_WITHIN_MS).catch(() => undefined);
      await session.endSession();
    },
  };
};

export type ChangeFeed = Awaited<ReturnType<typeof openChangeFeed>>;
