import * as z from 'zod';
import type { PartitionedQueue } from '../redis/queue.ts';

export const KNOWLEDGE_QUEUE = 'knowledge';

/** A wake-up: the knowledge of this assistant has changed. The worker reads from MongoDB what has changed. */
export const KnowledgeJob = z.object({ assistantId: z.uuid() });
export type KnowledgeJob = z.infer<typeof KnowledgeJob>;

/** Jobs are only wake-ups. If a job is lost, a sweep finds the assistant. */
export const createKnowledgeQueue = (queue: PartitionedQueue<KnowledgeJob>) => ({
  /** Adds a wake-up in the background. Never throws. */
  wake: (assistantId: string): void => queue.addInBackground(queue.of(assistantId).add('wake', { assistantId })),

  close: queue.close,
});
