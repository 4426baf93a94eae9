import type { Hints } from './leases.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { TurnQueue } from './queue.ts';
import { serverNow } from '../platform/clock.ts';

/** A head older than this, and not taken, has lost its job. */
const HEAD_STALE_MS = 2_000;
/** A head that waits this long is asked for again even where its job may still be in line. */
const HINT_HOLDS_MS = 20_000;
const HEADS_A_SWEEP = 1_000;

type Dependencies = { conversations: ConversationStore; hints: Hints; turnQueue: TurnQueue };

/** Puts back the jobs of heads that lost theirs: a wiped Redis, a worker killed between two steps (design §2). */
export const createTurnSweep =
  ({ conversations, hints, turnQueue }: Dependencies) =>
  async (): Promise<void> => {
    const heads = await conversations.findStaleHeads(HEAD_STALE_MS, HEADS_A_SWEEP);
    if (heads.length === 0) return;
    // Redis away: nothing can be put back, and nothing must look as if it had been.
    const [taken, oldestWaiting] = await Promise.all([hints.findTaken(heads), turnQueue.oldestWaitingAt()]);
    const now = serverNow();
    const lost = heads.filter(({ turnId, hintedAt }) => {
      if (taken.has(turnId)) return false;
      // Queues are first in, first out: where an older job still waits, this one's is merely behind it.
      const mayBeInLine = oldestWaiting !== null && oldestWaiting <= hintedAt.getTime() + HEAD_STALE_MS;
      return !mayBeInLine || now - hintedAt.getTime() > HINT_HOLDS_MS;
    });
    await conversations.renewHeads(lost);
    for (const { key, turnId } of lost) turnQueue.enqueue({ key, turnId });
  };
