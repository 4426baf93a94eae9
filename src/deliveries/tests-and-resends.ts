import { serverDate, serverNow } from '../process/clock.ts';
import { ApiError, invalid, notFound } from '../process/errors.ts';
import { newId, newToken } from '../process/ids.ts';
import { collectionOf, DURABLE } from '../mongo/mongo.ts';
import { isDuplicateKey } from '../mongo/failures.ts';
import { type Claim, newRecord, type ClaimOptions } from './claims.ts';
import {
  type ErrorKind,
  type FinalOutcome,
  IN_FLIGHT,
  isFinal,
  stateBefore,
  deliveryModel,
  type StoredDelivery,
} from './delivery.ts';
import { composeTestBody } from '../webhooks/event.ts';

const QUEUED_PER_SWEEP = 500;

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

  /** Queues a test event and composes its body. Returns the id of the delivery. */
  queueTest: (endpoint: { endpointId: string; assistantId: string; url: string }) => Promise<string>;

  /**
   * Queues a resend. `number` is the number that the page showed, so that a double click makes only one resend.
   * `plan` must be read after `original`. Returns the id of the new delivery.
   */
  queueResend: (resend: Resend) => Promise<string>;

  /** Claims a test or a resend by a compare-and-set from `queued`. */
  claimQueued: (deliveryId: string) => Promise<{ delivery: StoredDelivery; token: string } | null>;

  /**
   * Ends queued tests and resends that are too old. Returns the ids of those that need another wake-up: the oldest of
   * some assistants, and at the next call those of the others.
   */
  sweepQueued: (options: { wakeAfterMs: number; expireAfterMs: number }) => Promise<string[]>;
};

export const createTestsAndResends = ({ connection, worker, retentionDays }: ClaimOptions): TestsAndResends => {
  const deliveries = collectionOf<StoredDelivery>(deliveryModel(connection));
  /** The assistant at which the last sweep had enough. The next one goes on behind it. */
  let sweptTo: string | null = null;

  const findDelivery = (deliveryId: string): Promise<StoredDelivery | null> => deliveries.findOne({ _id: deliveryId });

  const getDelivery = async (deliveryId: string): Promise<StoredDelivery> => {
    const row = await findDelivery(deliveryId);
    if (!row) throw notFound();
    return row;
  };

  const queue = async (claim: Claim, resend?: number): Promise<string> => {
    const record = newRecord(claim, { worker, retentionDays, ...(resend !== undefined && { resend }) });
    await deliveries
      .insertOne({ ...record, outcome: 'queued', token: null, worker: null }, { writeConcern: DURABLE })
      .catch((cause: unknown) => {
        // A double click sends the same resend twice. The second insert is a duplicate, and the first one counts.
        if (!isDuplicateKey(cause)) throw cause;
      });
    return record._id;
  };

  /** All deliveries of the same event to the same endpoint: the first delivery and its resends. */
  const readSiblings = ({ eventId, endpointId }: StoredDelivery): Promise<StoredDelivery[]> =>
    deliveries.find({ _id: { $gte: `${eventId}:${endpointId}`, $lt: `${eventId}:${endpointId};` } }).toArray();

  const planResend = async (original: StoredDelivery): Promise<ResendPlan> => {
    const siblings = await readSiblings(original);
    const safe = siblings.every(({ outcome }) => outcome === 'not_sent');
    return { number: Math.max(0, ...siblings.map(resendNumberOf)) + 1, risk: safe ? 'safe' : 'may_double' };
  };

  return {
    findDelivery,

    getDelivery,

    planResend,

    queueTest: (endpoint) => {
      const { endpointId, assistantId, url } = endpoint;
      const eventId = newId();
      const body = composeTestBody(eventId, Math.floor(serverNow() / 1000));
      const event = 'webhook.test';
      return queue({
        eventId,
        endpointId,
        assistantId,
        url,
        conversationId: null,
        event,
        body,
        happenedAt: serverDate(),
      });
    },

    queueResend: async ({ original, plan, number, url }) => {
      const { body, eventId, endpointId, assistantId, conversationId, event, happenedAt } = original;
      if (!isFinal(original.outcome) || !body) {
        throw new ApiError('validation_failed', {
          message: 'Only an ended delivery whose body is stored can be resent.',
        });
      }
      if (!Number.isInteger(number) || number < 1 || number > plan.number) {
        throw invalid('number', 'out_of_range', `must be 1–${plan.number}: the number shown with the delivery`);
      }
      return queue({ eventId, endpointId, assistantId, conversationId, event, url, body, happenedAt }, number);
    },

    claimQueued: async (deliveryId) => {
      const token = newToken();
      const delivery = await deliveries.findOneAndUpdate(
        { _id: deliveryId, ...stateBefore('claimQueued') },
        { $set: { outcome: 'sending', token, worker }, $currentDate: { claimedAt: { $type: 'timestamp' } } },
        { returnDocument: 'after', writeConcern: DURABLE },
      );
      return delivery && { delivery, token };
    },

    sweepQueued: async ({ wakeAfterMs, expireAfterMs }) => {
      // The range finds them in the index, with one seek for each assistant, and `$$NOW` decides.
      const older = (ms: number) => ({
        createdAt: { $lt: new Date(serverNow() - ms) },
        $expr: { $lt: ['$createdAt', { $subtract: ['$$NOW', ms] }] },
      });
      const end: { outcome: FinalOutcome; errorKind: ErrorKind } = { outcome: 'not_sent', errorKind: 'expired' };
      await deliveries.updateMany(
        { ...stateBefore('expire'), ...older(expireAfterMs) },
        { $set: { ...end, endedAt: serverDate() } },
        { writeConcern: DURABLE, hint: IN_FLIGHT.queued },
      );
      const behind = sweptTo === null ? {} : { assistantId: { $lt: sweptTo } };
      const rows = await deliveries
        .find({ ...stateBefore('claimQueued'), ...older(wakeAfterMs), ...behind })
        .project<{ _id: string; assistantId: string }>({ _id: 1, assistantId: 1 })
        .sort({ assistantId: -1, createdAt: 1, _id: 1 })
        .hint(IN_FLIGHT.queued)
        .limit(QUEUED_PER_SWEEP)
        .toArray();
      sweptTo = rows.length < QUEUED_PER_SWEEP ? null : (rows.at(-1)?.assistantId ?? null);
      return rows.map(({ _id }) => _id);
    },
  };
};

const resendNumberOf = ({ _id }: StoredDelivery): number => Number(_id.split(':')[2] ?? 0);
