import { serverNow } from '../platform/clock.ts';
import type { Logger } from '../platform/logger.ts';
import type { TurnQueue } from './queue.ts';

/** From this wait on, some new turns are refused. */
const WAIT_TOLERATED_MS = 1_000;
/** From this wait on, all new turns are refused. It is far below the time after which callers give up. */
const WAIT_MAX_MS = 3_000;
/** A wait counts only if at least so many turns or jobs wait. A few may wait long for other reasons. */
const BACKLOG_MIN = 100;
/** With so many turns in flight, this process accepts no more. It bounds a burst, whose wait is not known at first. */
const IN_FLIGHT_MAX = 2_000;
/** The pace is measured over this time, in steps, as far as there was a backlog. */
const PACE_OVER_MS = 5_000;
const STEP_MS = 100;
/** The pace is known after so many steps with a backlog. A short stall of a store is thus no overload. */
const PACE_STEPS_MIN = 10;
const SAMPLE_EVERY_MS = 100;
/** An older sample says nothing about the present. */
const SAMPLE_VALID_MS = 1_000;
/** Refusals that are closer together than this belong to the same overload, which is logged once. */
const SAME_OVERLOAD_MS = 10_000;

/** A request with a message, from its arrival to its response. */
export type TurnInFlight = {
  /**
   * Call this when the turn has its reply. If the reply depends on a provider, call it when the turn is accepted,
   * because a slow provider is no overload.
   */
  settle: () => void;
  /** Call this when the response has ended, whether there was a turn or not. */
  leave: () => void;
};

/**
 * How long a turn that arrives now must wait in this process: until the turns before it have ended, at the pace of the
 * last seconds. At the beginning of a burst the pace is not known. Then it is the time that the oldest turn has waited.
 */
const createOwnWait = () => {
  const turns = new Set<{ since: number }>();
  /** Steps with a backlog, and how many turns ended in each. */
  let steps: { at: number; ended: number }[] = [];

  const stepOf = (now: number): { ended: number } | null => {
    if (turns.size < BACKLOG_MIN) return null;
    const at = Math.floor(now / STEP_MS);
    const last = steps.at(-1);
    if (last?.at === at) return last;
    steps = steps.filter((step) => step.at > at - PACE_OVER_MS / STEP_MS);
    const step = { at, ended: 0 };
    steps.push(step);
    return step;
  };

  return {
    enter: (): TurnInFlight => {
      const turn = { since: performance.now() };
      turns.add(turn);
      return {
        settle: () => {
          const step = stepOf(performance.now());
          if (turns.delete(turn) && step) step.ended += 1;
        },
        leave: () => void turns.delete(turn),
      };
    },

    read: (now: number): number => {
      const [oldest] = turns;
      if (!oldest || !stepOf(now)) return 0;
      if (turns.size >= IN_FLIGHT_MAX) return WAIT_MAX_MS;
      const pace = steps.reduce((sum, { ended }) => sum + ended, 0) / (steps.length * STEP_MS);
      return steps.length >= PACE_STEPS_MIN && pace > 0 ? turns.size / pace : now - oldest.since;
    },
  };
};

type Queue = Pick<TurnQueue, 'oldestWaitingAt' | 'countJobs'>;

/** How long the oldest job has waited, sampled while turns arrive. It also counts turns that other processes accepted. */
const createQueueWait = (queue: Queue) => {
  let waitMs = 0;
  let sampledAt = Number.NEGATIVE_INFINITY;
  let sampling = false;

  const look = async (): Promise<number> => {
    const oldest = await queue.oldestWaitingAt();
    const wait = oldest === null ? 0 : serverNow() - oldest;
    if (wait < WAIT_TOLERATED_MS) return 0;
    const { waiting = 0 } = await queue.countJobs();
    return waiting < BACKLOG_MIN ? 0 : wait;
  };

  const sample = async (): Promise<void> => {
    sampling = true;
    // If Redis is unavailable, turns are refused for that reason.
    waitMs = await look().catch(() => 0);
    sampledAt = performance.now();
    sampling = false;
  };

  return (now: number): number => {
    if (sampling) return waitMs;
    if (now - sampledAt > SAMPLE_VALID_MS) waitMs = 0;
    if (now - sampledAt > SAMPLE_EVERY_MS) void sample();
    return waitMs;
  };
};

type Dependencies = { turnQueue: Queue; onRefused: () => void; logger: Logger };

/**
 * Refuses new turns while accepted turns wait too long, so that every accepted turn is answered soon (docs/design.md,
 * Overload). The longer the wait, the larger the share of new turns that are refused. So the wait settles where as many
 * turns are accepted as are answered, and no capacity has to be configured.
 */
export const createOverload = ({ turnQueue, onRefused, logger }: Dependencies) => {
  const ownWait = createOwnWait();
  const queueWait = createQueueWait(turnQueue);
  let owed = 0;
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
    /** True if a new turn must be refused now. Call it once for each turn. */
    refuses: (): boolean => {
      const now = performance.now();
      const waitMs = Math.max(ownWait.read(now), queueWait(now));
      const share = Math.min(1, Math.max(0, (waitMs - WAIT_TOLERATED_MS) / (WAIT_MAX_MS - WAIT_TOLERATED_MS)));
      if (share === 0) return false;
      // The shares are summed up, so that exactly this share of the turns is refused, evenly spread.
      owed += share;
      if (owed < 1) return false;
      owed -= 1;
      note(now, waitMs);
      return true;
    },

    /** Call this when a request with a message arrives and is not refused. */
    enter: ownWait.enter,
  };
};

export type Overload = ReturnType<typeof createOverload>;
