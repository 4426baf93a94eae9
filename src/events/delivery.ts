import { type Connection, type mongo, Schema } from 'mongoose';
import type { EventKind } from './event.ts';

/**
 * One event to one endpoint. `queued` (in the conversation's outbox; stored as a record only for tests and resends)
 * → `sending` (claimed: the only licence to send) → one final outcome, which stands for ever:
 * `delivered` 2xx · `rejected` any other status · `not_sent` the receiver never got the request ·
 * `unknown` bytes may have left and no status is known.
 */
export const OUTCOMES = ['queued', 'sending', 'delivered', 'rejected', 'not_sent', 'unknown'] as const;
export type Outcome = (typeof OUTCOMES)[number];
export type FinalOutcome = Exclude<Outcome, 'queued' | 'sending'>;

export type Timings = {
  dns: number | null;
  connect: number | null;
  tls: number | null;
  firstByte: number | null;
  total: number | null;
};

/** What was sent and what came back, once it has ended. */
export type Exchange = {
  outcome: FinalOutcome;
  errorKind: string | null;
  status: number | null;
  requestHeaders: Record<string, string>;
  responseHeaders: Record<string, string | string[]>;
  responseBody: string | null;
  truncated: boolean;
  timings: Timings | null;
  remoteAddress: string | null;
  tls: { version: string; daysToExpiry: number | null } | null;
};

export type StoredDelivery = Partial<Omit<Exchange, 'outcome'>> & {
  _id: string;
  eventId: string;
  endpointId: string;
  assistantId: string;
  conversationId: string | null;
  event: EventKind;
  outcome: Outcome;
  url: string;
  body: string | null;
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
deliverySchema.index({ assistantId: 1, createdAt: -1, _id: -1 });
deliverySchema.index({ conversationId: 1 });
deliverySchema.index({ claimedAt: 1 }, { partialFilterExpression: { outcome: 'sending' } });
deliverySchema.index({ createdAt: 1 }, { partialFilterExpression: { outcome: 'queued' } });
deliverySchema.index({ expiresAt: 1 }, { expireAfterSeconds: 0 });

export const deliveryModel = (connection: Connection) => connection.model<StoredDelivery>('Delivery', deliverySchema);
