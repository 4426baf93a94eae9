import type { OutboxEvent } from '../../src/conversations/conversation.ts';
import { BACKLOG_MAX, lineOf, type Outbox } from '../../src/conversations/outbox.ts';
import type { ConversationStore } from '../../src/conversations/store.ts';
import type { Exchange, StoredDelivery } from '../../src/events/delivery.ts';
import { isPaused, type StoredEndpoint } from '../../src/events/endpoint.ts';
import type { EndpointStore } from '../../src/events/endpoint-store.ts';
import { composeBody } from '../../src/events/event.ts';
import { signEvent } from '../../src/events/signature.ts';
import type { Claim, DeliveryStore } from '../../src/events/store.ts';
import { createBatcher } from '../../src/platform/batch.ts';
import type { Logger } from '../../src/platform/logger.ts';
import type { CountDelivery } from '../../src/service-metrics.ts';
import type { Breaker } from './breaker.ts';
import type { Sender, SendResult } from './send.ts';
import type { Slots } from './slots.ts';

/** Older than this, what was read may no longer hold: no claim, no connecting. */
const READING_HOLDS_MS = 2_000;
/** Past this, nothing of the request may be written; a claim this old is about to be swept away. */
const WRITE_BEFORE_MS = 7_000;
const RETRY_AFTER_MAX_S = 600;

type Dependencies = {
  conversations: ConversationStore;
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  sender: Sender;
  breaker: Breaker;
  slots: Slots;
  eventMaxAgeMs: number;
  countDelivery: CountDelivery;
  logger: Logger;
};

/** What a line read, and when (monotonic, taken before the reading): its conversation's outbox and its endpoint. */
type Reading = { at: number; outbox: Outbox; endpoint: StoredEndpoint | null };

const neverSent = (errorKind: string): Exchange => ({
  outcome: 'not_sent',
  errorKind,
  status: null,
  requestHeaders: {},
  responseHeaders: {},
  responseBody: null,
  truncated: false,
  timings: null,
  remoteAddress: null,
  tls: null,
});

const toExchange = (result: SendResult): Exchange => {
  const {
    outcome,
    errorKind,
    status,
    requestHeaders,
    responseHeaders,
    responseBody,
    truncated,
    timings,
    remoteAddress,
    tls,
  } = result;
  return {
    outcome,
    errorKind,
    status,
    requestHeaders,
    responseHeaders,
    responseBody,
    truncated,
    timings,
    remoteAddress,
    tls,
  };
};

/** Nothing was written, and nothing was learnt: the event is as unsent as before. */
const isUntried = ({ wrote, errorKind }: SendResult): boolean =>
  !wrote && (errorKind === 'too_late' || errorKind === 'shutdown');

/** Why this event must not go out; it ends without a send, and the line goes on. */
const refusalOf = (event: OutboxEvent, endpoint: StoredEndpoint | null, eventMaxAgeMs: number): string | null => {
  if (!endpoint) return 'endpoint_removed';
  if (!endpoint.enabled || endpoint.enabledSince > event.at) return 'endpoint_disabled';
  if (Date.now() - event.at.getTime() > eventMaxAgeMs) return 'expired';
  return null;
};

/**
 * One line at a time: the events of a conversation to an endpoint, in order, each started after the one before has ended.
 * The claim is the only licence to send; nothing here runs a second time for a claim that was won (contract §6).
 */
export const createDeliver = (dependencies: Dependencies) => {
  const { conversations, endpoints, deliveries, sender, breaker, slots, eventMaxAgeMs, countDelivery, logger } =
    dependencies;

  const readEndpoint = createBatcher<string, StoredEndpoint | null>(async (ids) => {
    const found = await endpoints.readForSending([...new Set(ids)]);
    return ids.map((id) => found.get(id) ?? null);
  });

  const headersOf = (
    event: { event: string; eventId: string },
    endpoint: StoredEndpoint,
    body: string,
    redelivery: boolean,
  ) => {
    const secrets = endpoints.openSecrets(endpoint, Date.now());
    return (timestamp: number): Record<string, string> => ({
      'Content-Type': 'application/json',
      'X-Factory-Event': event.event,
      'X-Factory-Event-Id': event.eventId,
      'X-Factory-Signature': signEvent({ body, secrets, timestamp }),
      ...(redelivery && { 'X-Factory-Redelivery': 'true' }),
    });
  };

  /** Pauses are written before the outcome: whoever takes the line next must see them. */
  const pauseAsAsked = async (endpointId: string, { status, retryAfterSeconds }: SendResult): Promise<void> => {
    if (status === 410) return endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
    if ((status === 429 || status === 503) && retryAfterSeconds !== null) {
      const seconds = Math.min(retryAfterSeconds, RETRY_AFTER_MAX_S);
      await endpoints.pauseEndpoint(endpointId, {
        reason: 'retry_after',
        until: new Date(Date.now() + seconds * 1000),
      });
    }
  };

  const logEnd = (
    claim: { eventId: string; endpointId: string; event: string; conversationId: string | null },
    exchange: Exchange,
  ): void => {
    countDelivery(exchange);
    logger.info(
      {
        eventId: claim.eventId,
        endpointId: claim.endpointId,
        event: claim.event,
        conversationId: claim.conversationId,
        outcome: exchange.outcome,
        errorKind: exchange.errorKind,
        status: exchange.status,
        ms: exchange.timings?.total ?? null,
      },
      'delivery ended',
    );
  };

  /** The effect and its record. False: untried, the claim was given back. */
  const sendClaimed = async (
    claim: Pick<Claim, 'eventId' | 'endpointId' | 'event' | 'conversationId' | 'body'>,
    held: { deliveryId: string; token: string; redelivery: boolean },
    { at, endpoint }: { at: number; endpoint: StoredEndpoint },
  ): Promise<boolean> => {
    const result = await sender.send({
      endpointId: claim.endpointId,
      url: endpoint.url,
      body: Buffer.from(claim.body),
      headers: headersOf(claim, endpoint, claim.body, held.redelivery),
      notAfter: at + WRITE_BEFORE_MS,
    });
    if (isUntried(result) && (await deliveries.releaseClaim(held.deliveryId, held.token))) return false;
    breaker.record(claim.endpointId, result);
    await pauseAsAsked(claim.endpointId, result);
    const exchange = toExchange(result);
    await deliveries.recordOutcome(held.deliveryId, held.token, exchange);
    logEnd(claim, exchange);
    return true;
  };

  const claimOf = ({ outbox, endpoint }: Reading, event: OutboxEvent, endpointId: string): Claim => ({
    eventId: event.eventId,
    endpointId,
    assistantId: outbox.assistantId,
    conversationId: outbox.conversationId,
    event: event.event,
    url: endpoint?.url ?? '',
    body: composeBody(event, outbox),
    happenedAt: event.at,
  });

  const pull = async ({ outbox }: Reading, event: OutboxEvent, endpointId: string): Promise<Reading | null> => {
    const at = performance.now();
    const { _id: key, conversationId } = outbox;
    const [after, endpoint] = await Promise.all([
      conversations.outbox.pullEnded({ key, conversationId, eventId: event.eventId, endpointId }),
      readEndpoint(endpointId),
    ]);
    return after && { at, outbox: after, endpoint };
  };

  /** Ends an event without sending it. Null: the line is somebody else's now. */
  const endUnsent = async (
    reading: Reading,
    event: OutboxEvent,
    { endpointId, errorKind }: { endpointId: string; errorKind: string },
  ) => {
    const claim = claimOf(reading, event, endpointId);
    const exchange = neverSent(errorKind);
    const claimed = await deliveries.claimEnded(claim, exchange);
    if (!claimed.won && !(claimed.found && claimed.found.outcome !== 'sending')) return null;
    if (claimed.won) logEnd(claim, exchange);
    return pull(reading, event, endpointId);
  };

  /** Claims and sends the head; the reading after it, or null where this line is left to others. */
  const sendHead = async (reading: Reading, event: OutboxEvent, endpoint: StoredEndpoint): Promise<Reading | null> => {
    const endpointId = endpoint._id;
    const claim = claimOf(reading, event, endpointId);
    const claimed = await deliveries.claim(claim);
    if (!claimed.won) {
      // Ended by somebody: take it off the line. Being sent, or not known: leave the line to whoever has it.
      return claimed.found && claimed.found.outcome !== 'sending' ? pull(reading, event, endpointId) : null;
    }
    const sent = await sendClaimed(claim, { ...claimed, redelivery: false }, { at: reading.at, endpoint });
    return sent ? pull(reading, event, endpointId) : null;
  };

  const read = async (key: string, endpointId: string): Promise<Reading | null> => {
    const at = performance.now();
    const [outbox, endpoint] = await Promise.all([conversations.outbox.read(key), readEndpoint(endpointId)]);
    return outbox && { at, outbox, endpoint };
  };

  const isFresh = ({ at }: Reading): boolean => performance.now() - at < READING_HOLDS_MS;

  /** One step of a line: ends or sends its first event. Null when the line rests: empty, paused, held by another. */
  const step = async (reading: Reading, endpointId: string): Promise<Reading | null> => {
    const line = lineOf(reading.outbox, endpointId);
    const [event] = line;
    if (!event) return null;
    const errorKind = line.length > BACKLOG_MAX ? 'backlog' : refusalOf(event, reading.endpoint, eventMaxAgeMs);
    if (errorKind) return endUnsent(reading, event, { endpointId, errorKind });
    const { endpoint } = reading;
    if (!endpoint || isPaused(endpoint, Date.now()) || !breaker.mayStart(endpointId)) return null;
    if (!(await slots.enter(endpointId))) return null;
    try {
      // The place in line may have been long: what was read then may no longer hold.
      if (!isFresh(reading)) return await read(reading.outbox._id, endpointId);
      return await sendHead(reading, event, endpoint);
    } finally {
      slots.leave(endpointId);
    }
  };

  return {
    /** Works a line off until it is empty, paused, or in other hands. */
    deliverLine: async (key: string, endpointId: string): Promise<void> => {
      let reading = await read(key, endpointId);
      while (reading) reading = await step(reading, endpointId);
    },

    /** A test or a resend: outside the order, claimed by compare-and-set. */
    deliverQueued: async (deliveryId: string): Promise<void> => {
      const at = performance.now();
      const queued: StoredDelivery | undefined = (await deliveries.readByIds([deliveryId])).get(deliveryId);
      if (!queued || queued.outcome !== 'queued' || queued.body === null) return;
      const endpoint = await readEndpoint(queued.endpointId);
      if (!(await slots.enter(queued.endpointId))) return;
      try {
        if (performance.now() - at > READING_HOLDS_MS) return;
        const claimed = await deliveries.claimQueued(deliveryId);
        if (!claimed) return;
        const { token, delivery } = claimed;
        if (!endpoint) return await deliveries.recordOutcome(deliveryId, token, neverSent('endpoint_removed'));
        const claim = { ...delivery, body: delivery.body ?? '' };
        await sendClaimed(claim, { deliveryId, token, redelivery: delivery.redelivery }, { at, endpoint });
      } finally {
        slots.leave(queued.endpointId);
      }
    },
  };
};

export type Deliver = ReturnType<typeof createDeliver>;
