import { type Connection, mongo } from 'mongoose';
import { serverDate, serverNow } from '../process/clock.ts';
import type { ItemFailure } from '../process/batch.ts';
import { newToken } from '../process/ids.ts';
import { collectionOf, createStoreBatcher, DURABLE, insertMany, setWhere, updateMany } from '../mongo/mongo.ts';
import { DUPLICATE_KEY, isMongoUnavailable, toItemFailure } from '../mongo/failures.ts';
import {
  deliveryIdOf,
  deliveryModel,
  type Exchange,
  type FinalOutcome,
  type ErrorKind,
  IN_FLIGHT,
  stateBefore,
  type StoredDelivery,
} from './delivery.ts';
import type { EventKind } from '../webhooks/event.ts';

const COLLECTION = 'deliveries';
const DAY_MS = 86_400_000;
const LOST_PER_SWEEP = 1000;

/** What cannot change after the claim: the event, its target and the bytes of its body. */
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

type ClaimResult = { won: true; deliveryId: string; token: string } | { won: false; found: StoredDelivery | null };

type Ended = { deliveryId: string; token: string; exchange: Exchange };

export type ClaimOptions = { connection: Connection; worker: string; retentionDays: number };

/** A new record that this worker has claimed. `resend` is the number of a resend and becomes part of the id. */
export const newRecord = (
  claim: Claim,
  { worker, retentionDays, resend }: Pick<ClaimOptions, 'worker' | 'retentionDays'> & { resend?: number },
): StoredDelivery => {
  const now = serverDate();
  return {
    ...claim,
    _id: deliveryIdOf(claim.eventId, claim.endpointId, resend),
    outcome: 'sending',
    token: newToken(),
    worker,
    // MongoDB replaces an empty top-level timestamp with its own time. The sweep compares this time with the same
    // clock.
    claimedAt: new mongo.Timestamp({ t: 0, i: 0 }),
    createdAt: now,
    endedAt: null,
    redelivery: resend !== undefined,
    expiresAt: new Date(now.getTime() + retentionDays * DAY_MS),
  };
};

const WITHOUT_TEXTS = { responseHeaders: [], responseBody: null, truncated: true, tls: null };

/** The length of the stored response: at most 16 KiB of headers and 16 KiB of body. */
const lengthOf = ({ responseHeaders, responseBody }: Exchange): number =>
  responseHeaders.reduce((sum, { name, value }) => sum + name.length + value.length, responseBody?.length ?? 0);

/** Claims pending events, records the outcomes of claims, and ends claims whose worker is gone. */
export type Claims = {
  /**
   * Claims an event. Only a won claim allows a send. Returns either the won claim, or the record that already exists.
   * Inserts are batched.
   */
  claim: (wanted: Claim) => Promise<ClaimResult>;

  /** Ends an event without sending it, by inserting a record that has already ended. */
  claimEnded: (wanted: Claim, exchange: Exchange) => Promise<ClaimResult>;

  /**
   * Records the outcome of a claim. A claim that has already ended is not changed. If MongoDB refuses the write, the
   * outcome is recorded without the texts of the response.
   */
  recordOutcome: (deliveryId: string, token: string, exchange: Exchange) => Promise<void>;

  /**
   * Releases a claim if it is too late to send and nothing was written. The event is then pending again. Returns
   * false if a sweep or an erasure has already ended the claim.
   */
  release: (deliveryId: string, token: string, options: { queued: boolean }) => Promise<boolean>;

  /**
   * Ends every claim that has been `sending` for longer than `olderThanMs` by MongoDB's clock, because its worker is
   * gone. The outcome is `unknown`. Returns the number of ended claims.
   */
  endLostClaims: (olderThanMs: number) => Promise<number>;
};

export const createClaims = ({ connection, worker, retentionDays }: ClaimOptions): Claims => {
  const deliveries = collectionOf<StoredDelivery>(deliveryModel(connection));

  /**
   * Inserts records. If an insert was refused or MongoDB's answer was lost, the record is read back and its token is
   * compared. If the record is not found, the claim counts as not won, because the insert may still arrive.
   */
  const insertRecords = async (records: StoredDelivery[]): Promise<(ClaimResult | ItemFailure)[]> => {
    const reply = await insertMany(connection, COLLECTION, records).catch((cause: unknown) => {
      if (!isMongoUnavailable(cause)) throw cause;
      return null;
    });
    const errors = new Map(reply?.writeErrors?.map((error) => [error.index, error]));
    const unconfirmed = records.filter((_, index) => reply === null || errors.has(index)).map(({ _id }) => _id);
    const rows = unconfirmed.length > 0 ? await deliveries.find({ _id: { $in: unconfirmed } }).toArray() : [];
    const found = new Map(rows.map((row) => [row._id, row]));
    return records.map(({ _id, token }, index): ClaimResult | ItemFailure => {
      const known = found.get(_id) ?? null;
      const error = errors.get(index);
      const inserted = reply !== null && error === undefined;
      if (inserted || (known !== null && known.token === token)) {
        return { won: true, deliveryId: _id, token: token as string };
      }
      if (error && error.code !== DUPLICATE_KEY) return toItemFailure(error);
      return { won: false, found: known };
    });
  };

  const insert = createStoreBatcher(insertRecords, {
    lengthOf: ({ body, responseBody }) => (body?.length ?? 0) + (responseBody?.length ?? 0),
  });

  const recordOutcome = createStoreBatcher<Ended, void>(
    async (items) => {
      const { writeErrors = [] } = await updateMany(
        connection,
        COLLECTION,
        items.map(({ deliveryId, token, exchange }) => ({
          q: { _id: deliveryId },
          u: setWhere({ token, ...stateBefore('record') }, { ...exchange, endedAt: serverDate() }),
        })),
      );
      const failed = new Map(writeErrors.map((error) => [error.index, toItemFailure(error)]));
      return items.map((_item, index) => failed.get(index));
    },
    { lengthOf: ({ exchange }) => lengthOf(exchange) },
  );

  return {
    claim: (wanted) => insert(newRecord(wanted, { worker, retentionDays })),

    claimEnded: (wanted, exchange) =>
      insert({ ...newRecord(wanted, { worker, retentionDays }), ...exchange, endedAt: serverDate() }),

    recordOutcome: async (deliveryId, token, exchange) => {
      try {
        await recordOutcome({ deliveryId, token, exchange });
      } catch (cause) {
        if (isMongoUnavailable(cause)) throw cause;
        const bare = { ...exchange, errorDetail: 'the response could not be stored', ...WITHOUT_TEXTS };
        await recordOutcome({ deliveryId, token, exchange: bare });
      }
    },

    release: async (deliveryId, token, { queued }) => {
      const own = { _id: deliveryId, token, ...stateBefore('release') };
      if (!queued) return (await deliveries.deleteOne(own, { writeConcern: DURABLE })).deletedCount === 1;
      const change = { $set: { outcome: 'queued' as const, token: null, worker: null } };
      return (await deliveries.updateOne(own, change, { writeConcern: DURABLE })).matchedCount === 1;
    },

    endLostClaims: async (olderThanMs) => {
      // The range finds the claims in the index, and `$$NOW` decides: a wrong clock of this process ends no claim early.
      const until = Math.ceil((serverNow() - olderThanMs) / 1000);
      const lost = await deliveries
        .find({
          ...stateBefore('endLost'),
          claimedAt: { $lt: new mongo.Timestamp({ t: until, i: 0 }) },
          $expr: { $lt: [{ $toDate: '$claimedAt' }, { $subtract: ['$$NOW', olderThanMs] }] },
        })
        .project<{ _id: string; token: string }>({ token: 1 })
        .hint(IN_FLIGHT.sending)
        .limit(LOST_PER_SWEEP)
        .toArray();
      if (lost.length === 0) return 0;
      const end: { outcome: FinalOutcome; errorKind: ErrorKind } = { outcome: 'unknown', errorKind: 'worker_lost' };
      const { nModified = 0 } = await updateMany(
        connection,
        COLLECTION,
        lost.map(({ _id, token }) => ({
          q: { _id, token, ...stateBefore('endLost') },
          u: { $set: { ...end, endedAt: serverDate() } },
        })),
      );
      return nModified;
    },
  };
};
