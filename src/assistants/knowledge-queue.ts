import * as z from 'zod';
import type { PartitionedQueue } from '../platform/queue.ts';

export const KNOWLEDGE_QUEUE = 'knowledge';

/** A wake-up: the knowledge of this assistant has changed. The worker reads the details from MongoDB. */
export const KnowledgeJob = z.object({ assistantId: z.uuid() });
export type KnowledgeJob = z.infer<typeof KnowledgeJob>;

/** Jobs are only wake-ups: a sweep finds the work of a lost one. */
export const createKnowledgeQueue = (queue: PartitionedQueue<KnowledgeJob>) => ({
  /** Never throws. */
  wake: (assistantId: string): void => queue.addInBackground(queue.of(assistantId).add('wake', { assistantId })),

  close: queue.close,
});
