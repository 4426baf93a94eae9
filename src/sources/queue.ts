import * as z from 'zod';
import { countJobs, oldestWaitingAt, type PartitionedQueue } from '../redis/queue.ts';

export const SOURCES_QUEUE = 'sources';

/** A wake-up: this source has something to do. The worker reads from MongoDB what it is. */
export const SourceJob = z.object({ sourceId: z.uuid() });
export type SourceJob = z.infer<typeof SourceJob>;

/** Jobs are only wake-ups. If a job is lost, a sweep finds the source. */
export type SourceQueue = {
  /** Adds a wake-up in the background. Never throws. */
  wake: (sourceId: string) => void;
  oldestWaitingAt: () => Promise<number | null>;
  countJobs: () => Promise<Record<string, number>>;
  close: () => Promise<void>;
};

export const createSourceQueue = (queue: PartitionedQueue<SourceJob>): SourceQueue => ({
  wake: (sourceId) => queue.addInBackground(queue.of(sourceId).add('wake', { sourceId })),
  oldestWaitingAt: () => oldestWaitingAt(queue.queues),
  countJobs: () => countJobs(queue),
  close: queue.close,
});
