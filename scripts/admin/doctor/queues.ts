import type { Queue } from 'bullmq';
import { oldestWaitingAt } from '../../../src/redis/queue.ts';
import type { Opened } from '../stores.ts';

/** The number of workers of a queue. Null if Redis does not list its clients, as some hosted services do not. */
const countWorkers = async (queue: Queue): Promise<number | null> => {
  const workers = await queue.getWorkers().catch(() => null);
  if (workers === null || workers.some(({ rawname }) => rawname === undefined)) return null;
  return workers.length;
};

const readQueue = async (queue: Queue) => {
  const [counts, oldest, workers] = await Promise.all([
    queue.getJobCounts(),
    oldestWaitingAt([queue]),
    countWorkers(queue),
  ]);
  return {
    name: queue.name,
    prefix: queue.opts.prefix ?? null,
    counts,
    oldestWaitingMs: oldest === null ? null : Date.now() - oldest,
    workers,
  };
};

export type QueueState = Awaited<ReturnType<typeof readQueue>>;

export const readQueues = async ({ queues }: Opened): Promise<QueueState[]> =>
  Promise.all(
    [queues.turns, queues.deliveries, queues.knowledge, queues.sources].flatMap((one) =>
      one.queues.map((queue) => readQueue(queue as Queue)),
    ),
  );
