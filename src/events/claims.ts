import { type Connection, mongo } from 'mongoose';
import { BACKLOG_MAX, type OutboxEvent } from '../conversations/conversation.ts';
import { type Outbox, type OutboxStore, pendingOf, sequencesOf } from '../conversations/outbox.ts';
import { DUPLICATE_KEY, isMongoUnavailable, toItemFailure } from '../platform/mongo/failures.ts';
import {
  collectionOf,
  createStoreBatcher,
  DURABLE,
  insertMany,
  setClusterTime,
  setWhere,
  updateMany,
} from '../platform/mongo/mongo.ts';
import type { ItemFailure } from '../platform/process/batch.ts';
import { DAY_MS, serverDate, serverNow } from '../platform/process/clock.ts';
import { newToken } from '../platform/process/ids.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import type { StoredEndpoint } from './endpoint.ts';
import type { Included, EventKind } from '../conversations/event.ts';
import {
  deliveryIdOf,
  deliveryModel,
  type ErrorKind,
  type Exchange,
  type FinalOutcome,
  IN_FLIGHT,
  isFinal,
  neverSent,
  stateBefore,
  type StoredDelivery,
} from './delivery.ts';

const COLLECTION = 'deliveries';
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
  /** Its number among the events of the conversation for this endpoint. Null for a test event. */
  sequence?: number | null;
  happenedAt: Date;
  /** The trace of the turn that made the event happen. Missing if there is none. */
  trace?: string;
};

/** The claim that sends a delivery's event again. */
export const claimAgain = (
  { eventId, endpointId, assistantId, conversationId, event, sequence = null, happenedAt, trace }: StoredDelivery,
  { url, body }: Pick<Claim, 'url' | 'body'>,
): Claim => ({
  eventId,
  endpointId,
  assistantId,
  conversationId,
  event,
  url,
  body,
  sequence,
  happenedAt,
  ...(trace !== undefined && { trace }),
});

type ClaimResult = { won: true; deliveryId: string; token: string } | { won: false; found: StoredDelivery | null };

type Ended = { deliveryId: string; token: string; exchange: Exchange };

export type ClaimOptions = { connection: Connection; worker: string; retentionDays: number };

/** A redelivery. Its number becomes part of its id. */
export type Redelivery = { resend: number; recoveryId?: string };

/**
 * MongoDB replaces an empty top-level timestamp with its own time. Sweeps and lists compare this time with the same
 * clock.
 */
const thenNow = () => new mongo.Timestamp({ t: 0, i: 0 });

/** A new record that this worker has claimed. */
export const newRecord = (
  claim: Claim,
  { worker, retentionDays, resend, recoveryId }: Pick<ClaimOptions, 'worker' | 'retentionDays'> & Partial<Redelivery>,
): StoredDelivery => {
  const now = serverDate();
  return {
    ...claim,
    _id: deliveryIdOf(claim.eventId, claim.endpointId, resend),
    outcome: 'sending',
    token: newToken(),
    worker,
    claimedAt: thenNow(),
    createdAt: now,
    endedAt: null,
    redelivery: resend !== undefined,
    ...(recoveryId !== undefined && { recoveryId, recoveredBy: recoveryId }),
    expiresAt: new Date(now.getTime() + retentionDays * DAY_MS),
  };
};

const NO_RESPONSE = { responseHeaders: [], responseBody: null, truncated: true, tls: null };

/** The length of the stored response: at most 16 KiB of headers and 16 KiB of body. */
const lengthOf = ({ responseHeaders, responseBody }: Exchange): number =>
  responseHeaders.reduce((sum, { name, value }) => sum + name.length + value.length, responseBody?.length ?? 0);

/** Claims pending events, records the outcomes of claims, and ends claims whose worker is gone. */
export type Claims = {
  /**
   * Claims an event. Only a won claim allows a send. Returns either the won claim, or the record that already exists.
   * Inserts are batched.
   */
  claim: (wanted: Claim, again?: Redelivery) => Promise<ClaimResult>;

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
          u: setWhere({ token, ...stateBefore('record') }, { ...exchange, endedAt: serverDate() }, 'endedOn'),
        })),
      );
      const failed = new Map(writeErrors.map((error) => [error.index, toItemFailure(error)]));
      return items.map((_item, index) => failed.get(index));
    },
    { lengthOf: ({ exchange }) => lengthOf(exchange) },
  );

  return {
    claim: (wanted, again) => insert(newRecord(wanted, { worker, retentionDays, ...again })),

    claimEnded: (wanted, exchange) =>
      insert({
        ...newRecord(wanted, { worker, retentionDays }),
        ...exchange,
        endedAt: serverDate(),
        endedOn: thenNow(),
      }),

    recordOutcome: async (deliveryId, token, exchange) => {
      try {
        await recordOutcome({ deliveryId, token, exchange });
      } catch (cause) {
        if (isMongoUnavailable(cause)) throw cause;
        const bare = { ...exchange, errorDetail: 'the response could not be stored', ...NO_RESPONSE };
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
      // The range makes MongoDB use the index. The exact comparison is the one with `$$NOW`, so that a wrong clock of
      // this process ends no claim early.
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
          u: { $set: { ...end, endedAt: serverDate() }, ...setClusterTime('endedOn') },
        })),
      );
      return nModified;
    },
  };
};

/** An event that must not be sent, and the reason. */
type Undeliverable<Event = OutboxEvent> = { event: Event; errorKind: ErrorKind };

export type OnEnded = (
  claim: Pick<Claim, 'eventId' | 'endpointId' | 'event' | 'conversationId'>,
  exchange: Exchange,
) => void;

export const claimOf = (
  outbox: Outbox,
  event: OutboxEvent,
  { endpointId, url, body, sequence }: { endpointId: string; url: string; body: string; sequence: number | null },
): Claim => ({
  eventId: event.eventId,
  endpointId,
  assistantId: outbox.assistantId,
  conversationId: outbox.conversationId,
  event: event.event,
  url,
  body,
  sequence,
  happenedAt: event.at,
  ...(event.trace !== undefined && { trace: event.trace }),
});

/**
 * True if the event happened while the endpoint was disabled. If the endpoint was never disabled, its two times are
 * equal and are not compared: every event that names it came after its creation, but clocks of two processes differ by
 * some milliseconds.
 */
const isFromDisabledTime = (event: Pick<OutboxEvent, 'at'>, { enabledSince, createdAt }: StoredEndpoint): boolean =>
  enabledSince.getTime() !== createdAt.getTime() && enabledSince > event.at;

const refusalOf = (
  event: Pick<OutboxEvent, 'at'>,
  endpoint: StoredEndpoint | null,
  eventMaxAgeMs: number,
): ErrorKind | null => {
  if (!endpoint) return 'endpoint_removed';
  if (!endpoint.enabled || isFromDisabledTime(event, endpoint)) return 'endpoint_disabled';
  if (serverNow() - event.at.getTime() > eventMaxAgeMs) return 'expired';
  return null;
};

/**
 * The undeliverable events at the start of a stream, oldest first. An event is undeliverable if its endpoint is removed
 * or disabled, the event is too old, or the stream exceeds the backlog limit. Stops at the first event that may be
 * sent.
 */
export const undeliverableOf = <Event extends Pick<OutboxEvent, 'at'>>(
  pending: Event[],
  { endpoint, eventMaxAgeMs }: { endpoint: StoredEndpoint | null; eventMaxAgeMs: number },
): Undeliverable<Event>[] => {
  const over = pending.length - BACKLOG_MAX;
  const found: Undeliverable<Event>[] = [];
  for (const [index, event] of pending.entries()) {
    const errorKind = refusalOf(event, endpoint, eventMaxAgeMs) ?? (index < over ? 'backlog' : null);
    if (!errorKind) break;
    found.push({ event, errorKind });
  }
  return found;
};

/** How many events of a stream are ended at once. The body of each may be read from a page of long messages. */
const ENDED_AT_ONCE = 50;

type Dependencies = {
  conversations: { outbox: Pick<OutboxStore, 'pullEnded' | 'keepSequences'> };
  deliveries: Pick<Claims, 'claimEnded'> & {
    composeBody: (outbox: Outbox, event: OutboxEvent, include?: Included) => Promise<string | null>;
  };
  eventMaxAgeMs: number;
  onEnded: OnEnded;
};

/**
 * Ends the undeliverable events of a stream and removes them from the stream. For each event, a record that has already
 * ended is inserted. An event that a worker is sending is not changed. The endpoint must have been read after the
 * outbox, because ending is final. Returns the first events of the changed stream, or null if nothing was ended.
 */
type EndUndeliverable = (
  read: { outbox: Outbox; endpoint: StoredEndpoint | null },
  endpointId: string,
) => Promise<Outbox | null>;

export const createEndUndeliverable =
  ({ conversations, deliveries, eventMaxAgeMs, onEnded }: Dependencies): EndUndeliverable =>
  async ({ outbox, endpoint }, endpointId) => {
    const to = { endpointId, url: endpoint?.url ?? '' };
    const undeliverable = undeliverableOf(pendingOf(outbox, endpointId), { endpoint, eventMaxAgeMs });
    const numbers = sequencesOf(outbox, endpointId);
    const results = await mapAtMost(ENDED_AT_ONCE, undeliverable, async ({ event, errorKind }) => {
      const body = (await deliveries.composeBody(outbox, event, endpoint?.include)) ?? '';
      const claim = claimOf(outbox, event, { ...to, body, sequence: numbers.get(event.eventId) ?? null });
      const exchange = neverSent(errorKind);
      const claimed = await deliveries.claimEnded(claim, exchange);
      if (claimed.won) onEnded(claim, exchange);
      return claimed.won || (claimed.found !== null && isFinal(claimed.found.outcome));
    });
    const ended = undeliverable.filter((_, index) => results[index]).map(({ event }) => event);
    if (ended.length === 0) return null;
    const stay = undeliverable.slice(0, results.lastIndexOf(true)).filter((_, index) => !results[index]);
    await conversations.outbox.keepSequences(
      outbox,
      endpointId,
      stay.map(({ event }) => event),
    );
    return conversations.outbox.pullEnded(outbox, endpointId, ended);
  };
