import { serverNow } from '../platform/clock.ts';
import type { TurnQueue } from './queue.ts';
import { BACKLOG_MIN, WAIT_FREE_MS } from './waiting-turns.ts';

const SAMPLE_EVERY_MS = 100;
/** An older sample says nothing about the present. */
const SAMPLE_VALID_MS = 2_000;

/**
 * How long the oldest job has waited, sampled while turns arrive. It also counts turns that other processes accepted,
 * and turns whose callers do not wait. This is the wait in the middle one of the partitions that answer. So a partition
 * that is stuck does not count.
 */
export const createQueueWait = (queue: Pick<TurnQueue, 'waitingByPartition'>): ((now: number) => number) => {
  let waitMs = 0;
  let sampledAt = Number.NEGATIVE_INFINITY;
  let sampling = false;

  const sample = async (): Promise<void> => {
    sampling = true;
    // If Redis is unavailable, turns are refused for that reason.
    const partitions = await queue.waitingByPartition(WAIT_FREE_MS).catch(() => []);
    const waiting = partitions.reduce((sum, { jobs }) => sum + jobs, 0);
    const waits = partitions
      .map(({ oldestAt }) => (oldestAt === null ? 0 : serverNow() - oldestAt))
      .sort((one, other) => one - other);
    waitMs = waiting < BACKLOG_MIN ? 0 : (waits[Math.floor((waits.length - 1) / 2)] ?? 0);
    sampledAt = performance.now();
    sampling = false;
  };

  return (now) => {
    if (!sampling && now - sampledAt > SAMPLE_EVERY_MS) void sample();
    return now - sampledAt > SAMPLE_VALID_MS ? 0 : waitMs;
  };
};
