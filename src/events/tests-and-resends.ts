import { serverDate, serverNow } from '../platform/process/clock.ts';
import { ApiError, invalid, orNotFound } from '../platform/process/errors.ts';
import { newId, newToken } from '../platform/process/ids.ts';
import { collectionOf, createReader, DURABLE, setClusterTime, timeLimit } from '../platform/mongo/mongo.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { type Claim, claimAgain, type ClaimOptions, newRecord, type Redelivery } from './claims.ts';
import {
  ENDED_OF_CONVERSATION,
  ENDS,
  type ErrorKind,
  type FinalOutcome,
  IN_FLIGHT,
  isFinal,
  type Outcome,
  OWN_IN_FLIGHT,
  resendNumberOf,
  sameEventAs,
  SENT_AGAIN_MAX,
  stateBefore,
  deliveryModel,
  type StoredDelivery,
  tellsOfErasure,
} from './delivery.ts';
import type { ErasedConversation, ErasureEvent } from '../conversations/erasure.ts';
import type { Endpoint } from './endpoint.ts';
import { composeErasedBody, ERASED_EVENTS_MAX, type EventKind } from '../conversations/event.ts';
import { composeTestBody } from './wire.ts';

const QUEUED_PER_SWEEP = 500;
/** How many deliveries of an erased conversation are read, newest first. Its counters tell that there were older ones. */
const ERASED_READ_MAX = 50_000;
const ERASED_READ_WITHIN_MS = 5_000;
/** The receiver got it, whatever it answered, or may have got it. */
const GOT: Outcome[] = ['delivered', 'rejected', 'unknown'];

/** `may_double` if a resend may give the receiver the event a second time, else `safe`. */
export type ResendRisk = 'safe' | 'may_double';

/** The number of the next resend, and its risk. */
type ResendPlan = { number: number; risk: ResendRisk };

type Resend = { original: StoredDelivery; plan: ResendPlan; number: number; url: string };

/**
 * Deliveries that do not come from an outbox: test events and resends. They do not take part in the order of a stream.
 */
export type TestsAndResends = {
  findDelivery: (deliveryId: string) => Promise<StoredDelivery | null>;
  getDelivery: (deliveryId: string) => Promise<StoredDelivery>;

  /**
   * The number and the risk of the next resend, which the page shows. The risk is `safe` only if the receiver certainly
   * got none of the event's previous deliveries.
   */
  planResend: (original: StoredDelivery) => Promise<ResendPlan>;

  /**
   * Queues a test event of this kind with a sample payload. It belongs to no conversation. Returns the id of the
   * delivery.
   */
  queueTest: (endpoint: { endpointId: string; assistantId: string; url: string }, event?: EventKind) => Promise<string>;

  /**
   * Queues a resend. `number` is the number that the page showed, so that a double click makes only one resend.
   * `plan` must be read after `original`. Returns the id of the new delivery.
   */
  queueResend: (resend: Resend) => Promise<string>;

  /**
   * Queues the event that tells of an erasure, for those endpoints that got something of the conversation or may have
   * got it. Returns the ids of the deliveries. Null if another event of the conversation is in flight.
   */
  queueErased: (erased: ErasureEvent, to: Pick<Endpoint, 'endpointId' | 'url'>[]) => Promise<string[] | null>;

  /** Queues an event that a recovery sends again and whose conversation is gone. Returns the id of the delivery. */
  queueMissed: (
    missed: { delivery: StoredDelivery; body: string; number: number },
    recoveryId: string,
  ) => Promise<string>;

  /** What must be known of a queued delivery before it has a slot. Reads are batched. */
  readQueued: (deliveryId: string) => Promise<QueuedRow | null>;

  /** Claims a test or a resend by a compare-and-set from `queued`. */
  claimQueued: (deliveryId: string) => Promise<{ delivery: StoredDelivery; token: string } | null>;

  /**
   * Ends queued tests and resends that are too old. Returns the ids of those that need another wake-up: the oldest ones
   * of some assistants. The next call continues with other assistants. What tells of erasures waits at paused endpoints.
   */
  sweepQueued: (options: {
    wakeAfterMs: number;
    expireAfterMs: number;
    pausedIds: ReadonlySet<string>;
  }) => Promise<string[]>;
};

/** What an endpoint got of a conversation. `newest` begins with the events that it got or may have got. */
type ReceivedBy = {
  _id: string;
  got: number;
  first: number;
  last: number;
  newest: { eventId: string; isGot: boolean }[];
};

/** Without the body, which may have 96 KB: thousands may wait for a slot. The index has all of these, for the sweep. */
const QUEUED_FIELDS = { outcome: 1, assistantId: 1, endpointId: 1, event: 1, conversationId: 1 } as const;
type QueuedRow = Pick<StoredDelivery, '_id' | keyof typeof QUEUED_FIELDS>;

export const createTestsAndResends = (
  { connection, worker, retentionDays }: ClaimOptions,
  erasedReadMax = ERASED_READ_MAX,
): TestsAndResends => {
  const deliveries = collectionOf<StoredDelivery>(deliveryModel(connection));
  /** The assistant at which the last sweep reached its limit. The next sweep continues after it. */
  let sweptTo: string | null = null;

  const findDelivery = (deliveryId: string): Promise<StoredDelivery | null> => deliveries.findOne({ _id: deliveryId });

  const getDelivery = async (deliveryId: string): Promise<StoredDelivery> => {
    return orNotFound(await findDelivery(deliveryId));
  };

  const queue = async (claim: Claim, again?: Redelivery): Promise<string> => {
    const record = newRecord(claim, { worker, retentionDays, ...again });
    await deliveries
      .insertOne({ ...record, outcome: 'queued', token: null, worker: null }, { writeConcern: DURABLE })
      .catch((cause: unknown) => {
        // A double click sends the same resend twice. The second insert is a duplicate, and the first one counts.
        if (!isDuplicateKey(cause)) throw cause;
      });
    return record._id;
  };

  /** All deliveries of the same event to the same endpoint: the first delivery and its resends. */
  const readSiblings = (delivery: StoredDelivery): Promise<Pick<StoredDelivery, '_id' | 'outcome'>[]> =>
    deliveries.find(sameEventAs(delivery), { projection: { outcome: 1 } }).toArray();

  /**
   * True if a delivery of the conversation is in flight. One that is claimed between the two reads is found by the
   * second. One that is released between them was not sent, and will not be: its conversation is gone.
   */
  const isInFlight = async ({ assistantId, conversationId }: ErasedConversation): Promise<boolean> => {
    const own = { assistantId, conversationId, event: { $ne: 'conversation.erased' as const } };
    const options = { hint: OWN_IN_FLIGHT, projection: { _id: 1 } };
    for (const outcome of ['queued', 'sending'] as const)
      if (await deliveries.findOne({ ...own, outcome }, options)) return true;
    return false;
  };

  /**
   * Counts for each endpoint, of the newest deliveries of a conversation: those it got or may have got, first deliveries
   * (no resends). Also its highest sequence number, and the last events that it got or may have got. An event that was
   * sent again has several deliveries. No document is read: the index has all of this. What is in flight is not in it.
   */
  const readReceived = (conversationId: string): Promise<ReceivedBy[]> =>
    deliveries
      .aggregate<ReceivedBy>(
        [
          { $match: { conversationId, event: { $ne: 'conversation.erased' }, outcome: { $in: ENDS } } },
          { $sort: { happenedAt: -1 } },
          { $limit: erasedReadMax },
          {
            $group: {
              _id: { endpointId: '$endpointId', eventId: '$eventId' },
              got: { $sum: { $cond: [{ $in: ['$outcome', GOT] }, 1, 0] } },
              first: { $sum: { $cond: ['$redelivery', 0, 1] } },
              sequence: { $max: '$sequence' },
              at: { $max: '$happenedAt' },
            },
          },
          { $set: { isGot: { $gt: ['$got', 0] } } },
          {
            $group: {
              _id: '$_id.endpointId',
              got: { $sum: '$got' },
              first: { $sum: '$first' },
              last: { $max: { $ifNull: ['$sequence', 0] } },
              newest: {
                $topN: {
                  n: ERASED_EVENTS_MAX + 1,
                  sortBy: { isGot: -1, sequence: -1, at: -1 },
                  output: { eventId: '$_id.eventId', isGot: '$isGot' },
                },
              },
            },
          },
        ],
        { hint: ENDED_OF_CONVERSATION, ...timeLimit(ERASED_READ_WITHIN_MS) },
      )
      .toArray();

  const planResend = async (original: StoredDelivery): Promise<ResendPlan> => {
    const siblings = await readSiblings(original);
    const safe = siblings.every(({ outcome }) => outcome === 'not_sent');
    return { number: Math.max(0, ...siblings.map(resendNumberOf)) + 1, risk: safe ? 'safe' : 'may_double' };
  };

  return {
    findDelivery,

    getDelivery,

    planResend,

    queueTest: ({ endpointId, assistantId, url }, event = 'webhook.test') => {
      const eventId = newId();
      const body = composeTestBody(event, eventId, Math.floor(serverNow() / 1000));
      return queue({
        eventId,
        endpointId,
        assistantId,
        url,
        conversationId: null,
        event,
        body,
        sequence: null,
        happenedAt: serverDate(),
      });
    },

    queueResend: async ({ original, plan, number, url }) => {
      const { body } = original;
      if (!isFinal(original.outcome) || !body) {
        throw new ApiError('validation_failed', {
          message: 'Only an ended delivery whose body is stored can be resent.',
        });
      }
      if (number > SENT_AGAIN_MAX) {
        throw new ApiError('validation_failed', {
          message: `This event was sent again ${SENT_AGAIN_MAX} times, which is the most.`,
        });
      }
      if (!Number.isInteger(number) || number < 1 || number > plan.number) {
        throw invalid('number', 'out_of_range', `must be 1–${plan.number}: the number shown with the delivery`);
      }
      return queue(claimAgain(original, { url, body }), { resend: number });
    },

    queueErased: async ({ conversationId, assistantId, eventId, erasedAt, ended }, to) => {
      // First, so that what has just ended is among those that are read then.
      if (await isInFlight({ assistantId, conversationId })) return null;
      const found = await readReceived(conversationId);
      const ids: string[] = [];
      for (const { endpointId, url } of to) {
        const known = found.find(({ _id }) => _id === endpointId) ?? { got: 0, first: 0, last: 0, newest: [] };
        // Skips an endpoint that certainly got nothing. If more events have ended than it has records of first
        // deliveries, some records are gone, and their events may have been delivered.
        const { [endpointId]: left = 0 } = ended;
        if (known.got === 0 && left <= known.first) continue;
        const events = known.newest.filter(({ isGot }) => isGot).map((event) => event.eventId);
        const eventIds = events.slice(0, ERASED_EVENTS_MAX).toReversed();
        const more = events.length > ERASED_EVENTS_MAX || left > known.first;
        const received = { conversationId, eventIds, more };
        const body = composeErasedBody(eventId, Math.floor(erasedAt.getTime() / 1000), received);
        const claim = { eventId, endpointId, assistantId, conversationId, event: 'conversation.erased' as const };
        const sequence = Math.max(known.last, left) + 1;
        ids.push(await queue({ ...claim, url, body, sequence, happenedAt: erasedAt }));
      }
      return ids;
    },

    queueMissed: ({ delivery, body, number }, recoveryId) =>
      queue(claimAgain(delivery, { url: delivery.url, body }), { resend: number, recoveryId }),

    readQueued: createReader<StoredDelivery, QueuedRow>(deliveries, QUEUED_FIELDS),

    claimQueued: async (deliveryId) => {
      const token = newToken();
      const delivery = await deliveries.findOneAndUpdate(
        { _id: deliveryId, ...stateBefore('claimQueued') },
        { $set: { outcome: 'sending', token, worker }, $currentDate: { claimedAt: { $type: 'timestamp' } } },
        { returnDocument: 'after', writeConcern: DURABLE },
      );
      return delivery && { delivery, token };
    },

    sweepQueued: async ({ wakeAfterMs, expireAfterMs, pausedIds }) => {
      // The ranges make MongoDB use the index, with one seek for each assistant. Without one of assistants, it would read
      // all documents that are queued. The exact comparison is the one with `$$NOW`.
      const range = (ms: number) => ({ createdAt: { $lt: new Date(serverNow() - ms) }, assistantId: { $gt: '' } });
      const isOlder = (ms: number) => ({ $lt: ['$createdAt', { $subtract: ['$$NOW', ms] }] });
      const end: { outcome: FinalOutcome; errorKind: ErrorKind } = { outcome: 'not_sent', errorKind: 'expired' };
      await deliveries.updateMany(
        { ...stateBefore('expire'), ...range(expireAfterMs), $expr: isOlder(expireAfterMs) },
        { $set: { ...end, endedAt: serverDate() }, ...setClusterTime('endedOn') },
        { writeConcern: DURABLE, hint: IN_FLIGHT.queued },
      );
      const behind = sweptTo === null ? {} : { assistantId: { $gt: '', $lt: sweptTo } };
      const rows = await deliveries
        .find({ ...stateBefore('claimQueued'), ...range(wakeAfterMs), ...behind })
        // Not in the filter, for which MongoDB would read the documents.
        .project<QueuedRow & { isDue: boolean }>({ ...QUEUED_FIELDS, isDue: isOlder(wakeAfterMs) })
        .sort({ assistantId: -1, createdAt: 1, _id: 1 })
        .hint(IN_FLIGHT.queued)
        .limit(QUEUED_PER_SWEEP)
        .toArray();
      sweptTo = rows.length < QUEUED_PER_SWEEP ? null : (rows.at(-1)?.assistantId ?? null);
      const waits = (row: QueuedRow): boolean => tellsOfErasure(row) && pausedIds.has(row.endpointId);
      return rows.filter((row) => row.isDue && !waits(row)).map(({ _id }) => _id);
    },
  };
};
