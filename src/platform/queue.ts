import { type JobsOptions, Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import type { Logger } from './logger.ts';
import type { Partitions } from './redis.ts';

/** Finished jobs that stay to be looked at. */
const KEPT: JobsOptions = { attempts: 1, removeOnComplete: { count: 200 }, removeOnFail: { count: 2000 } };

export type PartitionedQueue<Data> = {
  queues: Queue<Data>[];
  /** The queue whose partition holds this conversation. */
  of: (conversationKey: string) => Queue<Data>;
  close: () => Promise<void>;
};

/** One BullMQ queue a partition, all keys of it under the partition's hash tag. `attempts: 1` everywhere. */
export const openQueues = <Data>(
  name: string,
  { redis, partitions }: { redis: Redis; partitions: Partitions },
  logger: Logger,
): PartitionedQueue<Data> => {
  const queues = partitions.tags.map((prefix) => {
    const queue = new Queue<Data>(name, { connection: redis, prefix, defaultJobOptions: KEPT });
    queue.on('error', (cause) => logger.debug({ err: cause, queue: name }, 'queue connection failed'));
    return queue;
  });
  return {
    queues,
    of: (key) => queues[partitions.indexOf(key)] as Queue<Data>,
    close: async () => {
      await Promise.allSettled(queues.map((queue) => queue.close()));
    },
  };
};

/** Jobs by state, over all partitions. */
export const countJobs = async ({ queues }: { queues: Queue[] }): Promise<Record<string, number>> => {
  const counts = await Promise.all(queues.map((queue) => queue.getJobCounts('waiting', 'active', 'delayed', 'failed')));
  const total: Record<string, number> = {};
  for (const [state, count] of counts.flatMap((one) => Object.entries(one))) total[state] = (total[state] ?? 0) + count;
  return total;
};

/** When the job that has waited longest was added, over all partitions, in ms since the epoch; null = none waits. */
export const oldestWaitingAt = async (queues: Queue[]): Promise<number | null> => {
  const jobs = await Promise.all(queues.map((queue) => queue.getJobs(['waiting'], 0, 0, true)));
  const times = jobs.flat().flatMap((job) => (job ? [job.timestamp] : []));
  return times.length > 0 ? Math.min(...times) : null;
};
