import * as z from 'zod';
import type { TurnRef } from '../conversations/conversation.ts';
import { createBatcher } from '../platform/batch.ts';
import { serverNow } from '../platform/clock.ts';
import { countJobs, createFullCheck, oldestWaitingAt, type PartitionedQueue } from '../platform/queue.ts';

export const TURNS_QUEUE = 'turns';

/** Few, so that what one job names is spread over workers; alone, a turn has a job to itself. */
const TURNS_PER_JOB = 16;

export const TurnsJob = z.object({
  turns: z
    .array(z.object({ key: z.string().length(32), turnId: z.uuid() }))
    .min(1)
    .max(TURNS_PER_JOB),
});
export type TurnsJob = z.infer<typeof TurnsJob>;

/**
 * Jobs are hints: MongoDB says which turn is head, and what is lost here a sweep puts back. So a failure to add one is
 * logged, never shown to the caller.
 */
export const createTurnQueue = (queue: PartitionedQueue<TurnsJob>) => {
  const isFull = createFullCheck(queue);
  const add = createBatcher<TurnRef, void>(
    async (heads) => {
      // Left to the sweeps.
      if (await isFull()) return heads.map(() => undefined);
      // Ages of jobs are compared with times of the store.
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
    // Nothing of an item comes from outside: what fails is Redis.
    { maxInFlight: 8, isShared: () => true },
  );

  return {
    /** Asks for this head to be answered. Never throws. */
    enqueue: (head: TurnRef): void => queue.addInBackground(add(head)),

    /** The oldest job not yet started, over all partitions; a head hinted later than that may still be in line. */
    oldestWaitingAt: () => oldestWaitingAt(queue.queues),

    countJobs: () => countJobs(queue),

    close: queue.close,
  };
};

export type TurnQueue = ReturnType<typeof createTurnQueue>;
