import type { Connection } from 'mongoose';
import { DAY_MS, serverDate } from '../platform/process/clock.ts';
import { ApiError, invalid, notFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { createRound, leaseIn, type Lease } from '../platform/mongo/batches.ts';
import { collectionOf, DURABLE, type Indexed, schemaOf, timeLimit } from '../platform/mongo/mongo.ts';
import type { EndpointStore } from './endpoints.ts';
import { behindEnd, clusterTimeOf, createReadHorizon, type EndPosition } from './store.ts';
import {
  deliveryModel,
  ENDED,
  isFinal,
  MISSED,
  type Outcome,
  type Recoverable,
  RECOVERABLE,
  RECOVERED,
  resendNumberOf,
  sameEventAs,
  SENT_AGAIN_MAX,
  type StoredDelivery,
} from './delivery.ts';
import { createLru } from '../platform/process/lru.ts';

/** The maximum number of events of a recovery. */
export const EVENTS_PER_RECOVERY = 100_000;
/** How many recoveries of an endpoint are listed, the newest first. */
const LISTED = 50;
const PLAN_WITHIN_MS = 10_000;
const PROGRESS_WITHIN_MS = 5_000;
const CANDIDATES_AT_ONCE = 10;
/** A delivery without what is long. */
const WITHOUT_TEXTS = { body: 0, requestHeaders: 0, responseHeaders: 0, responseBody: 0 } as const;
/** A process remembers for this many conversations how far a recovery came, for this long. */
const REACHED_MAX = 10_000;
const REACHED_FOR_MS = 30_000;
const LEASE_MS = 10_000;
/** How many due recoveries of one assistant are listed. A worker drives no more. */
const DUE_OF_ONE = 2;

export const RECOVERY_STATES = ['running', 'paused', 'done', 'cancelled'] as const;
type RecoveryState = (typeof RECOVERY_STATES)[number];

/** Which events are sent again: those whose delivery had one of these outcomes, at or after `from` and before `to`. */
type MissedRange = { assistantId: string; endpointId: string; from: Date; to: Date; outcomes: Recoverable[] };

/** What a recovery sends again. An event with several deliveries counts with the outcome that risks most. */
type MissedCounts = {
  events: number;
  conversations: number;
  /** When the oldest of the events happened. */
  oldest: Date | null;
  byOutcome: Record<Recoverable, number>;
};

export type StoredRecovery = MissedRange & {
  _id: string;
  state: RecoveryState;
  /**
   * The time of the start in milliseconds, plus one for each change of the state. So what is newer has a higher
   * version.
   */
  version: number;
  /** Set while the recovery is running or paused. An endpoint has at most one such recovery. */
  active?: true;
  /** Set while workers have something to do: to walk the range, or to remove the note at the endpoint. */
  due?: Date;
  /** What was to be sent when it began. */
  events: number;
  conversations: number;
  /** Everything before this position was dealt with. */
  position?: EndPosition;
  lease?: Lease;
  createdAt: Date;
  createdBy: string;
  endedAt: Date | null;
  expiresAt?: Date;
};

export type RecoveryProgress = StoredRecovery & { sent: Partial<Record<Outcome, number>> };

const recoverySchema = schemaOf<StoredRecovery>('recoveries');
recoverySchema.index(
  { endpointId: 1 },
  { name: 'active', unique: true, partialFilterExpression: { active: { $exists: true } } },
);
recoverySchema.index({ endpointId: 1, createdAt: -1 });
recoverySchema.index(
  { assistantId: 1, due: 1 },
  { name: 'due_by_assistant', partialFilterExpression: { due: { $exists: true } } },
);
recoverySchema.index({ expiresAt: 1 }, { expireAfterSeconds: 0 });

/** A delivery whose event a recovery may send next, and the number of its redelivery. */
export type Missed = { delivery: StoredDelivery; body: string; number: number };
/** `more`: some were looked at, and none of them is sent again. The next look goes on behind them. */
type NextMissed = Missed | 'in flight' | 'more' | null;

/**
 * Recoveries: what an endpoint missed is sent again (docs/design.md, Recoveries). A recovery is a document; what it has
 * sent are its redeliveries, so its progress is counted from them and survives any crash.
 */
export type Recoveries = {
  models: Indexed[];

  /** What a recovery of this range sends again. */
  plan: (range: MissedRange) => Promise<MissedCounts>;

  /** Starts a recovery. An endpoint has at most one that is not over. */
  start: (range: MissedRange, createdBy: string) => Promise<RecoveryProgress & MissedCounts>;

  find: (recoveryId: string) => Promise<StoredRecovery | null>;
  read: (recoveryId: string) => Promise<RecoveryProgress>;
  list: (endpointId: string) => Promise<RecoveryProgress[]>;

  /** Changes the state of a recovery that is not over. */
  change: (recoveryId: string, to: Exclude<RecoveryState, 'done'>) => Promise<void>;

  /**
   * Recoveries of which nobody has the lease and that have something to do, the longest due first: a few of each
   * assistant. If there are more than `limit`, the next call goes on with other assistants.
   */
  findDue: (limit: number) => Promise<StoredRecovery[]>;

  /** Takes or renews the lease, and stores the position. Null if another worker has the lease, or nothing is due. */
  lease: (recoveryId: string, token: string, position?: EndPosition) => Promise<StoredRecovery | null>;
  release: (recoveryId: string, token: string) => Promise<void>;

  /** Notes a running recovery at its endpoint. Removes the note of a recovery that is paused or over. */
  settle: (recovery: StoredRecovery, token: string) => Promise<void>;

  /** Ends a recovery that has walked its whole range. */
  finish: (recovery: StoredRecovery, token: string, state: 'done' | 'cancelled') => Promise<void>;

  /** The next deliveries after a position that are not dealt with yet. `isLast`: no further ones can follow. */
  listMissed: (
    recovery: StoredRecovery,
    after: EndPosition | undefined,
    limit: number,
  ) => Promise<{ missed: (EndPosition & { conversationId: string })[]; isLast: boolean }>;

  /** True if all of these are dealt with. */
  areDealtWith: (recoveryId: string, deliveryIds: string[]) => Promise<boolean>;

  /** Marks deliveries of a conversation that is gone as dealt with, without sending anything. */
  leaveOut: (recoveryId: string, deliveryIds: string[]) => Promise<void>;

  /** What a running recovery sends next in this conversation. `in flight`: somebody is sending it. */
  nextMissed: (recoveryId: string, conversationId: string) => Promise<NextMissed>;

  /** True if nothing can be added to the range of this recovery any more. */
  isOver: (range: Pick<MissedRange, 'to'>, now: number) => boolean;
};

type Dependencies = {
  connection: Connection;
  endpoints: Pick<EndpointStore, 'noteRecovery' | 'forgetRecovery'>;
  retentionDays: number;
  endWrittenWithinMs: number;
};

export const createRecoveries = ({
  connection,
  endpoints,
  retentionDays,
  endWrittenWithinMs,
}: Dependencies): Recoveries => {
  const model = connection.model<StoredRecovery>('Recovery', recoverySchema);
  const recoveries = collectionOf<StoredRecovery>(model);
  const deliveries = collectionOf<StoredDelivery>(deliveryModel(connection));
  const readHorizon = createReadHorizon(connection, endWrittenWithinMs);
  const leases = leaseIn('lease', LEASE_MS);
  const round = createRound<StoredRecovery>();
  /**
   * How far a recovery has dealt with a conversation. Without this, each event would read all earlier ones again, and
   * the time of a long conversation would grow with the square of its events. It is only a hint: at the end, and now
   * and then, all deliveries are read.
   */
  const reached = createLru<number>({ most: REACHED_MAX, ttl: REACHED_FOR_MS, noUpdateTTL: true });

  /** What a recovery may send again: events with a stored body, and no test events, which belong to no conversation. */
  const isMissed = ({ assistantId, endpointId, from, to, outcomes }: MissedRange) => ({
    assistantId,
    endpointId,
    outcome: { $in: [...outcomes] },
    endedOn: { $exists: true, $gte: clusterTimeOf(from), $lt: clusterTimeOf(to) },
    conversationId: { $ne: null },
    body: { $gt: '' },
    settled: { $ne: true as const },
  });

  const plan: Recoveries['plan'] = async (range) => {
    const ofEach = (make: (outcome: Recoverable) => object) =>
      Object.fromEntries(RECOVERABLE.map((outcome) => [outcome, make(outcome)]));
    const counts = ofEach((outcome) => ({ $sum: `$${outcome}` }));
    const sums = { ...counts, records: { $sum: '$records' }, oldest: { $min: '$oldest' } };
    const [found] = await deliveries
      .aggregate<Record<Recoverable, number> & { records: number; conversations: number; oldest: Date }>(
        [
          { $match: isMissed(range) },
          { $limit: EVENTS_PER_RECOVERY + 1 },
          {
            $group: {
              _id: '$eventId',
              conversationId: { $first: '$conversationId' },
              outcome: { $max: '$outcome' }, // sorted by name, the one that risks most is the last
              records: { $sum: 1 },
              oldest: { $min: '$happenedAt' },
            },
          },
          // Computed apart: MongoDB 6.0 fails at a group whose accumulators compute, if another group follows.
          { $set: ofEach((one) => ({ $cond: [{ $eq: ['$outcome', one] }, 1, 0] })) },
          { $group: { _id: '$conversationId', ...sums } },
          { $group: { _id: null, conversations: { $sum: 1 }, ...sums } },
        ],
        { hint: ENDED, ...timeLimit(PLAN_WITHIN_MS) },
      )
      .toArray();
    if (!found)
      return { events: 0, conversations: 0, oldest: null, byOutcome: { not_sent: 0, rejected: 0, unknown: 0 } };
    const { records, conversations, oldest, not_sent, rejected, unknown } = found;
    if (records > EVENTS_PER_RECOVERY)
      throw invalid('from', 'too_many', `must be later: a recovery has at most ${EVENTS_PER_RECOVERY} events`);
    const byOutcome = { not_sent, rejected, unknown };
    return { events: not_sent + rejected + unknown, conversations, oldest, byOutcome };
  };

  const withProgress = async (all: StoredRecovery[]): Promise<RecoveryProgress[]> => {
    const rows = await deliveries
      .aggregate<{ _id: { id: string; outcome: Outcome }; count: number }>(
        [
          { $match: { recoveryId: { $in: all.map(({ _id }) => _id) } } },
          { $group: { _id: { id: '$recoveryId', outcome: '$outcome' }, count: { $sum: 1 } } },
        ],
        { hint: RECOVERED, ...timeLimit(PROGRESS_WITHIN_MS) },
      )
      .toArray();
    return all.map((one) => {
      const own = rows.filter(({ _id: { id } }) => id === one._id);
      return { ...one, sent: Object.fromEntries(own.map(({ _id: { outcome }, count }) => [outcome, count])) };
    });
  };

  const find: Recoveries['find'] = (recoveryId) => recoveries.findOne({ _id: recoveryId });

  const read: Recoveries['read'] = async (recoveryId) => {
    const found = await find(recoveryId);
    const [one] = found ? await withProgress([found]) : [];
    if (!one) throw notFound();
    return one;
  };

  const over = (state: RecoveryState) => {
    const now = serverDate();
    return { state, endedAt: now, expiresAt: new Date(now.getTime() + retentionDays * DAY_MS) };
  };

  const tellEndpoint = async ({ _id, endpointId, state, version, to }: StoredRecovery): Promise<void> => {
    if (state === 'running') await endpoints.noteRecovery(endpointId, { recoveryId: _id, version, to });
    else await endpoints.forgetRecovery(endpointId, { version });
  };

  /** Notes that this recovery has dealt with a delivery. */
  const deal = (recoveryId: string, deliveryIds: string[], settled = false) =>
    deliveries.updateMany(
      { _id: { $in: deliveryIds } },
      { $set: { recoveredBy: recoveryId, ...(settled && { settled: true as const }) } },
      { writeConcern: DURABLE },
    );

  /**
   * Decides from all deliveries of the event to this endpoint whether the event is sent again. Returns null if not, and
   * marks the delivery as dealt with. If the mark is lost, this is decided again.
   */
  const judge = async (recovery: StoredRecovery, delivery: StoredDelivery): Promise<NextMissed> => {
    const all = await deliveries
      .find(sameEventAs(delivery), { projection: { outcome: 1, redelivery: 1, recoveryId: 1 } })
      .toArray();
    if (all.some(({ outcome }) => outcome === 'sending')) return 'in flight';
    const wanted: readonly Outcome[] = recovery.outcomes;
    const isOurs = all.some(({ recoveryId }) => recoveryId === recovery._id);
    const isSettled = all.some(
      ({ outcome, redelivery }) => outcome === 'delivered' || (redelivery && outcome === 'unknown'),
    );
    const number = Math.max(0, ...all.map(resendNumberOf)) + 1;
    const isMissed = all.every(({ outcome }) => isFinal(outcome) && wanted.includes(outcome));
    if (!isOurs && !isSettled && isMissed && number <= SENT_AGAIN_MAX) {
      const { body } = (await deliveries.findOne({ _id: delivery._id }, { projection: { body: 1 } })) ?? {};
      if (body) return { delivery, body, number };
    }
    await deal(recovery._id, [delivery._id], isSettled);
    return null;
  };

  return {
    models: [model],
    plan,
    find,
    read,

    start: async (range, createdBy) => {
      const { oldest, byOutcome, ...counted } = await plan(range);
      const now = serverDate();
      const recovery: StoredRecovery = {
        ...range,
        _id: newId(),
        state: 'running',
        version: now.getTime(),
        active: true,
        due: now,
        ...counted,
        createdAt: now,
        createdBy,
        endedAt: null,
      };
      await recoveries.insertOne(recovery, { writeConcern: DURABLE }).catch((cause: unknown) => {
        if (!isDuplicateKey(cause)) throw cause;
        throw new ApiError('validation_failed', {
          message: 'A recovery of this endpoint is not over. Cancel it, or wait for its end.',
        });
      });
      // The streams must know of the recovery before the caller does. After a crash here, a worker makes the note.
      await tellEndpoint(recovery);
      return { ...recovery, sent: {}, oldest, byOutcome };
    },

    list: async (endpointId) =>
      withProgress(await recoveries.find({ endpointId }).sort({ createdAt: -1 }).limit(LISTED).toArray()),

    change: async (recoveryId, to) => {
      const from: RecoveryState[] =
        to === 'cancelled' ? ['running', 'paused'] : [to === 'paused' ? 'running' : 'paused'];
      const isOver = to === 'cancelled';
      const changed = await recoveries.findOneAndUpdate(
        { _id: recoveryId, state: { $in: from } },
        {
          $set: { due: serverDate(), ...(isOver ? over(to) : { state: to }) },
          $inc: { version: 1 },
          ...(isOver && { $unset: { active: '' as const } }),
        },
        { returnDocument: 'after', writeConcern: DURABLE },
      );
      if (changed) {
        await tellEndpoint(changed);
        // A worker that drives it may still note it at its endpoint, and removes the note. If none does, nothing is left
        // to do: many that were cancelled at once would else stand before others of their assistant.
        const { version } = changed;
        if (to !== 'running')
          await recoveries.updateOne({ _id: recoveryId, version, ...leases.free }, { $unset: { due: '' } });
        return;
      }
      const now = await find(recoveryId);
      if (!now) throw notFound();
      if (now.state !== to) throw new ApiError('validation_failed', { message: `The recovery is ${now.state}.` });
    },

    findDue: async (limit) => {
      const found = await round(limit, (assistantId) =>
        recoveries
          .find({ assistantId, due: { $exists: true }, ...leases.free })
          .sort({ assistantId: 1, due: 1 })
          .hint('due_by_assistant')
          .limit(DUE_OF_ONE)
          .toArray(),
      );
      return found.toSorted((one, other) => Number(one.due) - Number(other.due));
    },

    lease: (recoveryId, token, position) =>
      recoveries.findOneAndUpdate(
        { _id: recoveryId, due: { $exists: true }, $or: [leases.free, leases.heldBy(token)] },
        // `findDue` lists the longest due first, so a recovery that had its turn goes behind others of its assistant.
        [
          {
            $set: { lease: leases.renewed(token), due: '$$NOW', ...(position && { position: { $literal: position } }) },
          },
        ],
        { returnDocument: 'after', writeConcern: DURABLE },
      ),

    release: async (recoveryId, token) => {
      await recoveries.updateOne({ _id: recoveryId, ...leases.heldBy(token) }, { $unset: leases.ended });
    },

    settle: async (recovery, token) => {
      await tellEndpoint(recovery);
      if (recovery.state === 'running') return;
      const { _id, version } = recovery;
      await recoveries.updateOne(
        { _id, version, ...leases.heldBy(token) },
        { $unset: { due: '', ...leases.ended } },
        { writeConcern: DURABLE },
      );
    },

    finish: async (recovery, token, state) => {
      const { _id, version } = recovery;
      await recoveries.updateOne(
        { _id, version, state: 'running', ...leases.heldBy(token) },
        { $set: over(state), $inc: { version: 1 }, $unset: { active: '' } },
        { writeConcern: DURABLE },
      );
      // The recovery is still due, so that a worker removes its note, even after a crash here.
    },

    listMissed: async (recovery, after, limit) => {
      const horizon = await readHorizon();
      const { endedOn, ...rest } = isMissed(recovery);
      const isLast = clusterTimeOf(recovery.to).compare(horizon) <= 0;
      const rows = await deliveries
        .find(
          {
            ...rest,
            endedOn: { ...endedOn, ...(after && { $gte: after.endedOn }), ...(!isLast && { $lt: horizon }) },
            recoveredBy: { $ne: recovery._id },
            ...(after && behindEnd(after)),
          },
          { projection: { endedOn: 1, conversationId: 1 }, hint: ENDED, ...timeLimit(PLAN_WITHIN_MS) },
        )
        .sort({ endedOn: 1, _id: 1 })
        .limit(limit)
        .toArray();
      const missed = rows.flatMap((row) => {
        if (!row.endedOn || row.conversationId === null) return [];
        return [{ endedOn: row.endedOn, id: row._id, conversationId: row.conversationId }];
      });
      return { missed, isLast: isLast && rows.length < limit };
    },

    areDealtWith: async (recoveryId, deliveryIds) => {
      const left = { _id: { $in: deliveryIds }, recoveredBy: { $ne: recoveryId }, settled: { $ne: true as const } };
      return (await deliveries.findOne(left, { projection: { _id: 1 } })) === null;
    },

    leaveOut: async (recoveryId, deliveryIds) => void (await deal(recoveryId, deliveryIds)),

    nextMissed: async (recoveryId, conversationId) => {
      const recovery = await recoveries.findOne({ _id: recoveryId });
      if (recovery?.state !== 'running') return null;
      // MongoDB uses the partial index only if the filter names all three of its outcomes. `judge` drops those not
      // wanted.
      const those = { ...isMissed(recovery), outcome: { $in: [...RECOVERABLE] }, conversationId };
      const key = `${recoveryId}:${conversationId}`;
      for (;;) {
        const from = reached.get(key);
        const candidates = await deliveries
          .find(
            { ...those, recoveredBy: { $ne: recoveryId }, ...(from !== undefined && { sequence: { $gte: from } }) },
            { projection: WITHOUT_TEXTS },
          )
          .sort({ sequence: 1 })
          .hint(MISSED)
          .limit(CANDIDATES_AT_ONCE)
          .toArray();
        for (const candidate of candidates) {
          const judged = await judge(recovery, candidate);
          if (candidate.sequence != null) reached.set(key, candidate.sequence);
          if (judged !== null) return judged;
        }
        if (candidates.length === CANDIDATES_AT_ONCE) return 'more';
        if (from === undefined) return null;
        reached.delete(key);
      }
    },

    isOver: ({ to }, now) => now > to.getTime() + 2 * endWrittenWithinMs,
  };
};
