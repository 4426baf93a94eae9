import * as z from 'zod';
import type { AssistantStore } from '../assistants/store.ts';
import { EndpointInput, type EndpointStore, MAX_OVERLAP_HOURS } from '../webhooks/endpoint-store.ts';
import { EventKind } from '../webhooks/event.ts';
import type { DeliveryQueue } from '../deliveries/queue.ts';
import type { DeliveryStore } from '../deliveries/store.ts';
import { type Handled, handled, operation } from './operation.ts';
import { definedFields, time, uuid } from './wire.ts';

const tag = 'Operators';
const audience = 'owners';

const EndpointView = z
  .object({
    endpointId: uuid,
    assistantId: uuid,
    url: z.string(),
    events: z.array(EventKind).meta({ description: 'Empty: all events except `message.sent`, which must be named.' }),
    include: EndpointInput.shape.include.unwrap(),
    enabled: z.boolean(),
    enabledSince: time,
    pause: z
      .object({ reason: z.enum(['gone', 'retry_after']), until: time.nullable() })
      .nullable()
      .meta({ description: 'Why its events wait. `until` null: until an operator resumes it.' }),
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
  enabled: z.boolean().optional().meta({ description: 'False: pending events are not sent.' }),
});

const one = { tag, audience, errors: ['not_found'] } as const;

export const endpointOperations = {
  list: operation({
    ...one,
    resource: 'assistant',
    method: 'get',
    path: '/assistants/:id/endpoints',
    id: 'listEndpoints',
    summary: 'List endpoints, oldest first',
    answer: z.object({ endpoints: z.array(EndpointView) }),
  }),
  add: operation({
    ...one,
    resource: 'assistant',
    method: 'post',
    path: '/assistants/:id/endpoints',
    id: 'addEndpoint',
    summary: 'Add an endpoint; its secret is shown only once',
    body: EndpointInput,
    status: 201,
    answer: SecretView,
    audit: 'endpoint.add',
  }),
  read: operation({
    ...one,
    resource: 'endpoint',
    method: 'get',
    path: '/endpoints/:id',
    id: 'getEndpoint',
    summary: 'Read an endpoint',
    answer: EndpointView,
  }),
  update: operation({
    ...one,
    resource: 'endpoint',
    method: 'patch',
    path: '/endpoints/:id',
    id: 'updateEndpoint',
    summary: 'Change its URL or events, or turn it on or off',
    body: Change,
    answer: EndpointView,
    audit: 'endpoint.update',
  }),
  remove: operation({
    ...one,
    resource: 'endpoint',
    method: 'delete',
    path: '/endpoints/:id',
    id: 'removeEndpoint',
    summary: 'Remove an endpoint; pending events are not sent',
    audit: 'endpoint.remove',
  }),
  rotate: operation({
    ...one,
    resource: 'endpoint',
    method: 'post',
    path: '/endpoints/:id/rotate',
    id: 'rotateEndpointSecret',
    summary: 'Rotate the secret, shown only once; the old one also signs during the overlap',
    body: z.object({ overlapHours: z.number().min(0).max(MAX_OVERLAP_HOURS).default(0) }),
    answer: SecretView,
    audit: 'endpoint.rotate',
  }),
  resume: operation({
    ...one,
    resource: 'endpoint',
    method: 'post',
    path: '/endpoints/:id/resume',
    id: 'resumeEndpoint',
    summary: 'End its pause; waiting events are sent, in order',
    answer: EndpointView,
    audit: 'endpoint.resume',
  }),
  test: operation({
    ...one,
    resource: 'endpoint',
    method: 'post',
    path: '/endpoints/:id/test',
    id: 'testEndpoint',
    summary: 'Send a test event the real way; getDelivery gives its outcome',
    status: 202,
    answer: z.object({ deliveryId: z.string() }),
    audit: 'endpoint.test',
  }),
};

type Dependencies = {
  assistants: Pick<AssistantStore, 'getAssistant'>;
  endpoints: EndpointStore;
  deliveries: Pick<DeliveryStore, 'queueTest'>;
  deliveryQueue: Pick<DeliveryQueue, 'wakeDelivery'>;
};

/** Logs and audit lines show only the host of a URL, because its path may contain a secret. */
const hostOf = (url: string): string => URL.parse(url)?.host ?? '';

export const endpointRoutes = ({ assistants, endpoints, deliveries, deliveryQueue }: Dependencies): Handled[] => [
  handled(endpointOperations.list, async ({ params: { id = '' } }) => {
    await assistants.getAssistant(id);
    return { endpoints: await endpoints.listEndpoints(id) };
  }),

  handled(endpointOperations.add, async ({ params: { id = '' }, body, note }) => {
    await assistants.getAssistant(id);
    const added = await endpoints.addEndpoint(id, body);
    const { endpointId, url } = added.endpoint;
    note({ target: endpointId, details: { assistantId: id, host: hostOf(url) } });
    return added;
  }),

  handled(endpointOperations.read, ({ params: { id = '' } }) => endpoints.getEndpoint(id)),

  handled(endpointOperations.update, async ({ params: { id = '' }, body: { enabled, ...rest }, note }) => {
    const changes = definedFields(rest);
    const updated =
      Object.keys(changes).length > 0 ? await endpoints.updateEndpoint(id, changes) : await endpoints.getEndpoint(id);
    const now = enabled === undefined ? updated : await endpoints.setEnabled(id, enabled);
    note({ target: id, details: { host: hostOf(now.url), events: now.events.join(', '), enabled: now.enabled } });
    return now;
  }),

  handled(endpointOperations.remove, async ({ params: { id = '' }, note }) => {
    const { assistantId, url } = await endpoints.removeEndpoint(id);
    note({ target: id, details: { assistantId, host: hostOf(url) } });
  }),

  handled(endpointOperations.rotate, async ({ params: { id = '' }, body: { overlapHours }, note }) => {
    note({ target: id, details: { overlapHours } });
    return endpoints.rotateSecret(id, overlapHours);
  }),

  handled(endpointOperations.resume, ({ params: { id = '' } }) => endpoints.resumeEndpoint(id)),

  handled(endpointOperations.test, async ({ params: { id = '' }, note }) => {
    const deliveryId = await deliveries.queueTest(await endpoints.getEndpoint(id));
    deliveryQueue.wakeDelivery(deliveryId);
    note({ target: id, details: { deliveryId } });
    return { deliveryId };
  }),
];
