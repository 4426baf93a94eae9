import * as z from 'zod';
import type { Woken } from '../conversations/outbox.ts';
import { inChunks } from '../platform/mongo/batches.ts';
import { createGatheredJobs, groupByPartition, type PartitionedQueue } from '../platform/redis/queue.ts';

export const DELIVERIES_QUEUE = 'deliveries';

const WOKEN_PER_JOB = 50;
/**
 * A wake-up for conversations with pending events, and for queued deliveries (tests, resends). The worker reads from
 * MongoDB which events are due and whether they may be sent. `assistants`: that of each conversation, unless the job is of
 * an older version.
 */
export const WakeUpJob = z.object({
  conversations: z.array(z.string().length(32)).max(WOKEN_PER_JOB).default([]),
  assistants: z.array(z.string().max(200)).max(WOKEN_PER_JOB).default([]),
  deliveries: z.array(z.string().max(200)).max(WOKEN_PER_JOB).default([]),
});
export type WakeUpJob = z.infer<typeof WakeUpJob>;

/** Adds wake-ups in the background. Callers do not wait for them, because a sweep replaces lost wake-ups. */
export type DeliveryQueue = {
  /** Wakes a conversation whose outbox has a new event. Never throws. */
  wake: (conversation: Woken) => void;

  /** Wakes a test or a resend that was queued. Never throws. */
  wakeDelivery: (deliveryId: string) => void;

  /** Groups conversations by partition. */
  byPartition: <Conversation extends { _id: string }>(
    some: Conversation[],
  ) => Promise<{ items: Conversation[]; oldestWaitingAt: number | null }[]>;
};

export const createDeliveryQueue = (queue: PartitionedQueue<WakeUpJob>): DeliveryQueue => {
  const add = createGatheredJobs<WakeUpJob, Woken>(queue, {
    name: 'wake',
    jobsOf: (woken) =>
      inChunks([...new Map(woken.map(({ _id, assistantId }) => [_id, assistantId]))], WOKEN_PER_JOB).map((some) => ({
        conversations: some.map(([key]) => key),
        assistants: some.map(([, assistantId]) => assistantId),
        deliveries: [],
      })),
  });
  const addDelivery = createGatheredJobs<WakeUpJob, string>(queue, {
    name: 'wake',
    jobsOf: (ids) =>
      inChunks([...new Set(ids)], WOKEN_PER_JOB).map((deliveries) => ({
        conversations: [],
        assistants: [],
        deliveries,
      })),
  });

  return {
    wake: ({ _id, assistantId }) => add(_id, { _id, assistantId }),

    wakeDelivery: (deliveryId) => addDelivery(deliveryId, deliveryId),

    byPartition: <Conversation extends { _id: string }>(some: Conversation[]) =>
      groupByPartition(queue, some, ({ _id }) => _id),
  };
};
