import { LRUCache } from 'lru-cache';
import * as z from 'zod';
import type { AssistantStore } from '../assistants/store.ts';
import { STATUSES } from '../conversations/conversation.ts';
import type { Inbox } from '../inbox/inbox.ts';
import { type Outcome, OUTCOMES } from '../deliveries/delivery.ts';
import { isPaused } from '../webhooks/endpoint.ts';
import type { EndpointStore } from '../webhooks/endpoint-store.ts';
import type { DeliveryQueue } from '../deliveries/queue.ts';
import type { DeliveryStore } from '../deliveries/store.ts';
import type { TurnQueue } from '../turns/queue.ts';
import { type Handled, handled, operation } from './operation.ts';
import { time } from './wire.ts';
import { serverNow } from '../platform/clock.ts';

const DAY_MS = 86_400_000;
const OUTBOXES_MAX = 10_000;
const count = z.int().min(0);
const jobs = z.record(z.string(), count);

export const overviewOperations = {
  read: operation({
    method: 'get',
    path: '/assistants/:id/overview',
    id: 'getOverview',
    tag: 'Operators',
    summary: 'Read figures of the last 24 hours, and totals',
    audience: 'owners',
    resource: 'assistant',
    answer: z.object({
      since: time,
      conversations: z.object(Object.fromEntries(STATUSES.map((status) => [status, count]))),
      deliveries: z.object(Object.fromEntries(OUTCOMES.map((outcome) => [outcome, count]))),
      endpoints: z.object({ all: count, enabled: count, paused: count }),
      knowledgeEntries: count,
      apiKeys: count.meta({ description: 'Keys that are not revoked.' }),
      queues: z.object({ turns: jobs, deliveries: jobs }),
    }),
    errors: ['not_found'],
  }),
};

type Dependencies = {
  assistants: AssistantStore;
  inbox: Inbox;
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  turnQueue: TurnQueue;
  deliveryQueue: DeliveryQueue;
};

/**
 * Caches the counts of an assistant for twenty times as long as the counting took, because pages ask every few seconds.
 */
const cachedByCost = <Counts extends object>(count: (assistantId: string) => Promise<Counts>) => {
  const known = new LRUCache<string, Counts>({ max: 1000, ttl: 1 });
  return async (assistantId: string): Promise<Counts> => {
    const last = known.get(assistantId);
    if (last) return last;
    const startedAt = performance.now();
    const counts = await count(assistantId);
    known.set(assistantId, counts, { ttl: Math.ceil((performance.now() - startedAt) * 20) });
    return counts;
  };
};

/** Adds pending events to `queued`. The outbox still contains events that are being sent, so these are subtracted. */
const withPending = ({ queued = 0, sending = 0, ...ended }: Partial<Record<Outcome, number>>, pending: number) => ({
  ...ended,
  sending,
  queued: queued + Math.max(0, pending - sending),
});

const all = (names: readonly string[], counted: Partial<Record<string, number>>): Record<string, number> =>
  Object.fromEntries(names.map((name) => [name, counted[name] ?? 0]));

export const overviewRoutes = (dependencies: Dependencies): Handled[] => {
  const { assistants, inbox, endpoints, deliveries, turnQueue, deliveryQueue } = dependencies;
  const outcomesOf = cachedByCost((id) => deliveries.countOutcomes(id, new Date(serverNow() - DAY_MS)));
  return [
    handled(overviewOperations.read, async ({ params: { id = '' } }) => {
      await assistants.getAssistant(id);
      const since = new Date(serverNow() - DAY_MS);
      const [statuses, outcomes, pending, registered, knowledgeEntries, apiKeys, turns, wakeUps] = await Promise.all([
        inbox.countStatuses(id, since),
        outcomesOf(id),
        deliveries.pending.count(id, OUTBOXES_MAX),
        endpoints.listEndpoints(id),
        assistants.countKnowledge(id),
        assistants.countApiKeys(id),
        turnQueue.countJobs(),
        deliveryQueue.countJobs(),
      ]);
      return {
        since,
        conversations: all(STATUSES, statuses),
        deliveries: all(OUTCOMES, withPending(outcomes, pending)),
        endpoints: {
          all: registered.length,
          enabled: registered.filter(({ enabled }) => enabled).length,
          paused: registered.filter((one) => one.enabled && isPaused(one, serverNow())).length,
        },
        knowledgeEntries,
        apiKeys,
        queues: { turns, deliveries: wakeUps },
      };
    }),
  ];
};
