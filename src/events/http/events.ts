import type { Router } from 'express';
import * as z from 'zod';
import { type Access, callerOf, createPublicRouter, publicOperation } from '../../assistants/access.ts';
import { ENDS, ERROR_KINDS, type StoredDelivery } from '../delivery.ts';
import { type DeliveryStore, EVENTS_MAX } from '../store.ts';
import { answerWithList, queryOf } from '../../platform/http/operation.ts';
import {
  buildAnswer,
  createRestedWork,
  type LongPoll,
  signalOf,
  takeRoomForAnswer,
} from '../../platform/http/request-slots.ts';
import type { OrUnavailable } from '../../platform/mongo/silence.ts';
import { ApiError } from '../../platform/process/errors.ts';
import { wholeNumber } from '../../platform/process/validation.ts';
import { EventKind } from '../../conversations/event.ts';

const WAIT_MAX_S = 20;
/** The time up to which the list is read has whole seconds. */
const LOOK_EVERY_MS = 1_000;

const time = z.date().meta({ description: 'ISO 8601, UTC.', override: { type: 'string', format: 'date-time' } });

const EventView = z
  .object({
    deliveryId: z.string(),
    eventId: z.uuid(),
    event: EventKind,
    endpointId: z.uuid(),
    conversationId: z.uuid().nullable(),
    sequence: z.int().nullable().meta({ description: 'As in `X-Factory-Sequence`; null for a test event.' }),
    redelivery: z.boolean(),
    outcome: z.enum(ENDS),
    errorKind: z.enum(ERROR_KINDS).nullable(),
    happenedAt: time,
    endedAt: time,
    envelope: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: 'The body as it was sent or would have been; null after the conversation was erased.' }),
  })
  .meta({ id: 'EndedEvent' });

const EXAMPLE: z.input<typeof EventView> = {
  deliveryId: '9d1f7c2e-3b5a-4c6d-8e7f-0a1b2c3d4e5f:c2a7f0de-51d4-4c0e-9b7e-0b8f2f6a9d10',
  eventId: '9d1f7c2e-3b5a-4c6d-8e7f-0a1b2c3d4e5f',
  event: 'message.received',
  endpointId: 'c2a7f0de-51d4-4c0e-9b7e-0b8f2f6a9d10',
  conversationId: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b',
  sequence: 2,
  redelivery: false,
  outcome: 'not_sent',
  errorKind: 'connect',
  happenedAt: '2026-05-04T10:15:30.123Z' as unknown as Date, // an example of the JSON
  endedAt: '2026-05-04T10:15:30.456Z' as unknown as Date,
  envelope: null,
};

export const eventOperations = {
  list: publicOperation({
    tag: 'Events',
    auth: 'apiKey',
    limiter: 'key or event poll',
    hasOwnTurn: true,
    method: 'get',
    path: '/api/v1/events',
    id: 'listEvents',
    summary: 'List ended deliveries with their events, in the order of their ends',
    description:
      'Lets a receiver compare its own ledger, or get events without an address of its own. Nothing is skipped: the list ' +
      'is some seconds behind (`readUpTo`), and `cursor` goes on where it stopped, also after an empty page. A ' +
      'redelivery is an item of its own.',
    query: z.object({
      after: z
        .string()
        .regex(/^[\w-]{1,500}$/)
        .optional()
        .meta({ description: 'The `cursor` of the page before. Without it, the list begins with the oldest.' }),
      endpoint: z.uuid().optional().meta({ description: 'Only deliveries to this endpoint.' }),
      outcome: z.enum(ENDS).optional().meta({ description: 'Only deliveries that ended so.' }),
      limit: wholeNumber(1, EVENTS_MAX)
        .optional()
        .meta({
          description: `Items per page. The default is ${EVENTS_MAX}. A page has about 1 MiB at most, so it may have fewer.`,
          override: { type: 'integer', minimum: 1, maximum: EVENTS_MAX, pattern: undefined },
        }),
      wait: wholeNumber(0, WAIT_MAX_S)
        .optional()
        .meta({
          description: 'Seconds to wait if there is no item after the cursor yet. If none comes, the page is empty.',
          override: { type: 'integer', minimum: 0, maximum: WAIT_MAX_S, pattern: undefined },
        }),
    }),
    answer: z.object({
      cursor: z.string().nullable().meta({ description: 'For `after`. Null if there is nothing yet.' }),
      hasMore: z.boolean(),
      readUpTo: time.meta({
        description:
          'Every delivery that ended before this time is in the list. It is some seconds ago, because the write of an ' +
          'earlier end may take so long to be visible.',
      }),
      events: z.array(EventView),
    }),
    answerExample: {
      cursor: 'WzE3Nzc4ODk3MzAsMSwieCJd',
      hasMore: false,
      readUpTo: '2026-05-04T10:15:35.000Z' as unknown as Date,
      events: [EXAMPLE],
    },
  }),
};

const toView = (delivery: StoredDelivery): z.input<typeof EventView> => ({
  deliveryId: delivery._id,
  eventId: delivery.eventId,
  event: delivery.event,
  endpointId: delivery.endpointId,
  conversationId: delivery.conversationId,
  sequence: delivery.sequence ?? null,
  redelivery: delivery.redelivery,
  outcome: delivery.outcome as (typeof ENDS)[number], // only ended ones are listed
  errorKind: delivery.errorKind ?? null,
  happenedAt: delivery.happenedAt,
  endedAt: delivery.endedAt ?? delivery.createdAt,
  envelope: delivery.body ? (JSON.parse(delivery.body) as Record<string, unknown>) : null,
});

type Dependencies = {
  access: Access;
  deliveries: Pick<DeliveryStore, 'listEnded' | 'hasEnded'>;
  longPoll: LongPoll;
  orUnavailable: OrUnavailable;
};

/** A look that gets no turn in time has seen nothing. */
const falseIfLate = (cause: unknown): boolean => {
  if (cause instanceof ApiError) return false;
  throw cause;
};

/** The list of ended deliveries (docs/contract.md, List events). */
export const eventRoutes = ({ access, deliveries, longPoll, orUnavailable }: Dependencies): Router => {
  // Each looks at all endpoints with deliveries, removed ones included.
  const rested = createRestedWork();
  return createPublicRouter(access, [
    {
      operation: eventOperations.list,
      handle: async (req, res) => {
        const { endpoint: endpointId, wait = 0, ...query } = queryOf(eventOperations.list, req);
        const { assistantId } = callerOf(res).assistant;
        const given = Object.entries({ endpointId, ...query }).filter(([, value]) => value !== undefined);
        const filter = { assistantId, ...Object.fromEntries(given) };
        const signal = signalOf(res);
        const isThere = (): Promise<boolean> =>
          orUnavailable(rested(assistantId, () => deliveries.hasEnded(filter), signal).catch(falseIfLate));
        // A call that waits takes no room of answers.
        if (wait > 0 && !(await isThere())) {
          await longPoll(req, res, { waitMs: wait * 1_000, everyMs: LOOK_EVERY_MS, isThere });
        }
        const list = async () => {
          await takeRoomForAnswer(req, res);
          return deliveries.listEnded(filter);
        };
        const { cursor, hasMore, readUpTo, bytes, ...page } = await orUnavailable(rested(assistantId, list, signal));
        await buildAnswer(req, res, async () => {
          const view = { cursor, hasMore, readUpTo, events: page.deliveries.map(toView) };
          await answerWithList(eventOperations.list, res, view, { list: 'events', bytes });
        });
      },
    },
  ]);
};
