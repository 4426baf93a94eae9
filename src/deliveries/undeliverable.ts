import type { Claim } from './claims.ts';
import { type ErrorKind, type Exchange, isFinal, neverSent } from './delivery.ts';
import type { StoredEndpoint } from '../webhooks/endpoint-store.ts';
import type { DeliveryStore } from './store.ts';
import { BACKLOG_MAX, type OutboxEvent } from '../conversations/conversation.ts';
import { type Outbox, type OutboxStore, pendingOf } from '../conversations/outbox.ts';
import { serverNow } from '../process/clock.ts';
import { mapAtMost } from '../process/slots.ts';

/** An event that must not be sent, and the reason. */
type Undeliverable = { event: OutboxEvent; errorKind: ErrorKind };

export type OnEnded = (
  claim: Pick<Claim, 'eventId' | 'endpointId' | 'event' | 'conversationId'>,
  exchange: Exchange,
) => void;

export const claimOf = (
  outbox: Outbox,
  event: OutboxEvent,
  { endpointId, url, body }: { endpointId: string; url: string; body: string },
): Claim => ({
  eventId: event.eventId,
  endpointId,
  assistantId: outbox.assistantId,
  conversationId: outbox.conversationId,
  event: event.event,
  url,
  body,
  happenedAt: event.at,
});

/**
 * True if the event happened while the endpoint was disabled. If the endpoint was never disabled, its two times are
 * equal and are not compared: every event that names it came after its creation, but clocks of two processes differ by
 * some milliseconds.
 */
const isFromDisabledTime = (event: OutboxEvent, { enabledSince, createdAt }: StoredEndpoint): boolean =>
  enabledSince.getTime() !== createdAt.getTime() && enabledSince > event.at;

const refusalOf = (event: OutboxEvent, endpoint: StoredEndpoint | null, eventMaxAgeMs: number): ErrorKind | null => {
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
export const undeliverableOf = (
  pending: OutboxEvent[],
  { endpoint, eventMaxAgeMs }: { endpoint: StoredEndpoint | null; eventMaxAgeMs: number },
): Undeliverable[] => {
  const over = pending.length - BACKLOG_MAX;
  const found: Undeliverable[] = [];
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
  conversations: { outbox: Pick<OutboxStore, 'pullEnded'> };
  deliveries: Pick<DeliveryStore, 'composeBody' | 'claimEnded'>;
  eventMaxAgeMs: number;
  onEnded: OnEnded;
};

/**
 * Ends the undeliverable events of a stream and removes them from the stream. For each event, a record that has already
 * ended is inserted. An event that a worker is sending is not changed. The endpoint must have been read after the
 * outbox, because ending is final. Returns the changed outbox, or null if nothing was ended.
 */
export type EndUndeliverable = (
  read: { outbox: Outbox; endpoint: StoredEndpoint | null },
  endpointId: string,
) => Promise<Outbox | null>;

export const createEndUndeliverable =
  ({ conversations, deliveries, eventMaxAgeMs, onEnded }: Dependencies): EndUndeliverable =>
  async ({ outbox, endpoint }, endpointId) => {
    const to = { endpointId, url: endpoint?.url ?? '' };
    const undeliverable = undeliverableOf(pendingOf(outbox, endpointId), { endpoint, eventMaxAgeMs });
    const results = await mapAtMost(ENDED_AT_ONCE, undeliverable, async ({ event, errorKind }) => {
      const body = (await deliveries.composeBody(outbox, event, endpoint?.include)) ?? '';
      const claim = claimOf(outbox, event, { ...to, body });
      const exchange = neverSent(errorKind);
      const claimed = await deliveries.claimEnded(claim, exchange);
      if (claimed.won) onEnded(claim, exchange);
      return claimed.won || (claimed.found !== null && isFinal(claimed.found.outcome));
    });
    const ended = undeliverable.filter((_, index) => results[index]).map(({ event }) => event);
    if (ended.length === 0) return null;
    // The next events are probably undeliverable too, so the whole outbox is read.
    return conversations.outbox.pullEnded(outbox, endpointId, ended, { readWhole: true });
  };
