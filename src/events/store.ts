import { type Connection, mongo } from 'mongoose';
import { createBatcher } from '../platform/batch.ts';
import { ApiError, notFound } from '../platform/errors.ts';
import { newId, newToken } from '../platform/ids.ts';
import { collectionOf, DURABLE, insertMany, isDuplicateKey, updateMany } from '../platform/mongo.ts';
import { deliveryIdOf, deliveryModel, type Exchange, type Outcome, type StoredDelivery } from './delivery.ts';
import { composeTestBody, type EventKind } from './event.ts';

const COLLECTION = 'deliveries';
const DAY_MS = 86_400_000;
const LIST_MAX = 200;

/** What a claim fixes: which event goes where, and the bytes of its body. */
export type Claim = {
  eventId: string;
  endpointId: string;
  assistantId: string;
  conversationId: string | null;
  event: EventKind;
  url: string;
  body: string;
  happenedAt: Date;
};

export type ClaimResult =
  | { won: true; deliveryId: string; token: string }
  | { won: false; found: StoredDelivery | null };

type Ended = { deliveryId: string; token: string; exchange: Exchange };

export type DeliveryFilter = {
  assistantId: string;
  endpointId?: string;
  eventId?: string;
  conversationId?: string;
  event?: EventKind;
  outcome?: Outcome;
  from?: Date;
  to?: Date;
  limit?: number;
  cursor?: string;
};

type Dependencies = { connection: Connection; worker: string; retentionDays: number };

/** The record of every delivery, and with it the licence to send: a claim is an insert that only one can win. */
export const createDeliveryStore = ({ connection, worker, retentionDays }: Dependencies) => {
  const model = deliveryModel(connection);
  const deliveries = collectionOf<StoredDelivery>(model);

  const newRecord = (claim: Claim, resend?: number): StoredDelivery => {
    const now = new Date();
    return {
      ...claim,
      _id: deliveryIdOf(claim.eventId, claim.endpointId, resend),
      outcome: 'sending',
      token: newToken(),
      worker,
      // Empty, at top level: the server writes its own time, which the sweeper compares with its own time.
      claimedAt: new mongo.Timestamp({ t: 0, i: 0 }),
      createdAt: now,
      endedAt: null,
      redelivery: resend !== undefined,
      expiresAt: new Date(now.getTime() + retentionDays * DAY_MS),
    };
  };

  const readByIds = async (ids: string[]): Promise<Map<string, StoredDelivery>> => {
    const rows = await deliveries.find({ _id: { $in: ids } }).toArray();
    return new Map(rows.map((row) => [row._id, row]));
  };

  /** Inserts; where the answer is lost, reads back by token: not found is left alone, since it may still land. */
  const insertRecords = async (records: StoredDelivery[]): Promise<ClaimResult[]> => {
    let refused: Set<number> | null = null;
    try {
      const { writeErrors = [] } = await insertMany(connection, COLLECTION, records);
      refused = new Set(writeErrors.map(({ index }) => index));
    } catch {
      refused = null;
    }
    const doubtful = records.filter((_, index) => refused === null || refused.has(index)).map(({ _id }) => _id);
    const found = doubtful.length > 0 ? await readByIds(doubtful) : new Map<string, StoredDelivery>();
    return records.map(({ _id, token }, index): ClaimResult => {
      const known = found.get(_id) ?? null;
      const won = refused?.has(index) === false || (known !== null && known.token === token);
      return won ? { won, deliveryId: _id, token: token as string } : { won: false, found: known };
    });
  };

  const claim = createBatcher<{ claim: Claim; exchange?: Exchange }, ClaimResult>((items) =>
    insertRecords(
      items.map(({ claim: wanted, exchange }) => ({
        ...newRecord(wanted),
        // Expired, backlog, removed, disabled: claimed and ended at once, nothing is ever sent.
        ...(exchange && { ...exchange, endedAt: new Date() }),
      })),
    ),
  );

  const recordOutcome = createBatcher<Ended, void>(async (items) => {
    await updateMany(
      connection,
      COLLECTION,
      items.map(({ deliveryId, token, exchange }) => ({
        q: { _id: deliveryId, token, outcome: 'sending' },
        u: { $set: { ...exchange, endedAt: new Date() } },
      })),
    );
    return items.map(() => undefined);
  });

  return {
    models: [model],

    /** The only licence to send. Batched; each caller learns whether it won, else what stands there. */
    claim: (wanted: Claim): Promise<ClaimResult> => claim({ claim: wanted }),

    /** Ends an event that is never sent, by a claim that is born ended. */
    claimEnded: (wanted: Claim, exchange: Exchange): Promise<ClaimResult> => claim({ claim: wanted, exchange }),

    /** The first final outcome stands; a second one, or one of a claim swept away, changes nothing. */
    recordOutcome: (deliveryId: string, token: string, exchange: Exchange): Promise<void> =>
      recordOutcome({ deliveryId, token, exchange }),

    /** Late, with nothing written: one's own claim is taken back, so that the event is sent afresh. */
    releaseClaim: async (deliveryId: string, token: string): Promise<boolean> => {
      const { deletedCount } = await deliveries.deleteOne({ _id: deliveryId, token, outcome: 'sending' });
      return deletedCount === 1;
    },

    readByIds,

    /** Only how far each is; ids without a record are left out. */
    readOutcomes: async (ids: string[]): Promise<Map<string, Outcome>> => {
      const rows = await deliveries
        .find({ _id: { $in: ids } })
        .project<{ _id: string; outcome: Outcome }>({ outcome: 1 })
        .toArray();
      return new Map(rows.map(({ _id, outcome }) => [_id, outcome]));
    },

    /** A test event: no outbox, its body fixed now, claimed by `claimQueued`. */
    queueTest: async (endpoint: { endpointId: string; assistantId: string; url: string }): Promise<string> => {
      const eventId = newId();
      const body = composeTestBody(eventId, Math.floor(Date.now() / 1000));
      const queued = newRecord({
        ...endpoint,
        eventId,
        conversationId: null,
        event: 'webhook.test',
        body,
        happenedAt: new Date(),
      });
      await deliveries.insertOne(
        { ...queued, outcome: 'queued', token: null, worker: null },
        {
          writeConcern: DURABLE,
        },
      );
      return queued._id;
    },

    /**
     * A person sends an event once more, outside the order. `number` is the one the page showed, so that a double click
     * makes one. Returns the new delivery's id.
     */
    queueResend: async (deliveryId: string, number: number, url: string): Promise<string> => {
      const original = await deliveries.findOne({ _id: deliveryId });
      if (!original) throw notFound();
      const { body } = original;
      if (original.outcome === 'queued' || original.outcome === 'sending' || !body) {
        throw new ApiError('validation_failed', {
          message: 'Only an ended delivery whose body is kept can be sent again.',
        });
      }
      const { eventId, endpointId, assistantId, conversationId, event, happenedAt } = original;
      const queued = newRecord(
        { eventId, endpointId, assistantId, conversationId, event, url, body, happenedAt },
        number,
      );
      await deliveries
        .insertOne({ ...queued, outcome: 'queued', token: null, worker: null }, { writeConcern: DURABLE })
        .catch((cause: unknown) => {
          if (!isDuplicateKey(cause)) throw cause;
        });
      return queued._id;
    },

    /** The claim of a test or a resend: compare-and-set from `queued`. */
    claimQueued: async (deliveryId: string): Promise<{ delivery: StoredDelivery; token: string } | null> => {
      const token = newToken();
      const delivery = await deliveries.findOneAndUpdate(
        { _id: deliveryId, outcome: 'queued' },
        { $set: { outcome: 'sending', token, worker }, $currentDate: { claimedAt: { $type: 'timestamp' } } },
        { returnDocument: 'after', writeConcern: DURABLE },
      );
      return delivery && { delivery, token };
    },

    getDelivery: async (deliveryId: string): Promise<StoredDelivery> => {
      const row = await deliveries.findOne({ _id: deliveryId });
      if (!row) throw notFound();
      return row;
    },

    /** Newest first, by cursor. */
    listDeliveries: async (
      filter: DeliveryFilter,
    ): Promise<{ deliveries: StoredDelivery[]; nextCursor: string | null }> => {
      const { assistantId, eventId, from, to, limit = 50, cursor, ...exact } = filter;
      const given = Object.entries(exact).filter(([, value]) => value !== undefined);
      const query: Record<string, unknown> = { assistantId, ...Object.fromEntries(given) };
      if (eventId) query._id = { $gte: eventId, $lt: `${eventId};` };
      if (from || to) query.createdAt = { ...(from && { $gte: from }), ...(to && { $lt: to }) };
      const [at, id] = cursor ? Buffer.from(cursor, 'base64url').toString().split(' ') : [];
      if (at && id) {
        const createdAt = new Date(Number(at));
        query.$or = [{ createdAt: { $lt: createdAt } }, { createdAt, _id: { $lt: id } }];
      }
      const size = Math.min(limit, LIST_MAX);
      const rows = await deliveries
        .find(query)
        .sort({ createdAt: -1, _id: -1 })
        .limit(size + 1)
        .toArray();
      const page = rows.slice(0, size);
      const last = rows.length > size ? page.at(-1) : undefined;
      const nextCursor = last ? Buffer.from(`${last.createdAt.getTime()} ${last._id}`).toString('base64url') : null;
      return { deliveries: page, nextCursor };
    },

    /** Erasure keeps the records, since a record deleted permits a second claim; their texts go. */
    eraseConversation: async (conversationId: string): Promise<void> => {
      const texts = { body: 1, responseBody: 1, responseHeaders: 1 };
      const ended = { $set: { endedAt: new Date() }, $unset: texts };
      const update = (outcome: Record<string, unknown>, change: Record<string, unknown>) =>
        deliveries.updateMany({ conversationId, ...outcome }, change, { writeConcern: DURABLE });
      await update(
        { outcome: 'queued' },
        { ...ended, $set: { ...ended.$set, outcome: 'not_sent', errorKind: 'erased' } },
      );
      await update(
        { outcome: 'sending' },
        { ...ended, $set: { ...ended.$set, outcome: 'unknown', errorKind: 'erased' } },
      );
      await update({}, { $unset: texts });
    },

    /** A claim whose worker is gone: `sending` older than 10 s by the server's clock ends as `unknown`. How many. */
    endLostClaims: async (olderThanMs: number): Promise<number> => {
      const lost = await deliveries
        .find({
          outcome: 'sending',
          $expr: { $lt: [{ $toDate: '$claimedAt' }, { $subtract: ['$$NOW', olderThanMs] }] },
        })
        .project<{ _id: string; token: string }>({ token: 1 })
        .limit(1000)
        .toArray();
      if (lost.length === 0) return 0;
      const { nModified = 0 } = await updateMany(
        connection,
        COLLECTION,
        lost.map(({ _id, token }) => ({
          q: { _id, token, outcome: 'sending' },
          u: { $set: { outcome: 'unknown', errorKind: 'worker_lost', endedAt: new Date() } },
        })),
      );
      return nModified;
    },

    /** Tests and resends that no worker took: ids to wake again, once the too old ones have ended. */
    sweepQueued: async ({
      wakeAfterMs,
      expireAfterMs,
    }: {
      wakeAfterMs: number;
      expireAfterMs: number;
    }): Promise<string[]> => {
      const older = (ms: number) => ({ $expr: { $lt: ['$createdAt', { $subtract: ['$$NOW', ms] }] } });
      await deliveries.updateMany(
        { outcome: 'queued', ...older(expireAfterMs) },
        { $set: { outcome: 'not_sent', errorKind: 'expired', endedAt: new Date() } },
        { writeConcern: DURABLE },
      );
      const rows = await deliveries
        .find({ outcome: 'queued', ...older(wakeAfterMs) })
        .project<{ _id: string }>({ _id: 1 })
        .limit(500)
        .toArray();
      return rows.map(({ _id }) => _id);
    },
  };
};

export type DeliveryStore = ReturnType<typeof createDeliveryStore>;
