import * as z from 'zod';
import { OverlapHours } from '../../assistants/api-keys.ts';
import type { AssistantStore } from '../../assistants/store.ts';
import { OUTCOMES, RECOVERABLE } from '../delivery.ts';
import type { DeliveryQueue } from '../queue.ts';
import { EVENTS_PER_RECOVERY, type Recoveries, RECOVERY_STATES, type RecoveryProgress } from '../recoveries.ts';
import type { DeliveryStore } from '../store.ts';
import { serverDate } from '../../platform/process/clock.ts';
import { ApiError, invalid } from '../../platform/process/errors.ts';
import { EndpointInput } from '../endpoint.ts';
import type { EndpointStore } from '../endpoints.ts';
import { EventKind } from '../../conversations/event.ts';
import {
  type Call,
  countsOf,
  definedFields,
  type Handled,
  handled,
  operation,
  type Operation,
  time,
  uuid,
} from '../../operators/operation.ts';

const EndpointView = z
  .object({
    endpointId: uuid,
    assistantId: uuid,
    url: z.string(),
    events: z
      .array(EventKind)
      .meta({ description: 'Empty: all events except `message.sent` and `conversation.erased`, which must be named.' }),
    include: EndpointInput.shape.include.unwrap(),
    headers: z.array(
      z.object({
        name: z.string(),
        value: z.string().nullable().meta({ description: 'Null: it is secret.' }),
        secret: z.boolean(),
      }),
    ),
    ratePerSecond: z.int().nullable(),
    standardWebhooks: z.boolean(),
    enabled: z.boolean(),
    enabledSince: time,
    pause: z
      .object({ reason: z.enum(['gone', 'retry_after']), until: time.nullable() })
      .nullable()
      .meta({ description: 'Why its events wait. `until` null: until an operator resumes it.' }),
    failingSince: time
      .nullable()
      .meta({ description: 'Since when none of its events was delivered. Null: the last one was.' }),
    createdAt: time,
    overlapUntil: time.nullable().meta({ description: 'Until then, the previous secret signs too.' }),
  })
  .meta({ id: 'Endpoint' });

const SecretView = z
  .object({ endpoint: EndpointView, secret: z.string().meta({ description: 'Shown only once.' }) })
  .meta({ id: 'EndpointSecret' });

const Change = z.object({
  url: z.string().optional(),
  events: EndpointInput.shape.events.unwrap().optional(),
  include: EndpointInput.shape.include.unwrap().optional(),
  headers: EndpointInput.shape.headers.unwrap().optional(),
  ratePerSecond: EndpointInput.shape.ratePerSecond.unwrap().optional(),
  standardWebhooks: EndpointInput.shape.standardWebhooks.unwrap().optional(),
  enabled: z.boolean().optional().meta({ description: 'False: pending events are not sent.' }),
});

const ofAssistant = { audience: 'owners', resource: 'assistant', path: '/assistants/:id/endpoints' } as const;
const one = { audience: 'owners', resource: 'endpoint' } as const;

export const endpointOperations = {
  list: operation({
    ...ofAssistant,
    method: 'get',
    id: 'listEndpoints',
    summary: 'List endpoints, oldest first',
    answer: z.object({ endpoints: z.array(EndpointView) }),
  }),
  add: operation({
    ...ofAssistant,
    method: 'post',
    id: 'addEndpoint',
    summary: 'Add an endpoint; its secret is shown only once',
    body: EndpointInput,
    status: 201,
    answer: SecretView,
    audit: 'endpoint.add',
  }),
  read: operation({
    ...one,
    method: 'get',
    path: '/endpoints/:id',
    id: 'getEndpoint',
    summary: 'Read an endpoint',
    answer: EndpointView,
  }),
  update: operation({
    ...one,
    method: 'patch',
    path: '/endpoints/:id',
    id: 'updateEndpoint',
    summary: 'Change it, or turn it on or off',
    body: Change,
    answer: EndpointView,
    audit: 'endpoint.update',
  }),
  remove: operation({
    ...one,
    method: 'delete',
    path: '/endpoints/:id',
    id: 'removeEndpoint',
    summary: 'Remove an endpoint; pending events are not sent',
    audit: 'endpoint.remove',
  }),
  rotate: operation({
    ...one,
    method: 'post',
    path: '/endpoints/:id/rotate',
    id: 'rotateEndpointSecret',
    summary: 'Rotate the secret, shown only once; the old one also signs during the overlap',
    body: z.object({ overlapHours: OverlapHours }),
    answer: SecretView,
    audit: 'endpoint.rotate',
  }),
  resume: operation({
    ...one,
    method: 'post',
    path: '/endpoints/:id/resume',
    id: 'resumeEndpoint',
    summary: 'End its pause; waiting events are sent, in order',
    answer: EndpointView,
    audit: 'endpoint.resume',
  }),
  test: operation({
    ...one,
    method: 'post',
    path: '/endpoints/:id/test',
    id: 'testEndpoint',
    summary: 'Send a test event of any kind the real way; getDelivery gives its outcome',
    body: z.object({ event: EventKind.default('webhook.test') }),
    bodyOptional: true,
    status: 202,
    answer: z.object({ deliveryId: z.string() }),
    audit: 'endpoint.test',
  }),
};

/** Lists read the records of every endpoint with deliveries, also of removed ones, and must not become ever slower. */
const ENDPOINTS_WITH_DELIVERIES = 500;

type Dependencies = {
  assistants: Pick<AssistantStore, 'getAssistant'>;
  endpoints: EndpointStore;
  deliveries: Pick<DeliveryStore, 'queueTest' | 'countEndpoints'>;
  deliveryQueue: Pick<DeliveryQueue, 'wakeDelivery'>;
};

/** Logs and audit lines show only the host of a URL, because its path may contain a secret. */
const hostOf = (url: string): string => URL.parse(url)?.host ?? '';

const namesOf = (headers: { name: string }[]) =>
  headers.length > 0 && { headers: headers.map(({ name }) => name).join(', ') };

export const endpointRoutes = ({ assistants, endpoints, deliveries, deliveryQueue }: Dependencies): Handled[] => [
  handled(endpointOperations.list, async ({ params: { id = '' } }) => {
    await assistants.getAssistant(id);
    return { endpoints: await endpoints.listEndpoints(id) };
  }),

  handled(endpointOperations.add, async ({ params: { id = '' }, body, note }) => {
    await assistants.getAssistant(id);
    if ((await deliveries.countEndpoints(id)) >= ENDPOINTS_WITH_DELIVERIES) {
      const message = `This assistant has deliveries of ${ENDPOINTS_WITH_DELIVERIES} endpoints, also of removed ones. Change the URL of an endpoint, or wait until old deliveries are deleted.`;
      throw new ApiError('validation_failed', { message });
    }
    const added = await endpoints.addEndpoint(id, body);
    const { endpointId, url, headers } = added.endpoint;
    note({ target: endpointId, details: { assistantId: id, host: hostOf(url), ...namesOf(headers) } });
    return added;
  }),

  handled(endpointOperations.read, ({ params: { id = '' } }) => endpoints.getEndpoint(id)),

  handled(endpointOperations.update, async ({ params: { id = '' }, body: { enabled, ...rest }, note }) => {
    const changes = definedFields(rest);
    const updated =
      Object.keys(changes).length > 0 ? await endpoints.updateEndpoint(id, changes) : await endpoints.getEndpoint(id);
    const now = enabled === undefined ? updated : await endpoints.setEnabled(id, enabled);
    const { url, events, headers } = now;
    note({
      target: id,
      details: { host: hostOf(url), events: events.join(', '), enabled: now.enabled, ...namesOf(headers) },
    });
    return now;
  }),

  handled(endpointOperations.remove, async ({ params: { id = '' }, note }) => {
    const { assistantId, url } = await endpoints.removeEndpoint(id);
    note({ target: id, details: { assistantId, host: hostOf(url) } });
  }),

  handled(endpointOperations.rotate, async ({ params: { id = '' }, body: { overlapHours }, note }) => {
    const rotated = await endpoints.rotateSecret(id, overlapHours);
    note({ target: id, details: { host: hostOf(rotated.endpoint.url), overlapHours } });
    return rotated;
  }),

  handled(endpointOperations.resume, async ({ params: { id = '' }, note }) => {
    const resumed = await endpoints.resumeEndpoint(id);
    note({ target: id, details: { host: hostOf(resumed.url) } });
    return resumed;
  }),

  handled(endpointOperations.test, async ({ params: { id = '' }, body: { event }, note }) => {
    const endpoint = await endpoints.getEndpoint(id);
    const deliveryId = await deliveries.queueTest(endpoint, event);
    deliveryQueue.wakeDelivery(deliveryId);
    note({ target: id, details: { host: hostOf(endpoint.url), assistantId: endpoint.assistantId, deliveryId, event } });
    return { deliveryId };
  }),
];

const count = z.int().min(0);
const when = z.iso.datetime({ offset: true });

const RecoveryView = z
  .object({
    recoveryId: uuid,
    endpointId: uuid,
    assistantId: uuid,
    from: time,
    to: time,
    outcomes: z.array(z.enum(RECOVERABLE)),
    state: z.enum(RECOVERY_STATES),
    events: count.meta({ description: 'What was to be sent when it began.' }),
    conversations: count,
    sent: countsOf(OUTCOMES).meta({ description: 'Its redeliveries so far, by outcome.' }),
    createdAt: time,
    createdBy: z.string(),
    endedAt: time.nullable(),
  })
  .meta({ id: 'Recovery' });

const StartRecovery = z.object({
  from: when.meta({ description: 'The deliveries that ended at this time or later, to the second,' }),
  to: when.optional().meta({ description: 'and before this time. The default is now.' }),
  outcomes: z
    .array(z.enum(RECOVERABLE))
    .min(1)
    .max(RECOVERABLE.length)
    .default(['not_sent'])
    .meta({ description: 'The receiver may have what is `rejected` or `unknown`.' }),
  dryRun: z.boolean().default(false).meta({ description: 'True: only count.' }),
});

const ofEndpoint = { ...one, path: '/endpoints/:id/recoveries' } as const;
const oneRecovery = { audience: 'owners', resource: 'recovery', answer: RecoveryView } as const;
const change = { ...oneRecovery, method: 'post', errors: ['validation_failed'] } as const;

export const recoveryOperations = {
  start: operation({
    ...ofEndpoint,
    method: 'post',
    id: 'startRecovery',
    summary: `Send what an endpoint missed again, in order, at most ${EVENTS_PER_RECOVERY.toLocaleString('en')} events; or count it`,
    body: StartRecovery,
    answer: z.object({
      events: count,
      conversations: count,
      oldest: time.nullable().meta({ description: 'When the oldest of these events happened. Null: there are none.' }),
      byOutcome: countsOf(RECOVERABLE).meta({ description: 'These events by how their deliveries ended.' }),
      recovery: RecoveryView.nullable().meta({ description: 'Null after a dry run.' }),
    }),
    audit: 'recovery.start',
  }),
  list: operation({
    ...ofEndpoint,
    method: 'get',
    id: 'listRecoveries',
    summary: 'List the last 50 recoveries of an endpoint, newest first',
    answer: z.object({ recoveries: z.array(RecoveryView) }),
  }),
  read: operation({
    ...oneRecovery,
    method: 'get',
    path: '/recoveries/:id',
    id: 'getRecovery',
    summary: 'Read a recovery with its progress',
  }),
  pause: operation({
    ...change,
    path: '/recoveries/:id/pause',
    id: 'pauseRecovery',
    summary: 'Pause a recovery; live events go on',
    audit: 'recovery.pause',
  }),
  resume: operation({
    ...change,
    path: '/recoveries/:id/resume',
    id: 'resumeRecovery',
    summary: 'Resume a paused recovery',
    audit: 'recovery.resume',
  }),
  cancel: operation({
    ...change,
    path: '/recoveries/:id/cancel',
    id: 'cancelRecovery',
    summary: 'Cancel a recovery; what it has not sent stays as it is',
    audit: 'recovery.cancel',
  }),
};

const toView = ({ _id, ...recovery }: RecoveryProgress): z.input<typeof RecoveryView> => {
  const { endpointId, assistantId, from, to, outcomes, state, events, conversations } = recovery;
  const { sent, createdAt, createdBy, endedAt } = recovery;
  const all = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, sent[outcome] ?? 0])) as Record<
    (typeof OUTCOMES)[number],
    number
  >;
  const counts = { events, conversations, sent: all };
  return {
    recoveryId: _id,
    endpointId,
    assistantId,
    from,
    to,
    outcomes,
    state,
    ...counts,
    createdAt,
    createdBy,
    endedAt,
  };
};

type RecoveryDependencies = { endpoints: Pick<EndpointStore, 'getEndpoint'>; recoveries: Recoveries };

/** Changes the state of a recovery at once, even if too many reads wait to count what it has sent. */
const changeTo =
  (recoveries: Recoveries, state: Parameters<Recoveries['change']>[1]) =>
  async ({ params: { id = '' }, record, costly }: Pick<Call<Operation>, 'params' | 'record' | 'costly'>) => {
    await recoveries.change(id, state);
    await record();
    return toView(await costly(() => recoveries.read(id)));
  };

export const recoveryRoutes = ({ endpoints, recoveries }: RecoveryDependencies): Handled[] => [
  handled(recoveryOperations.start, async ({ params: { id = '' }, body, operator, note, costly }) => {
    const { assistantId } = await endpoints.getEndpoint(id);
    const now = serverDate();
    // `endedOn` has whole seconds. Without `to`, the range includes the current second, and so everything that has ended.
    const to = new Date(
      Math.ceil((body.to === undefined ? now.getTime() + 1_000 : Date.parse(body.to)) / 1_000) * 1_000,
    );
    const from = new Date(Math.floor(Date.parse(body.from) / 1_000) * 1_000);
    if (from >= to) throw invalid('from', 'out_of_range', 'must be before `to`');
    if (body.to !== undefined && Date.parse(body.to) > now.getTime())
      throw invalid('to', 'out_of_range', 'must not be in the future');
    const range = { assistantId, endpointId: id, from, to, outcomes: [...new Set(body.outcomes)] };
    const { dryRun } = body;
    note({
      target: id,
      details: { from: body.from, to: to.toISOString(), outcomes: range.outcomes.join(', '), dryRun },
    });
    if (dryRun) return { ...(await costly(() => recoveries.plan(range))), recovery: null };
    const started = await costly(() => recoveries.start(range, operator.email));
    const { events, conversations, oldest, byOutcome } = started;
    return { events, conversations, oldest, byOutcome, recovery: toView(started) };
  }),

  handled(recoveryOperations.list, async ({ params: { id = '' }, costly }) => {
    await endpoints.getEndpoint(id);
    // The progress of recoveries is counted from up to five million redeliveries.
    return { recoveries: (await costly(() => recoveries.list(id))).map(toView) };
  }),

  handled(recoveryOperations.read, async ({ params: { id = '' }, costly }) =>
    toView(await costly(() => recoveries.read(id))),
  ),
  handled(recoveryOperations.pause, changeTo(recoveries, 'paused')),
  handled(recoveryOperations.resume, changeTo(recoveries, 'running')),
  handled(recoveryOperations.cancel, changeTo(recoveries, 'cancelled')),
];
