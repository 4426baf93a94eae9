import * as z from 'zod';
import { toAlertView } from '../notify.ts';
import { problemsOf, QUEUES, readQueueStates } from '../queue-state.ts';
import { type FindingWork, findWork } from './find-work.ts';
import { type Handled, handled, operation, time, uuid } from '../../operators/operation.ts';
import type { Service } from '../../service.ts';
import { AlertView } from '../../insights/http/overview.ts';

const count = z.int().min(0);
const p95 = z
  .number()
  .nullable()
  .meta({ description: 'In seconds, rounded up to a bound. Null: unknown, or more than 300.' });

const QueueView = z
  .object({
    name: z.enum(QUEUES),
    jobs: z
      .object({ waiting: count, active: count, delayed: count, failed: count })
      .nullable()
      .meta({ description: 'Null: Redis does not answer.' }),
    waitingSince: time.nullable().meta({ description: 'Since when the oldest job waits.' }),
    workers: z.array(
      z.object({
        worker: z.string(),
        host: z.string(),
        pid: z.int(),
        startedAt: time,
        heardAt: time,
        silent: z.boolean().meta({ description: 'True: it is frozen, or was killed less than 15 minutes ago.' }),
      }),
    ),
    perMinute: z
      .number()
      .nullable()
      .meta({ description: 'What its workers ended in a minute, of the last five. Null: no worker has told.' }),
    p95,
    minutes: z
      .array(z.object({ at: time, ended: count, p95 }))
      .meta({ description: 'The minutes of the last hour in which something ended.' }),
  })
  .meta({ id: 'Queue' });

const WorkView = z
  .object({
    kind: z.enum(['conversation', 'turn', 'delivery', 'source']),
    id: z.string(),
    assistantId: uuid,
    conversationId: uuid.nullable(),
    state: z.string(),
    since: time.nullable(),
    why: z.string(),
    next: z.string().meta({ description: 'What happens next.' }),
    holder: z
      .object({
        worker: z.string(),
        host: z.string().nullable(),
        pid: z.int().nullable(),
        heardAt: time.nullable(),
        until: time.nullable(),
      })
      .nullable()
      .meta({ description: 'The worker that has it. Null: nobody.' }),
    job: z
      .object({ queue: z.string(), jobId: z.string(), state: z.string(), addedAt: time, page: z.string() })
      .nullable()
      .meta({ description: 'Its job, with its page on the board. Null: there is none among the latest.' }),
  })
  .meta({ id: 'Work' });

const shared = { method: 'get', audience: 'owners', resource: null } as const;

export const queueOperations = {
  read: operation({
    ...shared,
    path: '/queues',
    id: 'getQueues',
    summary: 'Read what waits, how old it is, how fast it moves, who works, and what is wrong',
    answer: z.object({
      at: time,
      queues: z.array(QueueView),
      problems: z.array(z.object({ queue: z.enum(QUEUES).nullable(), problem: z.string(), remedy: z.string() })),
      alerts: z.array(AlertView).meta({ description: 'The 50 newest open ones.' }),
    }),
  }),
  find: operation({
    ...shared,
    path: '/work',
    id: 'findWork',
    summary: 'Find work by the id of a conversation, turn, session, event, delivery or source: where it is, and why',
    query: z.object({ search: z.string().min(1).max(256) }),
    answer: z.object({ work: z.array(WorkView) }),
  }),
};

const ALERTS = 50;

type Dependencies = FindingWork & Pick<Service, 'alerts' | 'workerSigns'>;

export const queueRoutes = (dependencies: Dependencies): Handled[] => {
  const { alerts, workerSigns, queues } = dependencies;
  return [
    handled(queueOperations.read, async ({ costly }) => {
      const [states, open] = await costly(() =>
        Promise.all([
          readQueueStates(queues, workerSigns),
          alerts.list({ assistantIds: null, open: true, limit: ALERTS }),
        ]),
      );
      return { at: new Date(), queues: states, problems: problemsOf(states), alerts: open.alerts.map(toAlertView) };
    }),

    handled(queueOperations.find, async ({ query: { search }, operator: { operatorId }, costly }) => ({
      work: await costly(() => findWork(dependencies, search, operatorId)),
    })),
  ];
};
