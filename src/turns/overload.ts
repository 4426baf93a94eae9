import type { Logger } from '../platform/logger.ts';
import { createQueueWait } from './queue-wait.ts';
import type { TurnQueue } from './queue.ts';
import { createWaitingTurns, type WaitingTurn } from './waiting-turns.ts';

/** Refusals that are closer together than this belong to the same overload, which is logged once. */
const SAME_OVERLOAD_MS = 10_000;

type Dependencies = { turnQueue: Pick<TurnQueue, 'waitingByPartition'>; onRefused: () => void; logger: Logger };

/**
 * Refuses new turns while accepted turns wait too long, so that every accepted turn is answered soon (docs/design.md,
 * Overload). In an overload, about as many turns are accepted as are answered, so no capacity has to be configured.
 */
export const createOverload = ({ turnQueue, onRefused, logger }: Dependencies) => {
  const turns = createWaitingTurns();
  const queueWait = createQueueWait(turnQueue);
  let refusedAt = Number.NEGATIVE_INFINITY;

  const note = (now: number, waitMs: number): void => {
    if (now - refusedAt > SAME_OVERLOAD_MS) {
      logger.warn(
        { waitMs: Math.round(waitMs) },
        'overloaded: new turns get 503. Add reply workers, API processes or a faster MongoDB',
      );
    }
    refusedAt = now;
    onRefused();
  };

  return {
    /** True if a request with a message must be refused now. Call it once for each, before all other checks. */
    refuses: (): boolean => {
      const now = performance.now();
      const waitMs = Math.max(turns.waitMs(now), queueWait(now));
      const refused = turns.refuses(waitMs);
      if (refused) note(now, waitMs);
      return refused;
    },

    /**
     * Call this when a request has passed all checks and its body was read. Null if the turn must be refused, because
     * too many came at the same moment.
     */
    enter: (): WaitingTurn | null => {
      const now = performance.now();
      if (!turns.isFull()) return turns.enter(now);
      note(now, turns.waitMs(now));
      return null;
    },
  };
};

export type Overload = ReturnType<typeof createOverload>;
