import * as z from 'zod';
import { ERROR_KINDS, isFinal, OUTCOMES } from '../delivery.ts';
import { type ListedDelivery as Row, describeTest, toDeliveryView } from '../view.ts';
import type { EndpointStore } from '../endpoints.ts';
import { EventKind } from '../../conversations/event.ts';
import { LIST_MAX } from '../list.ts';
import type { DeliveryQueue } from '../queue.ts';
import type { DeliveryStore } from '../store.ts';
import { cursor, wholeNumber } from '../../platform/process/validation.ts';
import { createRestedWork } from '../../platform/http/request-slots.ts';
import { invalid } from '../../platform/process/errors.ts';
import {
  definedFields,
  type Handled,
  handled,
  nextCursor,
  operation,
  readPage,
  time,
  uuid,
} from '../../operators/operation.ts';

const ms = z.number().nullable();
const when = z.iso.datetime({ offset: true });

export const DeliveryRow = z
  .object({
    deliveryId: z.string(),
    eventId: uuid,
    event: EventKind,
    endpointId: uuid,
    assistantId: uuid,
    conversationId: uuid.nullable(),
    outcome: z.enum(OUTCOMES),
    sequence: z.int().nullable().meta({
      description: 'Its number among the events of the conversation for this endpoint; null for a test event.',
    }),
    errorKind: z.enum(ERROR_KINDS).nullable(),
    errorDetail: z.string().nullable(),
    status: z.int().nullable(),
    url: z.string().nullable(),
    redelivery: z.boolean(),
    ms,
    happenedAt: time,
    createdAt: time,
    endedAt: time.nullable(),
  })
  .meta({ id: 'DeliveryRow' });

const headers = z.record(z.string(), z.union([z.string(), z.array(z.string())]));

const DeliveryView = z
  .object({
    ...DeliveryRow.shape,
    requestHeaders: headers,
    body: z
      .string()
      .nullable()
      .meta({ description: 'The body as sent; null before that, and after its conversation was erased.' }),
    responseHeaders: headers,
    responseBody: z.string().nullable(),
    truncated: z.boolean(),
    timings: z.object({ dns: ms, connect: ms, tls: ms, firstByte: ms, total: ms }).nullable(),
    remoteAddress: z.string().nullable(),
    tls: z.object({ version: z.string(), daysToExpiry: z.number().nullable() }).nullable(),
    worker: z.string().nullable(),
    expiresAt: time.nullable().meta({ description: 'Stored until then; null while it waits and has no record.' }),
    resend: z
      .object({ number: z.int(), risk: z.enum(['safe', 'may_double']) })
      .nullable()
      .meta({ description: 'What a resend must contain; null: it cannot be resent.' }),
    test: z
      .object({
        ok: z.boolean(),
        ended: z.boolean(),
        checks: z.array(
          z.object({
            check: z.enum(['address', 'tls', 'status', 'time']),
            ok: z.boolean().nullable(),
            detail: z.string().nullable(),
          }),
        ),
      })
      .nullable()
      .meta({ description: 'For a test event: the result of each step.' }),
  })
  .meta({ id: 'Delivery' });

export const deliveryOperations = {
  list: operation({
    method: 'get',
    path: '/assistants/:id/deliveries',
    id: 'listDeliveries',
    isLarge: 'inTurn',
    summary: 'List recent deliveries, newest first, including waiting ones',
    audience: 'owners',
    resource: 'assistant',
    query: z.object({
      endpointId: uuid.optional(),
      eventId: uuid.optional(),
      conversationId: uuid.optional(),
      event: EventKind.optional(),
      outcome: z.enum(OUTCOMES).optional(),
      status: wholeNumber(300, 599).optional(),
      from: when.optional(),
      to: when.optional(),
      limit: wholeNumber(1, LIST_MAX).optional(),
      cursor: cursor.optional(),
    }),
    answer: z.object({
      deliveries: z.array(DeliveryRow),
      nextCursor,
      moreWaiting: z.boolean().meta({
        description: 'True: so many events wait that some of them are not listed, also not on later pages.',
      }),
    }),
  }),
  read: operation({
    method: 'get',
    path: '/deliveries/:id',
    id: 'getDelivery',
    summary: 'Read a delivery with request and response',
    audience: 'owners',
    resource: 'delivery',
    answer: DeliveryView,
  }),
  resend: operation({
    method: 'post',
    path: '/deliveries/:id/resend',
    id: 'resendDelivery',
    summary: 'Resend the event, marked as a redelivery, outside the order',
    audience: 'owners',
    resource: 'delivery',
    body: z.object({
      number: z
        .int()
        .min(1)
        .meta({ description: 'The value of `resend.number`; two requests with one number make one resend.' }),
      mayDouble: z
        .boolean()
        .default(false)
        .meta({ description: 'True: accept that the receiver may already have it.' }),
    }),
    status: 202,
    answer: z.object({ deliveryId: z.string() }),
    audit: 'delivery.resend',
  }),
};

type Dependencies = {
  endpoints: Pick<EndpointStore, 'getEndpoint'>;
  deliveries: DeliveryStore;
  deliveryQueue: Pick<DeliveryQueue, 'wakeDelivery'>;
};

const toDate = (text: string | undefined): Date | undefined => (text === undefined ? undefined : new Date(text));

const NOTHING_SENT: Omit<z.input<typeof DeliveryView>, keyof Row> = {
  requestHeaders: {},
  body: null,
  responseHeaders: {},
  responseBody: null,
  truncated: false,
  timings: null,
  remoteAddress: null,
  tls: null,
  worker: null,
  expiresAt: null,
  resend: null,
  test: null,
};

export const deliveryRoutes = ({ endpoints, deliveries, deliveryQueue }: Dependencies): Handled[] => {
  // An assistant may have deliveries of hundreds of endpoints, with removed ones.
  const rested = createRestedWork();
  return [
    handled(
      deliveryOperations.list,
      async ({ params: { id = '' }, query: { from, to, limit, cursor: after, ...rest }, ...call }) => {
        const filter = definedFields({ ...rest, from: toDate(from), to: toDate(to) });
        const place = definedFields({ limit, cursor: after });
        const list = () => deliveries.list({ assistantId: id, ...filter, ...place });
        const isFiltered = Object.keys(filter).length > 0;
        return rested(id, () => readPage(call, list, { isFiltered }), call.signal);
      },
    ),

    handled(deliveryOperations.read, async ({ params: { id = '' } }) => {
      const found = await deliveries.findDelivery(id);
      const pending = found ? null : await deliveries.findPending(id);
      if (pending) return { ...pending, ...NOTHING_SENT };
      const delivery = found ?? (await deliveries.getDelivery(id)); // it was claimed between the two reads
      const again = isFinal(delivery.outcome) && delivery.body ? await deliveries.planResend(delivery) : null;
      const test = delivery.conversationId === null ? describeTest(delivery) : null;
      return { ...toDeliveryView(delivery), resend: again, test };
    }),

    handled(deliveryOperations.resend, async ({ params: { id = '' }, body: { number, mayDouble }, note }) => {
      const original = await deliveries.getDelivery(id);
      const { url } = await endpoints.getEndpoint(original.endpointId);
      const plan = await deliveries.planResend(original);
      if (plan.risk === 'may_double' && !mayDouble) {
        throw invalid('mayDouble', 'required', 'must be true: the receiver may already have this event');
      }
      const deliveryId = await deliveries.queueResend({ original, plan, number, url });
      deliveryQueue.wakeDelivery(deliveryId);
      note({ target: id, details: { deliveryId, risk: plan.risk } });
      return { deliveryId };
    }),
  ];
};
