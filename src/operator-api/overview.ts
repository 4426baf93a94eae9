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
import { type Days, isTimeZone } from '../insights/summary.ts';
import type { Insights } from '../insights/store.ts';
import { cachedByCost, createReadFigures, FiguresView } from './overview/figures.ts';
import { Ailment, createFindAilments } from './overview/health.ts';
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
    summary: 'Read what is unhealthy, figures of today, 7 or 30 days, and totals',
    audience: 'owners',
    resource: 'assistant',
    query: z.object({
      days: z
        .enum(['1', '7', '30'])
        .optional()
        .meta({ description: 'The figures of today (1), or of 7 or 30 days with today.' }),
      timeZone: z
        .string()
        .max(64)
        .refine(isTimeZone, 'must be a time zone like Europe/Berlin')
        .optional()
        .meta({ description: 'The time zone of days and hours. UTC if omitted.', example: 'Europe/Berlin' }),
    }),
    answer: z.object({
      unhealthy: z.array(Ailment),
      figures: FiguresView,
      since: time.meta({ description: 'The beginning of the following counts of conversations and deliveries.' }),
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
  insights: Insights;
  assistants: AssistantStore;
  inbox: Inbox;
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  turnQueue: TurnQueue;
  deliveryQueue: DeliveryQueue;
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
  const readFigures = createReadFigures(dependencies);
  const findAilments = createFindAilments(dependencies);
  return [
    handled(overviewOperations.read, async ({ params: { id = '' }, query: { days = '1', timeZone = 'UTC' } }) => {
      await assistants.getAssistant(id);
      const since = new Date(serverNow() - DAY_MS);
      const [read, statuses, outcomes, pending, registered, knowledgeEntries, apiKeys, turns, wakeUps] =
        await Promise.all([
          readFigures(id, { days: Number(days) as Days, timeZone }), // one of the three values
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
        unhealthy: await findAilments(registered, read.hours),
        figures: read.figures,
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
