import { type Connection, Schema } from 'mongoose';
import * as z from 'zod';
import { EventKind, OPT_IN_KINDS } from './event.ts';

export const MAX_ENDPOINTS = 10;
export const MAX_OVERLAP_HOURS = 168;

/** Why an endpoint is paused: the receiver answered 410, or asked for a pause with `Retry-After`. */
export type Pause = { reason: 'gone' | 'retry_after'; until: Date | null };

export type Endpoint = {
  endpointId: string;
  assistantId: string;
  url: string;
  /** The events that the endpoint wants. An empty list means all events, except those that an endpoint must name. */
  events: EventKind[];
  enabled: boolean;
  /**
   * When the endpoint was enabled. Equal to `createdAt` until it is disabled and enabled again. Then events before this
   * time end as `not_sent: endpoint_disabled`, because they happened while the endpoint was disabled.
   */
  enabledSince: Date;
  pause: Pause | null;
  createdAt: Date;
  /** The previous secret also signs until this time. Null if there is no overlap. */
  overlapUntil: Date | null;
};

export type StoredEndpoint = Omit<Endpoint, 'endpointId' | 'overlapUntil'> & {
  _id: string;
  /** The endpoint's slot, 0–9. Each slot of an assistant is unique, so an assistant has at most ten endpoints. */
  place: number;
  /** Sealed secrets, newest first. `until` is the end of an overlap, or null for the current secret. */
  secrets: { sealed: string; until: Date | null }[];
};

const Subscribed = EventKind.exclude(['webhook.test']);

export const EndpointInput = z.object({
  url: z.string(),
  events: z.array(Subscribed).max(Subscribed.options.length).default([]),
});

export const PAUSED = 'paused';

const endpointSchema = new Schema<StoredEndpoint>(
  {
    _id: { type: String, required: true },
    assistantId: { type: String, required: true },
    url: { type: String, required: true },
    events: { type: [String], default: [] },
    enabled: { type: Boolean, required: true },
    enabledSince: { type: Date, required: true },
    pause: { type: Schema.Types.Mixed, default: null },
    createdAt: { type: Date, required: true },
    place: { type: Number, required: true },
    secrets: { type: [{ _id: false, sealed: String, until: Date }], required: true },
  },
  { collection: 'endpoints', versionKey: false, strictQuery: 'throw' },
);
endpointSchema.index({ assistantId: 1, createdAt: 1 });
endpointSchema.index({ assistantId: 1, place: 1 }, { unique: true });
// This index serves every sweep, because sweeps list the paused endpoints.
endpointSchema.index(
  { 'pause.until': 1 },
  { name: PAUSED, partialFilterExpression: { 'pause.reason': { $exists: true } } },
);

export const endpointModel = (connection: Connection) => connection.model<StoredEndpoint>('Endpoint', endpointSchema);

/** True if the endpoint is paused at `now`. A pause without an end lasts until an operator resumes the endpoint. */
export const isPaused = ({ pause }: { pause: Pause | null }, now: number): boolean =>
  pause !== null && (pause.until === null || pause.until.getTime() > now);

export const wants = (endpoint: Pick<Endpoint, 'enabled' | 'events'>, event: EventKind): boolean =>
  endpoint.enabled &&
  (endpoint.events.includes(event) || (endpoint.events.length === 0 && !OPT_IN_KINDS.includes(event)));
