import * as z from 'zod';
import type { TurnRef } from '../conversations/conversation.ts';
import { createBatcher } from '../platform/batch.ts';
import { serverNow } from '../platform/clock.ts';
import { countJobs, createFullCheck, oldestWaitingAt, type PartitionedQueue } from '../platform/queue.ts';

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

/**
 * Jobs are wake-ups: MongoDB decides which turn is the head, and a sweep adds a lost job again. So a failure to add a
 * job is only logged, and the caller does not see it.
 */
export const createTurnQueue = (queue: PartitionedQueue<TurnsJob>) => {
  const isFull = createFullCheck(queue);
  const add = createBatcher<TurnRef, void>(
    async (heads) => {
      // The queue is full. Sweeps will add these heads later.
      if (await isFull()) return heads.map(() => undefined);
      // Sweeps compare the timestamp of a job with times from MongoDB.
      const opts = { timestamp: serverNow() };
      const byQueue = Map.groupBy(heads, ({ key }) => queue.of(key));
      for (const [partition, turns] of byQueue) {
        const jobs = [];
        for (let start = 0; start < turns.length; start += TURNS_PER_JOB) {
          jobs.push({ name: 'answer', data: { turns: turns.slice(start, start + TURNS_PER_JOB) }, opts });
        }
        if (jobs.length === 1 && jobs[0]) await partition.add(jobs[0].name, jobs[0].data, opts);
        else await partition.addBulk(jobs);
      }
      return heads.map(() => undefined);
    },
    // The items contain only our own ids, so a failure comes from Redis and concerns the whole batch.
    { maxInFlight: 8, isShared: () => true },
  );

  return {
    /** Adds a job to answer this head. Never throws. */
    enqueue: (head: TurnRef): void => queue.addInBackground(add(head)),

    /**
     * The time when the job that has waited longest was added, over all partitions. A head that was enqueued later may
     * still have its job in the queue.
     */
    oldestWaitingAt: () => oldestWaitingAt(queue.queues),

    countJobs: () => countJobs(queue),

    close: queue.close,
  };
};

export type TurnQueue = ReturnType<typeof createTurnQueue>;
