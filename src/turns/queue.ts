import type { Queue } from 'bullmq';
import * as z from 'zod';
import type { TurnRef } from '../conversations/conversation.ts';
import { createBatcher } from '../platform/process/batch.ts';
import { serverNow } from '../platform/process/clock.ts';
import { NO_SPAN, type TraceSpan, type Tracing, within } from '../platform/process/tracing.ts';
import { createFullCheck, groupByPartition, type PartitionedQueue } from '../platform/redis/queue.ts';

export const TURNS_QUEUE = 'turns';

/**
 * The maximum number of turns in one job. The number is small, so that turns that arrive together are spread over
 * workers.
 */
const TURNS_PER_JOB = 16;

export const TurnsJob = z.object({
  turns: z
    .array(z.object({ key: z.string().length(32), turnId: z.uuid() }))
    .min(1)
    .max(TURNS_PER_JOB),
});
export type TurnsJob = z.infer<typeof TurnsJob>;

/** Splits turns that arrive together into jobs. */
const toJobs = (turns: TurnRef[]) => {
  // Sweeps compare the timestamp of a job with times from MongoDB.
  const opts = { timestamp: serverNow() };
  return Array.from({ length: Math.ceil(turns.length / TURNS_PER_JOB) }, (_, nth) => {
    const start = nth * TURNS_PER_JOB;
    return { name: 'answer', data: { turns: turns.slice(start, start + TURNS_PER_JOB) }, opts };
  });
};

const addJobs = async (partition: Queue<TurnsJob>, jobs: ReturnType<typeof toJobs>): Promise<void> => {
  if (jobs.length === 1 && jobs[0]) await partition.add(jobs[0].name, jobs[0].data, jobs[0].opts);
  else if (jobs.length > 1) await partition.addBulk(jobs);
};

/**
 * Jobs are wake-ups: MongoDB decides which turn is the head, and a sweep adds a lost job again. So a failure to add a
 * job is only logged, and the caller does not see it.
 */
export type TurnQueue = {
  /** Adds a job to answer this head. Never throws. `span`: the accept or commit that made it the head, if known. */
  enqueue: (head: TurnRef, span?: TraceSpan) => void;

  /** Groups heads by partition. A head that was enqueued after the oldest waiting job may still have its job. */
  byPartition: <Head extends TurnRef>(heads: Head[]) => Promise<{ items: Head[]; oldestWaitingAt: number | null }[]>;
};

export const createTurnQueue = (queue: PartitionedQueue<TurnsJob>, tracing: Tracing): TurnQueue => {
  const isFull = createFullCheck(queue);
  const addTo = (partition: Queue<TurnsJob>) =>
    createBatcher<{ head: TurnRef; span: TraceSpan }, void>(
      async (items) => {
        const jobs = toJobs(items.map(({ head }) => head)).filter(({ data }) => !queue.offer(data));
        const spans = items.map(({ span }) => span);
        // If the queue is full, sweeps will add these heads later.
        await within(
          tracing.share('wake turns', spans, { kind: 'producer' }),
          addJobs(partition, jobs.length > 0 && isFull() ? [] : jobs),
        );
        return items.map(() => undefined);
      },
      // The items contain only our own ids, so a failure comes from Redis and concerns the whole batch.
      { maxInFlight: 8, isShared: () => true },
    );
  // One batcher for each partition: while the node of one partition is unavailable, the others must not wait.
  const add = queue.perPartition(addTo);

  return {
    enqueue: (head, span = NO_SPAN) => queue.addInBackground(add(head.key)({ head, span })),

    byPartition: <Head extends TurnRef>(heads: Head[]) => groupByPartition(queue, heads, ({ key }) => key),
  };
};
