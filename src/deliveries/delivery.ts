import { type Connection, type mongo, Schema } from 'mongoose';
import type { EventKind } from '../webhooks/event.ts';
import { TIMING } from '../platform/timing.ts';

/**
 * One event to one endpoint, as a state machine (docs/contract.md, Outcomes).
 *
 * An event begins in its conversation's outbox, without a record: that is `queued` as lists show it. The record's insert,
 * as `sending` and with a token that only its writer knows, is the claim and the only licence to send; a second insert
 * meets the first by its `_id`. Tests and resends have no outbox: they begin as records in `queued` and are claimed by
 * compare-and-set. Every later step is a write filtered on the state it leaves, and by the owner also on the token, so
 * that of two who want to move a delivery one moves it and the other matches nothing.
 *
 * `sending` ends in one of four outcomes, which then stand for ever:
 * `delivered` 2xx · `rejected` any other status · `not_sent` the receiver never got the request ·
 * `unknown` bytes may have left and no status is known. Only what was surely never written goes back: the owner deletes
 * its own claim, so that the event is pending as before (a test or resend returns to `queued`). A claim whose owner is
 * gone cannot go back, since nobody knows what was written: the sweep ends it `unknown`. A record is never deleted before
 * a day is over, for without it the event could be claimed, and sent, a second time.
 */
export const OUTCOMES = ['queued', 'sending', 'delivered', 'rejected', 'not_sent', 'unknown'] as const;
export type Outcome = (typeof OUTCOMES)[number];
export type FinalOutcome = Exclude<Outcome, 'queued' | 'sending'>;

type Step = { by: string; from: Outcome | null; to: readonly (Outcome | null)[] };

/** Every step there is. `null` = no record: the event stands in its outbox. */
export const STEPS = {
  claim: { by: 'the delivery worker that is about to send', from: null, to: ['sending'] },
  endUndeliverable: {
    by: 'whoever handles the stream: expired, backlog, removed, disabled',
    from: null,
    to: ['not_sent'],
  },
  queue: { by: 'a person, with a test or a resend', from: null, to: ['queued'] },
  claimQueued: { by: 'the delivery worker that is about to send a test or resend', from: 'queued', to: ['sending'] },
  release: { by: 'the owner, late and with nothing written', from: 'sending', to: [null, 'queued'] },
  record: {
    by: 'the owner, once the send has ended',
    from: 'sending',
    to: ['delivered', 'rejected', 'not_sent', 'unknown'],
  },
  endLost: { by: `a sweep, ${TIMING.claimLostMs / 1000} s after the claim`, from: 'sending', to: ['unknown'] },
  expire: { by: 'a sweep, for a test or resend that nobody took', from: 'queued', to: ['not_sent'] },
  eraseQueued: { by: 'the erasure of its conversation', from: 'queued', to: ['not_sent'] },
  eraseSending: { by: 'the erasure of its conversation', from: 'sending', to: ['unknown'] },
} as const satisfies Record<string, Step>;

type MovingStep = {
  [Name in keyof typeof STEPS]: (typeof STEPS)[Name]['from'] extends null ? never : Name;
}[keyof typeof STEPS];

/** The part of a write's filter that lets a step only leave the state it may leave. */
export const stateBefore = (step: MovingStep): { outcome: Outcome } => ({ outcome: STEPS[step].from });

export const isFinal = (outcome: Outcome): outcome is FinalOutcome => outcome !== 'queued' && outcome !== 'sending';

/** Why there is no status: the whole list. */
export const ERROR_KINDS = [
  'address_refused', // not_sent: the URL, or an address of its name, is not a public one
  'dns', // not_sent: the name has no address
  'connect', // not_sent: no TCP connection
  'tls', // not_sent: no TLS 1.3, a certificate that does not hold, an unanswered handshake
  'expired', // not_sent: waited for too long
  'backlog', // not_sent: too many of its conversation waited
  'endpoint_removed', // not_sent
  'endpoint_disabled', // not_sent: at the time of the event, or since
  'timeout', // unknown: written, no response within the deadline
  'reset', // unknown: written, and the connection was closed before a response
  'bad_response', // unknown: written, and what came back is not HTTP/1
  'worker_lost', // unknown: claimed by a process that is gone
  'erased', // its conversation was erased while it was queued (not_sent) or being sent (unknown)
  'internal', // a fault of this service; not_sent, or unknown if something was written
] as const;
export type ErrorKind = (typeof ERROR_KINDS)[number];

/** Milliseconds each step took; null for a step that did not happen. */
export type Timings = {
  dns: number | null;
  connect: number | null;
  tls: number | null;
  firstByte: number | null;
  total: number | null;
};

/** A list, since names come from outside: as keys of a document they could be operators, or what BSON takes for a type. */
export type Header = { name: string; value: string };

/** What was sent and what came back, once it has ended. */
export type Exchange = {
  outcome: FinalOutcome;
  errorKind: ErrorKind | null;
  /** An error code or a short sentence beside the kind. */
  errorDetail: string | null;
  status: number | null;
  requestHeaders: Header[];
  responseHeaders: Header[];
  responseBody: string | null;
  truncated: boolean;
  timings: Timings | null;
  remoteAddress: string | null;
  tls: { version: string; daysToExpiry: number | null } | null;
};

/** The end of an event that nobody tried to send. */
export const neverSent = (errorKind: ErrorKind): Exchange => ({
  outcome: 'not_sent',
  errorKind,
  errorDetail: null,
  status: null,
  requestHeaders: [],
  responseHeaders: [],
  responseBody: null,
  truncated: false,
  timings: null,
  remoteAddress: null,
  tls: null,
});

/** Headers as 0.1 stored them, kept until such records have expired. */
export type HeaderRecord = Record<string, string | string[]>;

export type StoredDelivery = Partial<Omit<Exchange, 'outcome' | 'requestHeaders' | 'responseHeaders'>> & {
  requestHeaders?: Header[] | HeaderRecord;
  responseHeaders?: Header[] | HeaderRecord;

  _id: string;
  eventId: string;
  endpointId: string;
  assistantId: string;
  conversationId: string | null;
  event: EventKind;
  outcome: Outcome;
  url: string;
  /** The bytes sent; gone once the conversation is erased. */
  body?: string | null;
  /** The claim: whoever wrote it may send. */
  token: string | null;
  worker: string | null;
  claimedAt: mongo.Timestamp;
  /** When the event happened. */
  happenedAt: Date;
  createdAt: Date;
  endedAt: Date | null;
  redelivery: boolean;
  expiresAt: Date;
};

/** A resend has the number shown on the page in its id, so that a button pressed twice makes one. */
export const deliveryIdOf = (eventId: string, endpointId: string, resend?: number): string =>
  resend === undefined ? `${eventId}:${endpointId}` : `${eventId}:${endpointId}:${resend}`;

const deliverySchema = new Schema<StoredDelivery>(
  { _id: { type: String, required: true } },
  { collection: 'deliveries', versionKey: false, strict: false, strictQuery: false },
);
// One for every list, with or without its filters: what is not asked for is asked for by all its values (see list.ts).
deliverySchema.index({ assistantId: 1, endpointId: 1, event: 1, createdAt: -1, _id: -1 });
deliverySchema.index({ conversationId: 1 });
deliverySchema.index({ claimedAt: 1 }, { partialFilterExpression: { outcome: 'sending' } });
deliverySchema.index({ createdAt: 1 }, { partialFilterExpression: { outcome: 'queued' } });
deliverySchema.index({ expiresAt: 1 }, { expireAfterSeconds: 0 });
// What people look for, among many that went well; those pay nothing for it.
deliverySchema.index(
  { assistantId: 1, outcome: 1, createdAt: -1, _id: -1 },
  { partialFilterExpression: { outcome: { $in: ['rejected', 'not_sent', 'unknown'] } }, name: 'failures' },
);
deliverySchema.index(
  { assistantId: 1, status: 1, createdAt: -1, _id: -1 },
  { partialFilterExpression: { outcome: 'rejected' }, name: 'refusals' },
);

export const deliveryModel = (connection: Connection) => connection.model<StoredDelivery>('Delivery', deliverySchema);
