import { serverNow } from '../platform/clock.ts';
import type { TurnLeases } from './leases.ts';
import type { TurnQueue } from './queue.ts';
import type { StaleHeads } from './stale-heads.ts';

/** A head older than this, and not leased, has lost its job. */
const HEAD_STALE_MS = 2_000;
/** A head that waits this long gets a new job even if its first one may still be in the queue. */
const JOB_TRUSTED_MS = 20_000;
const HEADS_PER_SWEEP = 1_000;

type Dependencies = { staleHeads: StaleHeads; leases: TurnLeases; turnQueue: TurnQueue };

/** Adds a job for each head that lost its own: Redis was wiped, or a worker was killed between two steps (design §2). */
export const createTurnSweep =
  ({ staleHeads, leases, turnQueue }: Dependencies) =>
  async (): Promise<void> => {
    const heads = await staleHeads.find(HEAD_STALE_MS, HEADS_PER_SWEEP);
    if (heads.length === 0) return;
    // Throws while Redis is away: no job can be added, so no head may be renewed either.
    const [leased, oldestWaiting] = await Promise.all([leases.findLeased(heads), turnQueue.oldestWaitingAt()]);
    const now = serverNow();
    const lost = heads.filter(({ turnId, queuedAt }) => {
      if (leased.has(turnId)) return false;
      // Queues are first in, first out: while an older job waits, this head's job may simply be behind it.
      const mayBeQueued = oldestWaiting !== null && oldestWaiting <= queuedAt.getTime() + HEAD_STALE_MS;
      return !mayBeQueued || now - queuedAt.getTime() > JOB_TRUSTED_MS;
    });
    await staleHeads.renew(lost);
    for (const { key, turnId } of lost) turnQueue.enqueue({ key, turnId });
  };
