import * as z from 'zod';
import type { PartitionedQueue } from '../platform/queue.ts';

export const KNOWLEDGE_QUEUE = 'knowledge';

/** A wake-up: this assistant's knowledge was changed. What is to be made the worker reads from MongoDB. */
export const KnowledgeJob = z.object({ assistantId: z.uuid() });
export type KnowledgeJob = z.infer<typeof KnowledgeJob>;

/** Hints like all jobs: what is lost here a sweep finds. */
export const createKnowledgeQueue = (queue: PartitionedQueue<KnowledgeJob>) => ({
  /** Never throws. */
  wake: (assistantId: string): void => queue.addInBackground(queue.of(assistantId).add('wake', { assistantId })),

  close: queue.close,
});
