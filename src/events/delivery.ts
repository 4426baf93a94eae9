import type { Connection, mongo } from 'mongoose';
import type { EventKind } from '../conversations/event.ts';
import { schemaOf } from '../platform/mongo/mongo.ts';
import { TIMING } from '../platform/process/time-limits.ts';

/**
 * The delivery of one event to one endpoint, as a state machine (docs/contract.md, Outcomes).
 *
 * A pending event is in its conversation's outbox and has no record. Lists show it as `queued`. The claim is the insert
 * of its record, as `sending` and with a random token. Only a claim allows a send. A second insert fails, because the
 * `_id` exists. Tests and resends have no outbox: they start as records in `queued` and are claimed by compare-and-set.
 * The filter of every later write contains the state before the step; if the owner of the claim writes, the filter also
 * contains the token. If two processes try to change the state of a delivery, one succeeds and the other matches
 * nothing.
 *
 * `sending` ends in one of four final outcomes: `delivered` (2xx), `rejected` (any other status), `not_sent` (the
 * receiver never got the request) or `unknown` (bytes may have been sent and no status is known). A claim is released
 * only if certainly nothing was written: its owner deletes the record, and the event is pending again (a test or resend
 * returns to `queued`). A claim whose owner is gone is never released, because it is not known what was written: the
 * sweep ends the claim as `unknown`. A record is kept for at least a day. Without its record, the event could be
 * claimed and sent a second time.
 */
export const OUTCOMES = ['queued', 'sending', 'delivered', 'rejected', 'not_sent', 'unknown'] as const;
export type Outcome = (typeof OUTCOMES)[number];
export type FinalOutcome = Exclude<Outcome, 'queued' | 'sending'>;

type Step = { by: string; from: Outcome | null; to: readonly (Outcome | null)[] };

/** All steps. `null` means that there is no record and the event is in the outbox. */
export const STEPS = {
  claim: { by: 'the delivery worker that is about to send', from: null, to: ['sending'] },
  endUndeliverable: {
    by: 'the process that works on the stream: expired, backlog, removed, disabled',
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
  expire: { by: 'a sweep, for a test or resend that no worker claimed', from: 'queued', to: ['not_sent'] },
  eraseQueued: { by: 'the erasure of its conversation', from: 'queued', to: ['not_sent'] },
  eraseSending: { by: 'the erasure of its conversation', from: 'sending', to: ['unknown'] },
} as const satisfies Record<string, Step>;

type MovingStep = {
  [Name in keyof typeof STEPS]: (typeof STEPS)[Name]['from'] extends null ? never : Name;
}[keyof typeof STEPS];

/** A filter for a write: it matches a delivery only while the delivery is in the state that this step starts from. */
export const stateBefore = (step: MovingStep): { outcome: Outcome } => ({ outcome: STEPS[step].from });

/** `ENDS`: all final outcomes. `RECOVERABLE`: those after which a recovery may send the event again. */
export const RECOVERABLE = ['not_sent', 'rejected', 'unknown'] as const satisfies readonly FinalOutcome[];
export type Recoverable = (typeof RECOVERABLE)[number];
export const ENDS = ['delivered', ...RECOVERABLE] as const satisfies readonly FinalOutcome[];

/** The index of ended deliveries in the order of their ends. */
export const ENDED = 'ended';
/** The index of what recoveries may send again, in the order of each conversation. */
export const MISSED = 'missed_in_order';
/** The index of what a recovery has sent. */
export const RECOVERED = 'recovered';
/** The index of ended deliveries of a conversation, with all that an erasure tells of them. */
export const ENDED_OF_CONVERSATION = 'ended_of_conversation';

export const isFinal = (outcome: Outcome): outcome is FinalOutcome => outcome !== 'queued' && outcome !== 'sending';

/** All reasons why a delivery has no status. */
export const ERROR_KINDS = [
  'address_refused', // not_sent: the URL, or an address of its name, is not public
  'dns', // not_sent: the name has no address
  'connect', // not_sent: no TCP connection
  'tls', // not_sent: no TLS 1.3, an invalid certificate, or an unanswered handshake
  'expired', // not_sent: pending for too long
  'backlog', // not_sent: too many events of its stream were pending
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

/** The duration of each step in milliseconds, or null for a step that did not happen. */
export type Timings = {
  dns: number | null;
  connect: number | null;
  tls: number | null;
  firstByte: number | null;
  total: number | null;
};

/**
 * One header. Headers are stored as a list, because their names come from outside. If a name such as `$set` were a key,
 * MongoDB could treat it as an operator.
 */
export type Header = { name: string; value: string };

/** The outcome of an ended delivery, with its request headers and its response. */
export type Exchange = {
  outcome: FinalOutcome;
  errorKind: ErrorKind | null;
  /** An error code or a short sentence that explains the error kind. */
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

/** The exchange of an event that ended without a send. */
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

export type StoredDelivery = Partial<Omit<Exchange, 'outcome'>> & {
  _id: string;
  eventId: string;
  endpointId: string;
  assistantId: string;
  conversationId: string | null;
  event: EventKind;
  outcome: Outcome;
  /** Its number among the events of the conversation for this endpoint. */
  sequence?: number | null;
  url: string;
  /** The body as it was sent. Removed when the conversation is erased. */
  body?: string | null;
  /** The claim token. Only the process that wrote the token may send. */
  token: string | null;
  worker: string | null;
  claimedAt: mongo.Timestamp;
  /** When the event happened. */
  happenedAt: Date;
  createdAt: Date;
  endedAt: Date | null;
  /** MongoDB's cluster time when the delivery ended. Ends are listed in this order. */
  endedOn?: mongo.Timestamp;
  /** The recovery that made this redelivery. */
  recoveryId?: string;
  /** The recovery that has last dealt with this delivery: sent its event again, or decided not to. */
  recoveredBy?: string;
  /** True if the receiver has the event, or may have got it from a redelivery. No recovery then sends it again. */
  settled?: true;
  /** The trace of the turn that made the event happen. */
  trace?: string;
  redelivery: boolean;
  expiresAt: Date;
};

/** True for the event that tells of an erasure, and not for a test of this kind. */
export const tellsOfErasure = ({ event, conversationId }: Pick<StoredDelivery, 'event' | 'conversationId'>): boolean =>
  event === 'conversation.erased' && conversationId !== null;

/**
 * The id of a delivery. The id of a resend ends with the resend number that the dashboard showed. Both clicks of a
 * double click send the same number, so only one resend is created.
 */
export const deliveryIdOf = (eventId: string, endpointId: string, resend?: number): string =>
  resend === undefined ? `${eventId}:${endpointId}` : `${eventId}:${endpointId}:${resend}`;

/** The number of a redelivery; 0 for the first delivery. */
export const resendNumberOf = ({ _id }: Pick<StoredDelivery, '_id'>): number => Number(_id.split(':')[2] ?? 0);

/** Finds all deliveries of an event to an endpoint: the first one and its resends. */
export const sameEventAs = ({ eventId, endpointId }: Pick<StoredDelivery, 'eventId' | 'endpointId'>) => ({
  _id: { $gte: `${eventId}:${endpointId}`, $lt: `${eventId}:${endpointId};` },
});

/**
 * An event is sent again to an endpoint at most this many times, by people and recoveries together, because all its
 * deliveries are read at once.
 */
export const SENT_AGAIN_MAX = 100;

/**
 * The indexes that contain only deliveries in flight, which are few. Any other index would read all ended deliveries
 * too.
 */
export const IN_FLIGHT = { queued: 'queued_with_target', sending: 'claimedAt_1' };
/** The index of the deliveries in flight of a conversation. An assistant may have very many that wait. */
export const OWN_IN_FLIGHT = 'own_in_flight';

const deliverySchema = schemaOf<StoredDelivery>('deliveries');
// This index serves every list. A query without a filter on kind or endpoint lists all kinds and endpoints explicitly
// (see list.ts).
deliverySchema.index({ assistantId: 1, endpointId: 1, event: 1, createdAt: -1, _id: -1 });
deliverySchema.index({ conversationId: 1, happenedAt: 1 });
deliverySchema.index({ claimedAt: 1 }, { partialFilterExpression: { outcome: 'sending' }, name: IN_FLIGHT.sending });
// Begins with the assistant, because any number of tests and resends may wait for an endpoint that hangs. Has all that
// sweeps and counts read of them, because each document has a body.
deliverySchema.index(
  { assistantId: 1, createdAt: -1, _id: -1, outcome: 1, endpointId: 1, event: 1, conversationId: 1 },
  { partialFilterExpression: { outcome: 'queued' }, name: IN_FLIGHT.queued },
);
deliverySchema.index(
  { conversationId: 1, outcome: 1 },
  { partialFilterExpression: { outcome: { $in: ['queued', 'sending'] } }, name: OWN_IN_FLIGHT },
);
deliverySchema.index({ expiresAt: 1 }, { expireAfterSeconds: 0 });
// Indexes for lists of failures. Successful deliveries are not in these indexes and cost nothing.
deliverySchema.index(
  { assistantId: 1, outcome: 1, createdAt: -1, _id: -1 },
  { partialFilterExpression: { outcome: { $in: ['rejected', 'not_sent', 'unknown'] } }, name: 'failures' },
);
deliverySchema.index(
  { assistantId: 1, status: 1, createdAt: -1, _id: -1 },
  { partialFilterExpression: { outcome: 'rejected' }, name: 'refusals' },
);
deliverySchema.index(
  { assistantId: 1, endpointId: 1, outcome: 1, endedOn: 1, _id: 1 },
  { partialFilterExpression: { endedOn: { $exists: true } }, name: ENDED },
);
deliverySchema.index(
  // With what tells whether a recovery wants it, because a conversation may have many failures that it does not want.
  { conversationId: 1, endpointId: 1, sequence: 1, outcome: 1, endedOn: 1, recoveredBy: 1, settled: 1 },
  { partialFilterExpression: { outcome: { $in: [...RECOVERABLE] } }, name: MISSED },
);
deliverySchema.index(
  // Each document may have 64 KB. An ended delivery never moves in this index, because none of these changes any more.
  { conversationId: 1, happenedAt: 1, event: 1, outcome: 1, endpointId: 1, eventId: 1, redelivery: 1, sequence: 1 },
  { partialFilterExpression: { outcome: { $in: [...ENDS] } }, name: ENDED_OF_CONVERSATION },
);
deliverySchema.index(
  { recoveryId: 1, outcome: 1 },
  { partialFilterExpression: { recoveryId: { $exists: true } }, name: RECOVERED },
);

export const deliveryModel = (connection: Connection) => connection.model<StoredDelivery>('Delivery', deliverySchema);
