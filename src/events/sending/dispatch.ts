import { type Breaker, type BreakerOptions, createBreaker } from '../../platform/process/breaker.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Claim } from '../claims.ts';
import type { ErrorKind, Exchange } from '../delivery.ts';
import type { StoredEndpoint } from '../endpoint.ts';
import type { EndpointStore, OpenHeader } from '../endpoints.ts';
import { signEvent, standardHeaders } from '../signature.ts';
import type { DeliveryStore } from '../store.ts';
import { DAY_MS, serverNow } from '../../platform/process/clock.ts';
import type { Logger } from '../../platform/process/logger.ts';
import { isMongoUnavailable } from '../../platform/mongo/failures.ts';
import type { PacedSlots } from '../../platform/process/paced-slots.ts';
import type { Slot } from '../../platform/process/slots.ts';
import { NO_SPAN, orFailed, type TraceSpan, type Tracing } from '../../platform/process/tracing.ts';
import type { Timing } from '../../platform/process/time-limits.ts';
import type { Sender, SendResult } from './send.ts';

const CONNECTION_FAILURES: ReadonlySet<string | null> = new Set(['dns', 'connect', 'tls']);

export interface DeliveryBreaker extends Breaker {
  record: (endpointId: string, result: { outcome: string; errorKind: string | null }) => void;
}

/**
 * Stops connecting to an endpoint after repeated connection failures. A slow receiver is not suspended, because the
 * limit of sends in flight already protects other endpoints from it.
 */
export const createDeliveryBreaker = (options?: BreakerOptions): DeliveryBreaker => {
  const breaker = createBreaker(options);
  return {
    ...breaker,
    record: (endpointId, { outcome, errorKind }) => {
      if (outcome !== 'not_sent') breaker.succeeded(endpointId);
      else if (CONNECTION_FAILURES.has(errorKind)) breaker.failed(endpointId);
      // A refused address, a late event or a removed endpoint says nothing about the connection, so it counts neither
      // as success nor as failure.
      else breaker.release(endpointId);
    },
  };
};

const RETRY_AFTER_MAX_S = 600;
const RECORD_AGAIN_MS = 200;

type Dispatched = Pick<Claim, 'eventId' | 'endpointId' | 'event' | 'conversationId' | 'body'> & {
  sequence?: number | null;
};
/** `span` is the delivery in its trace. */
type OwnClaim = { deliveryId: string; token: string; redelivery: boolean; queued: boolean; span: TraceSpan };
/** The endpoint with its decrypted secrets and headers. `at` is the monotonic time just before the endpoint was read. */
export type Target = { at: number; endpoint: StoredEndpoint; secrets: string[]; headers: OpenHeader[] };

export type CountDelivery = (end: { outcome: string; errorKind: string | null }, count?: number) => void;

type Dependencies = {
  endpoints: Pick<EndpointStore, 'noteHealth' | 'pauseEndpoint'>;
  deliveries: Pick<DeliveryStore, 'recordOutcome' | 'release'>;
  sender: Sender;
  slots: Pick<PacedSlots, 'watch'>;
  breaker: DeliveryBreaker;
  countDelivery: CountDelivery;
  /** While this many outcomes are being stored, a further slot is released only when its outcome is stored. */
  recordingMax: number;
  timing: Timing;
  tracing: Tracing;
  /** True if receivers get the `traceparent` of the POST. */
  sendsTraceparent: boolean;
  logger: Logger;
};

/** True if nothing was written and the event stays pending. */
const isUntried = ({ wrote, errorKind }: SendResult): boolean =>
  !wrote && (errorKind === 'too_late' || errorKind === 'shutdown');

/**
 * The part of a result that is recorded, without the secret values of headers. Results with `too_late` or `shutdown` are
 * not recorded, because their claim is released.
 */
const toExchange = (result: SendResult, headers: OpenHeader[]): Exchange => {
  const hidden = new Set(headers.filter(({ secret }) => secret).map(({ name }) => name));
  const { wrote: _wrote, retryAfterSeconds: _retryAfter, errorKind, requestHeaders, ...kept } = result;
  const kind: ErrorKind | null = errorKind === 'too_late' || errorKind === 'shutdown' ? 'internal' : errorKind;
  const sent = Object.entries(requestHeaders).map(([name, value]) => {
    return { name, value: hidden.has(name) ? '[redacted]' : value };
  });
  return { ...kept, errorKind: kind, requestHeaders: sent };
};

const headersOf =
  (
    { event, eventId, conversationId, body, sequence }: Dispatched,
    { secrets, headers, endpoint }: Target,
    { redelivery, traceparent }: { redelivery: boolean; traceparent: string | null },
  ) =>
  (timestamp: number): Record<string, string> => ({
    ...Object.fromEntries(headers.map(({ name, value }) => [name, value])),
    'Content-Type': 'application/json',
    'X-Factory-Event': event,
    'X-Factory-Event-Id': eventId,
    'X-Factory-Signature': signEvent({ body, secrets, timestamp }),
    ...(sequence != null && { 'X-Factory-Sequence': String(sequence) }),
    ...(conversationId === null && { 'X-Factory-Test': 'true' }),
    ...(endpoint.standardWebhooks && standardHeaders({ body, secrets, timestamp, id: eventId })),
    ...(redelivery && { 'X-Factory-Redelivery': 'true' }),
    ...(traceparent !== null && { traceparent }),
  });

/** Sends a claimed event and records the outcome. */
export type Dispatch = {
  logEnd: (claim: Omit<Dispatched, 'body'>, exchange: Exchange, span?: TraceSpan) => void;

  /**
   * Returns 'ended' if the event has its outcome, or 'released' if the event is pending and unclaimed again. Usually
   * releases the slot when the request is over, so that the next send does not wait for MongoDB to store the outcome.
   * Otherwise the caller releases it.
   */
  dispatch: (claim: Dispatched, own: OwnClaim, target: Target, slot: Slot) => Promise<'ended' | 'released'>;
};

export const createDispatch = (dependencies: Dependencies): Dispatch => {
  const { endpoints, deliveries, sender, slots, breaker, countDelivery, recordingMax, timing, logger } = dependencies;
  const { tracing, sendsTraceparent } = dependencies;
  let recording = 0;

  const logEnd: Dispatch['logEnd'] = (claim, exchange, span = NO_SPAN) => {
    countDelivery(exchange);
    const { eventId, endpointId, event, conversationId, sequence } = claim;
    const { outcome, errorKind, status, timings } = exchange;
    const ms = timings?.total ?? null;
    logger.info(
      { eventId, endpointId, event, conversationId, sequence, outcome, errorKind, status, ms, ...span.ids },
      'delivery ended',
    );
  };

  /**
   * Stores the pause that the receiver asked for. It is stored before the outcome, so that the sender of the next event
   * sees it.
   */
  const pauseAsAsked = async (endpointId: string, { status, retryAfterSeconds }: SendResult): Promise<void> => {
    if (status === 410) return endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
    if ((status === 429 || status === 503) && retryAfterSeconds !== null && retryAfterSeconds > 0) {
      const until = new Date(serverNow() + Math.min(retryAfterSeconds, RETRY_AFTER_MAX_S) * 1000);
      await endpoints.pauseEndpoint(endpointId, { reason: 'retry_after', until });
    }
  };

  /** Nothing waits for this note. If it fails, a later delivery makes it. */
  const noteHealth = (endpoint: StoredEndpoint, { outcome, errorKind, tls }: SendResult): void => {
    const saysNothing = outcome === 'not_sent' && !CONNECTION_FAILURES.has(errorKind);
    const days = tls?.daysToExpiry ?? null;
    const seen = {
      delivered: saysNothing ? null : outcome === 'delivered',
      certificateUntil: days === null ? null : new Date(serverNow() + days * DAY_MS),
    };
    endpoints
      .noteHealth(endpoint, seen)
      .catch((cause: unknown) =>
        logger.warn({ err: cause, endpointId: endpoint._id }, 'an endpoint’s health was not noted'),
      );
  };

  /** Repeats a write while MongoDB is unavailable, at most until this time. The send is never repeated. */
  const writeUntil = async (until: number, write: () => Promise<void>): Promise<void> => {
    for (;;) {
      try {
        return await write();
      } catch (cause) {
        if (!isMongoUnavailable(cause) || performance.now() > until) throw cause;
        await sleep(RECORD_AGAIN_MS);
      }
    }
  };

  /**
   * Stores the pause, releases the slot, and stores the outcome. Storing the outcome again is safe, because the write
   * changes only a record that is still `sending`. The outcomes being stored are bounded, so that they reach MongoDB
   * before a sweep ends their claims.
   */
  const record = async (
    { deliveryId, token }: OwnClaim,
    exchange: Exchange,
    pause: () => Promise<void>,
    slot: Slot,
  ) => {
    const until = performance.now() + timing.recordForMs;
    await writeUntil(until, pause);
    if (recording < recordingMax) slot.release();
    recording += 1;
    try {
      await writeUntil(until, () => deliveries.recordOutcome(deliveryId, token, exchange));
    } finally {
      recording -= 1;
    }
  };

  return {
    logEnd,

    dispatch: async (claim, own, target, slot) => {
      const { endpointId } = claim;
      const { deliveryId, token, redelivery, span } = own;
      const post = tracing.step('POST', span.context, { kind: 'client' });
      const traceparent = sendsTraceparent ? post.context : null;
      const sending = sender.send({
        endpointId,
        url: target.endpoint.url,
        body: Buffer.from(claim.body),
        headers: headersOf(claim, target, { redelivery, traceparent }),
        notAfter: target.at + timing.writeBeforeMs,
      });
      const result = await orFailed(post, slots.watch(endpointId, sending));
      if (result.status !== null) post.note({ 'http.response.status_code': result.status });
      post.end(result.outcome === 'delivered' ? undefined : (result.errorKind ?? result.outcome));
      breaker.record(endpointId, result);
      noteHealth(target.endpoint, result);
      if (isUntried(result)) {
        // The release fails only if a sweep or an erasure has already ended the claim.
        return (await deliveries.release(deliveryId, token, own)) ? 'released' : 'ended';
      }
      const exchange = toExchange(result, target.headers);
      await record(own, exchange, () => pauseAsAsked(endpointId, result), slot);
      span.note({ 'parley.outcome': exchange.outcome });
      logEnd(claim, exchange, span);
      return 'ended';
    },
  };
};
