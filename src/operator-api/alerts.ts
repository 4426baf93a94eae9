import * as z from 'zod';
import { ALERT_KINDS, type AlertStore } from '../alerts/alert.ts';
import { toAlertView } from '../alerts/notify.ts';
import { cursor } from '../http/cursor.ts';
import { wholeNumber } from '../process/validation.ts';
import { type Handled, handled, operation } from './operation.ts';
import { nextCursor, time, timeCursor, uuid } from './wire.ts';

const ALERTS = 50;

const AlertView = z
  .object({
    alertId: uuid,
    kind: z.enum(ALERT_KINDS),
    title: z.string(),
    state: z.enum(['open', 'ended']),
    target: z.string().meta({ description: 'The id of an endpoint or an assistant, or the name of a queue or store.' }),
    assistantId: uuid.nullable().meta({ description: 'Null: it concerns the whole service.' }),
    details: z.record(z.string(), z.union([z.string(), z.number(), time, z.null()])),
    beganAt: time,
    endedAt: time.nullable(),
    acknowledged: z.object({ at: time, operatorId: z.string(), by: z.string() }).nullable(),
  })
  .meta({ id: 'Alert' });

const shared = { tag: 'Operators', audience: 'owners', resource: 'filtered' } as const;

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
