import * as z from 'zod';
import type { TurnRef } from '../conversations/conversation.ts';
import { inChunks } from '../platform/mongo/batches.ts';
import { NO_SPAN, type TraceSpan, type Tracing, within } from '../platform/process/tracing.ts';
import { createGatheredJobs, groupByPartition, type PartitionedQueue } from '../platform/redis/queue.ts';

export const TURNS_QUEUE = 'turns';

/**
 * The maximum number of turns in one job. The number is small, so that turns that arrive together are spread over
 * workers.
 */
const TURNS_PER_JOB = 16;

/**
 * `assistantId`: of a turn that the gate does not count, for example found by a sweep or after another one of its session.
 * It may be one of thousands that wait, so it is answered in a slot of its assistant.
 */
const WokenTurn = z.object({
  key: z.string().length(32),
  turnId: z.uuid(),
  assistantId: z.string().max(200).optional(),
});
export type WokenTurn = z.infer<typeof WokenTurn>;

export const TurnsJob = z.object({ turns: z.array(WokenTurn).min(1).max(TURNS_PER_JOB) });
export type TurnsJob = z.infer<typeof TurnsJob>;

/**
 * Jobs are wake-ups: MongoDB decides which turn is the head, and a sweep adds a lost job again. So a failure to add a
 * job is only logged, and the caller does not see it.
 */
export type TurnQueue = {
  /** Adds a job to answer this head. Never throws. `span`: the accept or commit that made it the head, if known. */
  enqueue: (head: WokenTurn, span?: TraceSpan) => void;

  /** Groups heads by partition. A head that was enqueued after the oldest waiting job may still have its job. */
  byPartition: <Head extends TurnRef>(heads: Head[]) => Promise<{ items: Head[]; oldestWaitingAt: number | null }[]>;
};

export const createTurnQueue = (queue: PartitionedQueue<TurnsJob>, tracing: Tracing): TurnQueue => {
  const add = createGatheredJobs<TurnsJob, { head: WokenTurn; span: TraceSpan }>(queue, {
    name: 'answer',
    jobsOf: (items) => inChunks(items, TURNS_PER_JOB).map((some) => ({ turns: some.map(({ head }) => head) })),
    traced: (items, added) => {
      const spans = items.map(({ span }) => span);
      return within(tracing.share('wake turns', spans, { kind: 'producer' }), added);
    },
  });

  return {
    enqueue: (head, span = NO_SPAN) => add(head.key, { head, span }),

    byPartition: <Head extends TurnRef>(heads: Head[]) => groupByPartition(queue, heads, ({ key }) => key),
  };
};
