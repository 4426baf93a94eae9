import * as z from 'zod';
import { createBatcher } from '../platform/batch.ts';
import { serverNow } from '../platform/clock.ts';
import { countJobs, createFullCheck, oldestWaitingAt, type PartitionedQueue } from '../platform/queue.ts';

export const DELIVERIES_QUEUE = 'deliveries';

const CONVERSATIONS_PER_JOB = 50;
/**
 * A wake-up for conversations with pending events, and for queued deliveries (tests, resends). The worker reads from
 * MongoDB which events are due and whether they may be sent.
 */
export const WakeUpJob = z.object({
  conversations: z.array(z.string().length(32)).max(CONVERSATIONS_PER_JOB).default([]),
  deliveries: z.array(z.string().max(200)).max(CONVERSATIONS_PER_JOB).default([]),
});
export type WakeUpJob = z.infer<typeof WakeUpJob>;

/** Adds wake-ups in the background. Callers do not wait for them, because a sweep replaces lost wake-ups. */
export const createDeliveryQueue = (queue: PartitionedQueue<WakeUpJob>) => {
  const isFull = createFullCheck(queue);
  const add = createBatcher<string, void>(
    async (keys) => {
      // The queue is full. Sweeps will wake these conversations later.
      if (await isFull()) return keys.map(() => undefined);
      for (const [partition, some] of Map.groupBy(new Set(keys), (key) => queue.of(key))) {
        for (let start = 0; start < some.length; start += CONVERSATIONS_PER_JOB) {
          const data = { conversations: some.slice(start, start + CONVERSATIONS_PER_JOB), deliveries: [] };
          // Sweeps compare the timestamp of a job with times from MongoDB.
          await partition.add('wake', data, { timestamp: serverNow() });
        }
      }
      return keys.map(() => undefined);
    },
    // The items contain only our own ids, so a failure comes from Redis and concerns the whole batch.
    { maxInFlight: 8, isShared: () => true },
  );

  return {
    /** Wakes a conversation whose outbox has a new event. Never throws. */
    wake: (conversationKey: string): void => queue.addInBackground(add(conversationKey)),

    /** Wakes a test or a resend that was queued. Never throws. */
    wakeDelivery: (deliveryId: string): void =>
      queue.addInBackground(queue.of(deliveryId).add('wake', { conversations: [], deliveries: [deliveryId] })),

    oldestWaitingAt: () => oldestWaitingAt(queue.queues),

    countJobs: () => countJobs(queue),

    close: queue.close,
  };
};

export type DeliveryQueue = ReturnType<typeof createDeliveryQueue>;
