import * as z from 'zod';
import { ALERT_KINDS, type AlertStore } from '../../alerts/alert.ts';
import { toAlertView } from '../../alerts/notify.ts';
import type { AssistantStore } from '../../assistants/store.ts';
import { STATUSES } from '../../conversations/conversation.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import { type Outcome, OUTCOMES } from '../../events/delivery.ts';
import type { DeliveryStore } from '../../events/store.ts';
import { cursor, wholeNumber } from '../../platform/process/validation.ts';
import { COUNTERS, ESCALATION_REASONS, hourOf, incrementId, type StoredFigures } from '../figures.ts';
import type { Insights } from '../store.ts';
import { type Days, isTimeZone, summarise, summarySince } from '../summary.ts';
import { DAY_MS, HOUR_MS, serverNow } from '../../platform/process/clock.ts';
import type { QueueWatch } from '../../platform/redis/queue.ts';
import { CERTIFICATE_SHOWN_MS, type Endpoint } from '../../events/endpoint.ts';
import { type EndpointStore, isPaused } from '../../events/endpoints.ts';
import {
  countsOf,
  type Handled,
  handled,
  nextCursor,
  operation,
  time,
  timeCursor,
  uuid,
} from '../../operators/operation.ts';
import { cachedByCost } from '../../platform/process/lru.ts';
import { inSlices } from '../../platform/process/slices.ts';
import { mapAtMost } from '../../platform/process/slots.ts';

const count = z.int().min(0);

const Slot = z.object({
  ...countsOf(COUNTERS).shape,
  escalated: countsOf(ESCALATION_REASONS),
  deliveries: countsOf(['delivered', 'rejected', 'not_sent', 'unknown']),
  replyMs: z.object({ p50: count, p95: count }).nullable().meta({ description: 'At most a quarter too high.' }),
});

const FiguresView = z
  .object({
    from: z.string().meta({ description: 'The first day, in the time zone of the request.', example: '2026-05-04' }),
    totals: Slot,
    slots: z
      .array(z.object({ at: z.string(), ...Slot.shape }))
      .meta({ description: 'One for each day, or for each hour of today.' }),
    busiestHours: z.array(count).length(24).meta({ description: 'Turns by hour of the day.' }),
  })
  .meta({ id: 'Figures' });

/** Deliveries of at most this time are counted from their records, if no worker has counted them yet. */
const UNCOUNTED_MAX_MS = 24 * HOUR_MS;

type ReadHours = (assistantId: string, since: Date, to?: Date) => Promise<StoredFigures[]>;

/** Reads an assistant's figures: the projected hours, and the deliveries of the last hours from their records. */
export const createReadHours = ({
  insights,
  deliveries,
}: {
  insights: Insights;
  deliveries: DeliveryStore;
}): ReadHours => {
  const latestDeliveries = cachedByCost(async (assistantId) => {
    const counted = (await insights.deliveryFigures.countedTo(assistantId))?.getTime() ?? 0;
    const to = new Date(serverNow() + HOUR_MS);
    // Starts at a full hour, because a count from records replaces the stored count of its hour.
    const from = hourOf(new Date(Math.max(counted, to.getTime() - UNCOUNTED_MAX_MS)));
    const hours = await deliveries.countHourlyOutcomes(assistantId, { from, to });
    return hours.map(({ hour, outcomes }): StoredFigures => {
      const own = { assistantId, hour };
      return { _id: incrementId(own), ...own, deliveries: outcomes };
    });
  });

  return async (assistantId, since, to) => {
    const hours = await insights.figures.listHours(assistantId, { from: since, ...(to && { to }) });
    const latest = await latestDeliveries(assistantId);
    // The records know the latest hours better than the projection, which counts an hour after its end.
    const uncounted = new Set(latest.map(({ _id }) => _id));
    const known = hours.map((hour) => (uncounted.has(hour._id) ? { ...hour, deliveries: undefined } : hour));
    return [...known, ...latest] as StoredFigures[];
  };
};

const QUEUE_SLOW_MS = 10_000;
/**
 * An engine counts as failing, and the model as busy, if that was so for at least three replies and a tenth of all
 * replies of the last hour or two.
 */
const LEAST_REPLIES = 3;
const LEAST_SHARE = 0.1;

const ofEndpoint = { endpointId: uuid, url: z.string() };

/** What needs somebody's attention. */
const Ailment = z
  .discriminatedUnion('kind', [
    z.object({
      kind: z.literal('endpoint_paused'),
      ...ofEndpoint,
      reason: z.enum(['gone', 'retry_after']),
      until: time.nullable(),
    }),
    z.object({ kind: z.literal('certificate_expires'), ...ofEndpoint, expiresAt: time }),
    z.object({ kind: z.literal('queue_slow'), queue: z.enum(['turns', 'deliveries']), waitingSince: time }),
    z.object({ kind: z.literal('engine_failing'), failed: z.int(), replies: z.int() }),
    z.object({ kind: z.literal('model_busy'), byWordsOnly: z.int(), replies: z.int() }),
  ])
  .meta({ id: 'Ailment' });
type Ailment = z.input<typeof Ailment>;

type Dependencies = {
  deliveries: Pick<DeliveryStore, 'findCertificateExpiry'>;
  queues: Record<'turns' | 'deliveries', QueueWatch>;
};

const findPaused = (endpoints: Endpoint[], now: number): Ailment[] =>
  endpoints.flatMap((one): Ailment[] =>
    one.enabled && one.pause && isPaused(one, now)
      ? [{ kind: 'endpoint_paused', endpointId: one.endpointId, url: one.url, ...one.pause }]
      : [],
  );

const findFailing = (hours: StoredFigures[], now: number): Ailment[] => {
  const latest = hours.filter(({ hour }) => hour.getTime() > now - 2 * HOUR_MS);
  const sum = (of: (one: StoredFigures) => number): number => latest.reduce((total, one) => total + of(one), 0);
  const failed = sum(({ engineErrors = 0 }) => engineErrors);
  const replies = sum(
    ({ answered = 0, hedged = 0, offered = 0, notAnswered = 0, other = 0 }) =>
      answered + hedged + offered + notAnswered + other,
  );
  const byWordsOnly = sum((one) => one.byWordsOnly ?? 0);
  const isMuch = (count: number): boolean => count >= LEAST_REPLIES && count >= replies * LEAST_SHARE;
  return [
    ...(isMuch(failed) ? [{ kind: 'engine_failing' as const, failed, replies }] : []),
    ...(isMuch(byWordsOnly) ? [{ kind: 'model_busy' as const, byWordsOnly, replies }] : []),
  ];
};

/** Finds what is unhealthy, for one assistant and for the queues that all assistants share. */
const createFindAilments = ({ deliveries, queues }: Dependencies) => {
  const findSlow = async (queue: 'turns' | 'deliveries'): Promise<Ailment[]> => {
    const at = await queues[queue].oldestWaitingAt();
    return at !== null && serverNow() - at > QUEUE_SLOW_MS
      ? [{ kind: 'queue_slow', queue, waitingSince: new Date(at) }]
      : [];
  };

  const findExpiring = async (endpoint: Endpoint): Promise<Ailment[]> => {
    const { endpointId, url } = endpoint;
    const expiresAt = endpoint.enabled ? await deliveries.findCertificateExpiry(endpoint) : null;
    return expiresAt && expiresAt.getTime() < serverNow() + CERTIFICATE_SHOWN_MS
      ? [{ kind: 'certificate_expires', endpointId, url, expiresAt }]
      : [];
  };

  return async (endpoints: Endpoint[], hours: StoredFigures[]): Promise<Ailment[]> => {
    const now = serverNow();
    const slow = await Promise.all([findSlow('turns'), findSlow('deliveries')]);
    const expiring = await mapAtMost(1, endpoints, findExpiring);
    return [...findPaused(endpoints, now), ...findFailing(hours, now), ...slow.flat(), ...expiring.flat()];
  };
};

const OUTBOXES_MAX = 10_000;
const jobs = z.record(z.string(), count);

export const overviewOperations = {
  read: operation({
    method: 'get',
    path: '/assistants/:id/overview',
    id: 'getOverview',
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
      endpoints: z.object({ all: count, enabled: count, paused: count, failing: count }),
      knowledgeEntries: count,
      passages: count.meta({ description: 'Passages of its sources that answers use.' }),
      apiKeys: count.meta({ description: 'Keys that are not revoked.' }),
      queues: z.object({ turns: jobs, deliveries: jobs }),
    }),
  }),
};

type OverviewDependencies = {
  conversations: Pick<ConversationStore, 'inbox' | 'outbox'>;
  insights: Insights;
  assistants: Pick<AssistantStore, 'countApiKeys' | 'countKnowledge' | 'getAssistant'>;
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  queues: Record<'turns' | 'deliveries', QueueWatch>;
};

/** Adds pending events to `queued`. The outbox still contains events that are being sent, so these are subtracted. */
const withPending = ({ queued = 0, sending = 0, ...ended }: Partial<Record<Outcome, number>>, pending: number) => ({
  ...ended,
  sending,
  queued: queued + Math.max(0, pending - sending),
});

const all = (names: readonly string[], counted: Partial<Record<string, number>>): Record<string, number> =>
  Object.fromEntries(names.map((name) => [name, counted[name] ?? 0]));

export const overviewRoutes = (dependencies: OverviewDependencies): Handled[] => {
  const { assistants, conversations, endpoints, deliveries, queues } = dependencies;
  const outcomesOf = cachedByCost((id) => deliveries.countOutcomes(id, new Date(serverNow() - DAY_MS)));
  const readHours = createReadHours(dependencies);
  const findAilments = createFindAilments(dependencies);
  return [
    handled(
      overviewOperations.read,
      async ({ params: { id = '' }, query: { days = '1', timeZone = 'UTC' }, costly }) => {
        const { passages } = await assistants.getAssistant(id);
        const now = serverNow();
        const since = new Date(now - DAY_MS);
        const period = Number(days) as Days; // one of the three values
        const registered = await endpoints.listEndpoints(id);
        const endpointIds = registered.map(({ endpointId }) => endpointId);
        // One after the other: each may read all of an assistant.
        const [hours, figures, statuses, outcomes, pending, knowledgeEntries, apiKeys] = await costly(async () => {
          const read = await readHours(id, summarySince(period, now));
          return [
            read,
            await inSlices(summarise(read, { days: period, timeZone, now })),
            await conversations.inbox.countStatuses(id, since),
            await outcomesOf(id),
            await conversations.outbox.countPending(endpointIds, OUTBOXES_MAX),
            await assistants.countKnowledge(id),
            await assistants.countApiKeys(id),
          ] as const;
        });
        const [turns, wakeUps] = await Promise.all([queues.turns.countJobs(), queues.deliveries.countJobs()]);
        const enabled = registered.filter((one) => one.enabled);
        const sending = enabled.filter((one) => !isPaused(one, now));
        return {
          unhealthy: await findAilments(registered, hours),
          figures,
          since,
          conversations: all(STATUSES, statuses),
          deliveries: all(OUTCOMES, withPending(outcomes, pending)),
          endpoints: {
            all: registered.length,
            enabled: enabled.length,
            paused: enabled.length - sending.length,
            failing: sending.filter(({ failingSince }) => failingSince !== null).length,
          },
          knowledgeEntries,
          passages: passages?.count ?? 0,
          apiKeys,
          queues: { turns, deliveries: wakeUps },
        };
      },
    ),
  ];
};

const ALERTS = 50;

export const AlertView = z
  .object({
    alertId: uuid,
    kind: z.enum(ALERT_KINDS),
    title: z.string(),
    remedy: z.string().meta({ description: 'What to look at, and do.' }),
    state: z.enum(['open', 'ended']),
    target: z.string().meta({ description: 'The id of an endpoint or an assistant, or the name of a queue or store.' }),
    assistantId: uuid.nullable().meta({ description: 'Null: it concerns the whole service.' }),
    details: z.record(z.string(), z.union([z.string(), z.number(), time, z.null()])),
    beganAt: time,
    endedAt: time.nullable(),
    acknowledged: z.object({ at: time, operatorId: z.string(), by: z.string() }).nullable(),
  })
  .meta({ id: 'Alert' });

const shared = { audience: 'owners', resource: 'filtered' } as const;

export const alertOperations = {
  list: operation({
    ...shared,
    method: 'get',
    path: '/alerts',
    id: 'listAlerts',
    summary: 'List what needs attention, newest first; kept for 90 days after its end',
    description: 'Tokens that are limited to some assistants get the alerts of these.',
    query: z.object({
      state: z.enum(['open', 'ended']).optional(),
      limit: wholeNumber(1, 200).optional(),
      cursor: cursor.optional(),
    }),
    answer: z.object({
      alerts: z.array(AlertView),
      open: z.int().min(0).meta({ description: 'How many are open, at most 1,000.' }),
      nextCursor,
    }),
  }),
  acknowledge: operation({
    ...shared,
    method: 'post',
    path: '/alerts/:id/acknowledge',
    id: 'acknowledgeAlert',
    summary: 'Tell others that somebody looks after it',
    answer: AlertView,
    audit: 'alert.acknowledge',
    errors: ['not_found'],
  }),
};

export const alertRoutes = ({ alerts }: { alerts: AlertStore }): Handled[] => [
  handled(
    alertOperations.list,
    async ({ query: { state, limit = ALERTS, cursor: from }, operator: { assistantIds } }) => {
      const [{ alerts: shown, next }, open] = await Promise.all([
        alerts.list({
          assistantIds,
          ...(state !== undefined && { open: state === 'open' }),
          ...(from !== undefined && { after: timeCursor.decode(from) }),
          limit,
        }),
        alerts.countOpen(assistantIds),
      ]);
      return { alerts: shown.map(toAlertView), open, nextCursor: next && timeCursor.encode(next) };
    },
  ),

  handled(alertOperations.acknowledge, async ({ params: { id = '' }, operator, note }) => {
    const { operatorId, assistantIds, email: by } = operator;
    const alert = await alerts.acknowledge(id, { operatorId, by }, assistantIds);
    note({ target: id, details: { kind: alert.kind } });
    return toAlertView(alert);
  }),
];
