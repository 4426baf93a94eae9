import { serverNow } from '../platform/clock.ts';
import type { TurnLeases } from './leases.ts';
import type { TurnQueue } from './queue.ts';
import type { StaleHeads } from './stale-heads.ts';
import { TIMING } from '../platform/timing.ts';

const HEADS_PER_SWEEP = 1_000;

type Dependencies = { staleHeads: StaleHeads; leases: TurnLeases; turnQueue: TurnQueue };

/**
 * Adds a job for each head whose job was lost, because Redis was wiped or a worker was killed between two steps
 * (docs/design.md, Sweeps).
 */
export const createTurnSweep =
  ({ staleHeads, leases, turnQueue }: Dependencies) =>
  async (): Promise<void> => {
    const heads = await staleHeads.find(TIMING.turnStaleMs, HEADS_PER_SWEEP);
    // No job can be added to a partition that is unavailable, so its heads may not be recorded as queued.
    for (const { items, oldestWaitingAt } of await turnQueue.byPartition(heads)) {
      const leased = await leases.findLeased(items);
      const now = serverNow();
      const lost = items.filter(({ turnId, queuedAt }) => {
        if (leased.has(turnId)) return false;
        // Queues are first in, first out. While an older job is waiting, the job of this head may be behind it, so that
        // job does not count as lost yet.
        const mayBeQueued = oldestWaitingAt !== null && oldestWaitingAt <= queuedAt.getTime() + TIMING.turnStaleMs;
        return !mayBeQueued || now - queuedAt.getTime() > TIMING.turnJobReplacedAfterMs;
      });
      await staleHeads.renew(lost);
      for (const { key, turnId } of lost) turnQueue.enqueue({ key, turnId });
    }
  };
