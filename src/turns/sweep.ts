import { serverNow } from '../platform/clock.ts';
import type { TurnLeases } from './leases.ts';
import type { TurnQueue } from './queue.ts';
import type { StaleHeads } from './stale-heads.ts';
import { TIMING } from '../platform/timing.ts';

const HEADS_PER_SWEEP = 1_000;

type Dependencies = { staleHeads: StaleHeads; leases: TurnLeases; turnQueue: TurnQueue };

/**
 * Adds a job for each head whose job was lost: Redis was wiped, or a worker was killed between two steps
 * (docs/design.md, Sweeps).
 */
export const createTurnSweep =
  ({ staleHeads, leases, turnQueue }: Dependencies) =>
  async (): Promise<void> => {
    const heads = await staleHeads.find(TIMING.turnStaleMs, HEADS_PER_SWEEP);
    if (heads.length === 0) return;
    // Throws while Redis is unavailable: no job can be added, so no head may be renewed either.
    const [leased, oldestWaiting] = await Promise.all([leases.findLeased(heads), turnQueue.oldestWaitingAt()]);
    const now = serverNow();
    const lost = heads.filter(({ turnId, queuedAt }) => {
      if (leased.has(turnId)) return false;
      // Queues are first in, first out: while an older job waits, this head's job may simply be behind it.
      const mayBeQueued = oldestWaiting !== null && oldestWaiting <= queuedAt.getTime() + TIMING.turnStaleMs;
      return !mayBeQueued || now - queuedAt.getTime() > TIMING.turnJobReplacedAfterMs;
    });
    await staleHeads.renew(lost);
    for (const { key, turnId } of lost) turnQueue.enqueue({ key, turnId });
  };
