import type { Claim } from './claims.ts';
import { type ErrorKind, type Exchange, isFinal, neverSent } from './delivery.ts';
import type { StoredEndpoint } from '../webhooks/endpoint.ts';
import { composeBody } from '../webhooks/event.ts';
import type { DeliveryStore } from './store.ts';
import type { OutboxEvent } from '../conversations/conversation.ts';
import { BACKLOG_MAX, lineOf, type Outbox } from './outbox.ts';
import { serverNow } from '../platform/clock.ts';

/** An event that must not go out, and why. */
type Unsendable = { event: OutboxEvent; errorKind: ErrorKind };

export type OnEnded = (
  claim: Pick<Claim, 'eventId' | 'endpointId' | 'event' | 'conversationId'>,
  exchange: Exchange,
) => void;

export const claimOf = (
  outbox: Outbox,
  event: OutboxEvent,
  { endpointId, url }: { endpointId: string; url: string },
): Claim => ({
  eventId: event.eventId,
  endpointId,
  assistantId: outbox.assistantId,
  conversationId: outbox.conversationId,
  event: event.event,
  url,
  body: composeBody(event, outbox),
  happenedAt: event.at,
});

const refusalOf = (event: OutboxEvent, endpoint: StoredEndpoint | null, eventMaxAgeMs: number): ErrorKind | null => {
  if (!endpoint) return 'endpoint_removed';
  if (!endpoint.enabled || endpoint.enabledSince > event.at) return 'endpoint_disabled';
  if (serverNow() - event.at.getTime() > eventMaxAgeMs) return 'expired';
  return null;
};

/** Of a line, oldest first, those at its head that must not go out: refused ones, and what is over the bound. */
export const unsendableOf = (
  line: OutboxEvent[],
  { endpoint, eventMaxAgeMs }: { endpoint: StoredEndpoint | null; eventMaxAgeMs: number },
): Unsendable[] => {
  const over = line.length - BACKLOG_MAX;
  const found: Unsendable[] = [];
  for (const [index, event] of line.entries()) {
    const errorKind = refusalOf(event, endpoint, eventMaxAgeMs) ?? (index < over ? 'backlog' : null);
    if (!errorKind) break;
    found.push({ event, errorKind });
  }
  return found;
};

type Dependencies = { deliveries: DeliveryStore; eventMaxAgeMs: number; onEnded: OnEnded };

/**
 * Ends what of a line must not go out, each event by a claim that is born ended, and takes it off the line. One that
 * somebody is sending is left to him. The endpoint must have been read after the outbox: what it refuses is lost for good.
 * Answers with the outbox as it stands after; null where nothing was to be ended or could be.
 */
export const createEndUnsent =
  ({ deliveries, eventMaxAgeMs, onEnded }: Dependencies) =>
  async (
    { outbox, endpoint }: { outbox: Outbox; endpoint: StoredEndpoint | null },
    endpointId: string,
  ): Promise<Outbox | null> => {
    const to = { endpointId, url: endpoint?.url ?? '' };
    const unsendable = unsendableOf(lineOf(outbox, endpointId), { endpoint, eventMaxAgeMs });
    const results = await Promise.all(
      unsendable.map(async ({ event, errorKind }) => {
        const claim = claimOf(outbox, event, to);
        const exchange = neverSent(errorKind);
        const claimed = await deliveries.claimEnded(claim, exchange);
        if (claimed.won) onEnded(claim, exchange);
        return claimed.won || (claimed.found !== null && isFinal(claimed.found.outcome));
      }),
    );
    const ended = unsendable.filter((_, index) => results[index]).map(({ event }) => event);
    if (ended.length === 0) return null;
    // Where some must not go out, so mostly must those behind them.
    return deliveries.outbox.pullEnded(outbox, endpointId, ended, { readWhole: true });
  };

export type EndUnsent = ReturnType<typeof createEndUnsent>;
