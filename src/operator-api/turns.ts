import * as z from 'zod';
import { CHANNELS } from '../conversations/conversation.ts';
import { EventKind } from '../webhooks/event.ts';
import { DeliveryRow } from './deliveries.ts';
import { type Handled, handled, operation } from './operation.ts';
import { readTurnTrace, type TurnTraceDependencies } from './turns/trace.ts';
import { time, uuid } from './wire.ts';

const TurnTraceView = z
  .object({
    turnId: uuid,
    conversationId: uuid,
    assistantId: uuid,
    sessionId: z.string(),
    channel: z.enum(CHANNELS),
    status: z.string(),
    acceptedAt: time.nullable(),
    ms: z.number().nullable().meta({ description: 'From acceptance to the reply’s commit.' }),
    callerGotReply: z.boolean().meta({ description: 'True: the reply was written to a caller. Known for 11 minutes.' }),
    message: z
      .object({
        messageId: uuid,
        seq: z.int().nullable(),
        content: z.string(),
        language: z.string().nullable(),
        acceptedAt: time,
      })
      .nullable(),
    job: z
      .object({
        jobId: z.string().nullable(),
        state: z.string(),
        addedAt: time,
        startedAt: time.nullable(),
        endedAt: time.nullable(),
      })
      .nullable()
      .meta({ description: 'Null: no job is known any more.' }),
    reply: z
      .object({
        messageId: uuid,
        seq: z.int(),
        content: z.string(),
        createdAt: time,
        why: z.record(z.string(), z.unknown()).optional(),
      })
      .nullable(),
    events: z.array(
      z.object({
        eventId: uuid,
        event: EventKind.nullable(),
        happenedAt: time.nullable(),
        deliveries: z.array(DeliveryRow),
      }),
    ),
  })
  .meta({ id: 'TurnWay' });

export const turnOperations = {
  read: operation({
    method: 'get',
    path: '/turns/:id',
    id: 'getTurnWay',
    tag: 'Operators',
    summary: 'Read the trace of a turn: acceptance, job, reply, events and deliveries, with their times',
    audience: 'owners',
    resource: 'turn',
    answer: TurnTraceView,
    errors: ['not_found'],
  }),
};

export const turnRoutes = (
  dependencies: Omit<TurnTraceDependencies, 'turnJobs'> & { queues: { turns: TurnTraceDependencies['turnJobs'] } },
): Handled[] => [
  handled(turnOperations.read, ({ params: { id = '' }, operator: { operatorId } }) =>
    readTurnTrace({ ...dependencies, turnJobs: dependencies.queues.turns }, id, operatorId),
  ),
];
