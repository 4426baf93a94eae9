import { type Connection, mongo } from 'mongoose';
import { createBatcher } from '../platform/batch.ts';
import { newToken } from '../platform/ids.ts';
import { collectionOf, DURABLE, insertMany, setWhere, updateMany } from '../platform/mongo.ts';
import {
  deliveryIdOf,
  deliveryModel,
  type Exchange,
  type FinalOutcome,
  type ErrorKind,
  leaving,
  type StoredDelivery,
} from './delivery.ts';
import type { EventKind } from './event.ts';

const COLLECTION = 'deliveries';
const DAY_MS = 86_400_000;
const LOST_A_SWEEP = 1000;

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

export type Recording = { connection: Connection; worker: string; retentionDays: number };

/** A record as its first write makes it: a claim, or with `resend` set one to be queued. */
export const newRecord = (
  claim: Claim,
  { worker, retentionDays, resend }: Pick<Recording, 'worker' | 'retentionDays'> & { resend?: number },
): StoredDelivery => {
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

/** The steps of a delivery that has an outbox behind it, and how every claim ends. */
export const createClaims = ({ connection, worker, retentionDays }: Recording) => {
  const deliveries = collectionOf<StoredDelivery>(deliveryModel(connection));

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
    const rows = doubtful.length > 0 ? await deliveries.find({ _id: { $in: doubtful } }).toArray() : [];
    const found = new Map(rows.map((row) => [row._id, row]));
    return records.map(({ _id, token }, index): ClaimResult => {
      const known = found.get(_id) ?? null;
      const won = refused?.has(index) === false || (known !== null && known.token === token);
      return won ? { won, deliveryId: _id, token: token as string } : { won: false, found: known };
    });
  };

  const claim = createBatcher<{ claim: Claim; exchange?: Exchange }, ClaimResult>((items) =>
    insertRecords(
      items.map(({ claim: wanted, exchange }) => ({
        ...newRecord(wanted, { worker, retentionDays }),
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
        q: { _id: deliveryId },
        u: setWhere({ token, ...leaving('record') }, { ...exchange, endedAt: new Date() }),
      })),
    );
    return items.map(() => undefined);
  });

  return {
    /** The only licence to send. Batched; each caller learns whether it won, else what stands there. */
    claim: (wanted: Claim): Promise<ClaimResult> => claim({ claim: wanted }),

    /** Ends an event that is never sent, by a claim that is born ended. */
    claimEnded: (wanted: Claim, exchange: Exchange): Promise<ClaimResult> => claim({ claim: wanted, exchange }),

    /** The first final outcome stands; a second one, or one of a claim swept away, changes nothing. */
    recordOutcome: (deliveryId: string, token: string, exchange: Exchange): Promise<void> =>
      recordOutcome({ deliveryId, token, exchange }),

    /**
     * Late, with nothing written: one's own claim is taken back, so that the event is sent afresh. False: it has been
     * swept away or erased, and has ended.
     */
    giveBack: async (deliveryId: string, token: string, { queued }: { queued: boolean }): Promise<boolean> => {
      const own = { _id: deliveryId, token, ...leaving('giveBack') };
      if (!queued) return (await deliveries.deleteOne(own, { writeConcern: DURABLE })).deletedCount === 1;
      const change = { $set: { outcome: 'queued' as const, token: null, worker: null } };
      return (await deliveries.updateOne(own, change, { writeConcern: DURABLE })).matchedCount === 1;
    },

    /** A claim whose worker is gone: `sending` for too long by the server's clock ends as `unknown`. How many. */
    endLostClaims: async (olderThanMs: number): Promise<number> => {
      const lost = await deliveries
        .find({
          ...leaving('lose'),
          $expr: { $lt: [{ $toDate: '$claimedAt' }, { $subtract: ['$$NOW', olderThanMs] }] },
        })
        .project<{ _id: string; token: string }>({ token: 1 })
        .limit(LOST_A_SWEEP)
        .toArray();
      if (lost.length === 0) return 0;
      const end: { outcome: FinalOutcome; errorKind: ErrorKind } = { outcome: 'unknown', errorKind: 'worker_lost' };
      const { nModified = 0 } = await updateMany(
        connection,
        COLLECTION,
        lost.map(({ _id, token }) => ({
          q: { _id, token, ...leaving('lose') },
          u: { $set: { ...end, endedAt: new Date() } },
        })),
      );
      return nModified;
    },
  };
};
