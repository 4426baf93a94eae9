import { type Connection, mongo } from 'mongoose';
import { CONVERSATIONS, type StoredConversation } from '../conversations/conversation.ts';
import { TOMBSTONES } from '../conversations/erasure.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { serverNow } from '../platform/process/clock.ts';
import { isMongoUnavailable } from '../platform/mongo/failures.ts';

/** The maximum number of changes that one read returns. */
const BATCH = 1_000;
/**
 * A read is given up if it has found no change and has not reached the present within this time. Before MongoDB
 * answers, it goes through the writes of all databases, which may be too many.
 */
const READ_WITHIN_MS = 10_000;
const CLOSED_WITHIN_MS = 500;
/** A connection of change streams may be silent for longer than any read takes. */
export const FEED_SILENT_AFTER_MS = 2 * READ_WITHIN_MS;

/** MongoDB cannot continue at a position: the stream has ended, or the position is too far behind. */
export class PositionLost extends Error {
  override name = 'PositionLost';
}

export type Erased = { conversationId: string; assistantId: string };

/**
 * Changes between two positions. A position is the hexadecimal text of a resume token of MongoDB. Positions compare as
 * texts, and every process understands them.
 */
export type Changes = {
  keys: string[];
  erased: Erased[];
  /** True if an operator may use other assistants than before, so that rows show another assignee. */
  reload: boolean;
  position: string;
};

type Change = { at: string; id: string; assistantId?: string };
type Reply = {
  cursor: {
    id: mongo.Long;
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
  'notedAt',
] satisfies (keyof StoredConversation)[];

/** Changes of these fields of an operator change who counts as assigned. */
const ACCESS = ['role', 'disabled', 'assistantIds'];

const isOf = (collection: string): object => ({ $eq: ['$ns.coll', collection] });

const changesOneOf = (fields: string[]): object => ({
  $or: [
    ...fields.map((field) => ({ $ne: [{ $type: `$updateDescription.updatedFields.${field}` }, 'missing'] })),
    { $ne: [{ $setIntersection: [{ $ifNull: ['$updateDescription.removedFields', []] }, fields] }, []] },
  ],
});

/**
 * Selects the changes on the server. Only keys are sent. The first step names collections and nothing else: MongoDB
 * applies it to every write of all databases, and any further condition there costs four times as much.
 */
const PIPELINE = [
  { $match: { 'ns.coll': { $in: [CONVERSATIONS, TOMBSTONES, 'operators'] } } },
  {
    $project: {
      at: '$ns.coll',
      id: '$documentKey._id',
      assistantId: '$fullDocument.assistantId',
      isShown: {
        $or: [
          { $and: [isOf(TOMBSTONES), { $eq: ['$operationType', 'insert'] }] },
          { $and: [isOf('operators'), { $or: [{ $eq: ['$operationType', 'delete'] }, changesOneOf(ACCESS)] }] },
          {
            $and: [
              isOf(CONVERSATIONS),
              { $or: [{ $in: ['$operationType', ['insert', 'replace']] }, changesOneOf(SHOWN)] },
            ],
          },
        ],
      },
    },
  },
  { $match: { isShown: true } },
];

const collect = (changes: Change[], position: string): Changes => {
  const keys = changes.flatMap(({ at, id }) => (at === CONVERSATIONS ? [id] : []));
  const erased = changes.flatMap(({ at, id, assistantId }) =>
    at === TOMBSTONES && assistantId !== undefined ? [{ conversationId: id, assistantId }] : [],
  );
  const reload = changes.some(({ at }) => at === 'operators');
  return { keys: [...new Set(keys)], erased, reload, position };
};

export type ChangeFeed = {
  /** The position at which the feed was opened. */
  position: string;
  /**
   * Reads the changes since the last read. Waits up to `waitMs` for the first change, and as long as it takes to come
   * to the present, at most `withinMs`.
   */
  read: (waitMs: number, withinMs?: number) => Promise<Changes>;
  /** Ends the stream, and a read in flight. If the server does not answer, it closes the cursor with the session. */
  close: () => Promise<void>;
};

/**
 * Opens a change stream over conversations, erasures and operators, after `position` or at the present. Raw commands
 * are used, because the reader decides when the next batch is read: whatever happens between two reads is one batch.
 */
export const openChangeFeed = async (connection: Connection, position: string | null): Promise<ChangeFeed> => {
  const { db } = connection;
  if (!db) throw new mongo.MongoNotConnectedError('MongoDB is not connected');
  const session = connection.getClient().startSession();
  const run = async (command: mongo.Document): Promise<Reply['cursor']> =>
    ((await db.command(command, { session, promoteLongs: false })) as Reply).cursor;

  /**
   * The moment just after the last write that a majority has. Every read sees that write, and the stream has every
   * later one.
   */
  const present = async (): Promise<mongo.Timestamp> => {
    const { lastWrite, operationTime } = await db.admin().command({ hello: 1 });
    const last = ((lastWrite as { majorityOpTime?: { ts: mongo.Timestamp } } | undefined)?.majorityOpTime?.ts ??
      operationTime) as mongo.Timestamp;
    return new mongo.Timestamp({ t: last.getHighBitsUnsigned(), i: last.getLowBitsUnsigned() + 1 });
  };

  /**
   * Asks for an empty first batch, because MongoDB would fill any other one before it answers, however long that takes.
   */
  const open = async (): Promise<Reply['cursor']> => {
    const start = position === null ? { startAtOperationTime: await present() } : { resumeAfter: { _data: position } };
    const command = {
      aggregate: 1,
      pipeline: [{ $changeStream: start }, ...PIPELINE],
      cursor: { batchSize: 0 },
      readConcern: { level: 'majority' },
    };
    return run(command);
  };

  let cursor = await open().catch(async (cause: unknown) => {
    await session.endSession();
    throw cause;
  });
  let closed = false;

  return {
    position: cursor.postBatchResumeToken['_data'],

    read: async (waitMs, withinMs = READ_WITHIN_MS) => {
      if (cursor.id.isZero()) throw new PositionLost('the change stream has ended');
      const more = { getMore: cursor.id, collection: '$cmd.aggregate', batchSize: BATCH, maxTimeMS: waitMs };
      const late = () => new PositionLost('the change stream does not come to the present');
      cursor = await withDeadline(run(more), waitMs + withinMs, { late });
      return collect(cursor.nextBatch ?? [], cursor.postBatchResumeToken['_data']);
    },

    close: async () => {
      if (closed) return;
      closed = true;
      const kill = () => db.command({ killCursors: '$cmd.aggregate', cursors: [cursor.id] });
      if (!cursor.id.isZero()) await withDeadline(kill, CLOSED_WITHIN_MS).catch(() => undefined);
      await session.endSession();
    },
  };
};

const MAX_KEYS = 20_000;

/** One batch of all changes. Each conversation is named once. */
const merge = (batches: Omit<Changes, 'position'>[], position: string): Changes => ({
  keys: [...new Set(batches.flatMap(({ keys }) => keys))],
  erased: batches.flatMap(({ erased }) => erased),
  reload: batches.some(({ reload }) => reload),
  position,
});

const sizeOf = ({ keys, erased, reload }: Changes): number => keys.length + erased.length + Number(reload);

/**
 * The latest changes of this process, so that a browser that reconnects soon needs no read of the change stream.
 * Bounded: the oldest changes are dropped first.
 */
export class RecentChanges {
  /** Changes after this position are all known. */
  oldest: string;
  /** The position of the latest batch. */
  newest: string;
  private readonly batches: Changes[] = [];
  private kept = 0;

  constructor(start: string) {
    this.oldest = start;
    this.newest = start;
  }

  add(changes: Changes): void {
    this.newest = changes.position;
    if (sizeOf(changes) === 0) return;
    this.batches.push(changes);
    this.kept += sizeOf(changes);
    while (this.kept > MAX_KEYS) {
      const dropped = this.batches.shift();
      if (!dropped) return;
      this.oldest = dropped.position;
      this.kept -= sizeOf(dropped);
    }
  }

  /** All changes after the position. The position must not be before `oldest`. */
  since(position: string): Changes {
    return merge(
      this.batches.filter((batch) => batch.position > position),
      this.newest,
    );
  }
}

/** A browser that missed more conversations than this loads its lists again instead. */
export const MISSED_MAX = 2_000;
const WITHIN_MS = 5_000;
const READ_MS = 500;

/** A resume token of a change stream: a type, the seconds of its time, and the rest. Two digits are a byte. */
const POSITION = /^82([0-9A-F]{8})(?:[0-9A-F]{2}){4,495}$/;
/** A position may be this much ahead of this process's clock. */
const AHEAD_MAX_S = 60;

/** True if a text from outside may be a position. Only MongoDB knows whether it is one. */
export const isPosition = (text: string): boolean => {
  const [, seconds] = POSITION.exec(text) ?? [];
  return seconds !== undefined && Number.parseInt(seconds, 16) <= serverNow() / 1_000 + AHEAD_MAX_S;
};

/** A position contains the time of a write: seconds, and a number within the second. */
const writesBetween = (position: string, later: string): number => {
  const [from, to] = [position, later].map((one) => BigInt(`0x${one.slice(2, 18)}`)) as [bigint, bigint];
  return Number(to - from);
};

/**
 * Reads the changes between two positions from MongoDB. Null if MongoDB cannot read them, or if they are too many or
 * take too long to read: the browser then has to load everything again.
 */
export const readMissed = async (
  connection: Connection,
  { from, until, left }: { from: string; until: string; left: AbortSignal },
): Promise<Changes | null> => {
  const deadline = performance.now() + WITHIN_MS;
  let missed: Changes = { keys: [], erased: [], reload: false, position: from };
  try {
    const feed = await openChangeFeed(connection, from);
    // A read in flight ends immediately when the browser leaves.
    const close = (): void => void feed.close().catch(() => undefined);
    left.addEventListener('abort', close, { once: true });
    try {
      while (missed.position < until && !left.aborted) {
        const withinMs = deadline - performance.now();
        if (withinMs <= 0) return null;
        const changes = await feed.read(READ_MS, withinMs);
        missed = merge([missed, changes], changes.position);
        // `until` may be the start of a stream that was opened just after the last write. The log reaches it only with
        // the next write, so a distance of one counts as the end.
        const isAtEnd =
          changes.keys.length + changes.erased.length === 0 && writesBetween(changes.position, until) <= 1;
        if (isAtEnd && missed.position < until) missed.position = until;
        if (missed.keys.length + missed.erased.length > MISSED_MAX) return null;
      }
    } finally {
      left.removeEventListener('abort', close);
      await feed.close();
    }
  } catch (cause) {
    const isRefused = cause instanceof mongo.MongoServerError && !isMongoUnavailable(cause);
    if (cause instanceof PositionLost || isRefused || left.aborted) return null;
    throw cause;
  }
  return missed;
};
