import * as z from 'zod';
import { type PartitionedQueue, type QueueWatch, watchOf } from '../platform/redis/queue.ts';

export const SOURCES_QUEUE = 'sources';

/** A wake-up: this source has something to do. The worker reads from MongoDB what it is. */
export const SourceJob = z.object({ sourceId: z.uuid() });
export type SourceJob = z.infer<typeof SourceJob>;

/** Jobs are only wake-ups. If a job is lost, a sweep finds the source. */
export type SourceQueue = QueueWatch & {
  /** Adds a wake-up in the background. Never throws. */
  wake: (sourceId: string) => void;
};

export const createSourceQueue = (queue: PartitionedQueue<SourceJob>): SourceQueue => ({
  ...watchOf(queue),
  wake: (sourceId) => queue.addInBackground(queue.of(sourceId).add('wake', { sourceId })),
});
