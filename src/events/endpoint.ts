import type { Connection } from 'mongoose';
import * as z from 'zod';
import { INCLUDED } from '../assistants/suggested-action.ts';
import { EventKind } from '../conversations/event.ts';
import { schemaOf } from '../platform/mongo/mongo.ts';
import { DAY_MS } from '../platform/process/clock.ts';
import { OwnHeaders } from './wire.ts';

export const MAX_RATE_PER_SECOND = 100;

/** Why an endpoint is paused: the receiver answered 410, or asked for a pause with `Retry-After`. */
export type Pause = { reason: 'gone' | 'retry_after'; until: Date | null };

export type Endpoint = {
  endpointId: string;
  assistantId: string;
  url: string;
  /** The events that the endpoint wants. An empty list means all events, except those that an endpoint must name. */
  events: EventKind[];
  /** What its `message.sent` events have in addition. */
  include: (typeof INCLUDED)[number][];
  /** What its requests have in addition. `value`: null if it is secret, or no key opens it. */
  headers: { name: string; value: string | null; secret: boolean }[];
  /** How many events it gets in a second, from all workers together. Null: as many as there are. */
  ratePerSecond: number | null;
  /** Its requests also have the headers of Standard Webhooks. */
  standardWebhooks: boolean;
  enabled: boolean;
  /**
   * When the endpoint was enabled. Equal to `createdAt` until it is disabled and enabled again. Then events before this
   * time end as `not_sent: endpoint_disabled`, because they happened while the endpoint was disabled.
   */
  enabledSince: Date;
  pause: Pause | null;
  /** Since when no event was delivered although some were sent. Null if the last one was delivered. */
  failingSince: Date | null;
  createdAt: Date;
  /** The previous secret also signs until this time. Null if there is no overlap. */
  overlapUntil: Date | null;
};

/**
 * What the delivery streams of an endpoint know of its running recovery. `version` is higher for each later change and
 * each later recovery. `to` is the end of its range.
 */
export type NotedRecovery = { recoveryId: string; version: number; to: Date };

export type StoredEndpoint = Omit<
  Endpoint,
  'endpointId' | 'overlapUntil' | 'include' | 'headers' | 'ratePerSecond' | 'standardWebhooks' | 'failingSince'
> & {
  _id: string;
  headers?: { name: string; sealed: string; secret: boolean }[];
  ratePerSecond?: number | null;
  standardWebhooks?: boolean;
  /** With a rate: the first time that no send has reserved yet. */
  nextSendAt?: Date;
  /** Endpoints from before this setting have none. */
  include?: Endpoint['include'];
  /** Its running recovery. */
  recovery?: NotedRecovery;
  /** `failingSince`. Missing for null, so that its index has the failing ones only. */
  failing?: Date;
  /** The end of the receiver's certificate, if that is soon. */
  certificateUntil?: Date;
  /** The endpoint's slot, 0–9. Each slot of an assistant is unique, so an assistant has at most ten endpoints. */
  place: number;
  /** Sealed secrets, newest first. `until` is the end of an overlap, or null for the current secret. */
  secrets: { sealed: string; until: Date | null }[];
};

const Subscribed = EventKind.exclude(['webhook.test']);

export const EndpointInput = z.object({
  url: z.string(),
  events: z.array(Subscribed).max(Subscribed.options.length).default([]),
  include: z
    .array(z.enum(INCLUDED))
    .max(INCLUDED.length)
    .default([])
    .meta({ description: '`sources`: replies in `message.sent` come with `sources`, what they are taken from.' }),
  headers: OwnHeaders.default([]).meta({ description: 'What its requests have in addition.' }),
  ratePerSecond: z
    .int()
    .min(1)
    .max(MAX_RATE_PER_SECOND)
    .nullable()
    .default(null)
    .meta({ description: 'How many events it gets in a second at most. Null: as many as there are.' }),
  standardWebhooks: z
    .boolean()
    .default(false)
    .meta({ description: 'Its requests also have the headers of Standard Webhooks.' }),
});

/** The indexes of endpoints that need attention. */
export const PAUSED = 'paused';
export const FAILING = 'failing';
export const EXPIRING = 'expiring';
/** A certificate that ends later is neither noted nor shown. */
export const CERTIFICATE_SHOWN_MS = 21 * DAY_MS;

const endpointSchema = schemaOf<StoredEndpoint>('endpoints');
endpointSchema.index({ assistantId: 1, createdAt: 1 });
endpointSchema.index({ assistantId: 1, place: 1 }, { unique: true });
// This index serves every sweep, because sweeps list the paused endpoints.
endpointSchema.index(
  { 'pause.until': 1 },
  { name: PAUSED, partialFilterExpression: { 'pause.reason': { $exists: true } } },
);
endpointSchema.index({ failing: 1 }, { name: FAILING, partialFilterExpression: { failing: { $exists: true } } });
endpointSchema.index(
  { certificateUntil: 1 },
  { name: EXPIRING, partialFilterExpression: { certificateUntil: { $exists: true } } },
);

export const endpointModel = (connection: Connection) => connection.model<StoredEndpoint>('Endpoint', endpointSchema);
