/** A turn that waits longer than this waits because of an overload. Callers are far more patient. */
export const WAIT_MAX_MS = 1_000;
/** Fewer turns or jobs are no overload. A few may wait long for other reasons. */
export const BACKLOG_MIN = 100;
/** So many turns may wait. This bounds a burst, in which no turn has waited long yet. */
export const BURST_MAX = 2_000;
/** In an overload, one new turn is accepted for so many answers, so that the backlog shrinks. */
const ANSWERS_PER_TURN = 2;

/** A turn that waits for its reply in this process. */
export type WaitingTurn = {
  /** Call this when the turn got its reply after all turns before it. */
  answered: () => void;
  /** Call this when the turn no longer waits, for any other reason. Has no effect after `answered`. */
  leave: () => void;
};

/**
 * The turns of this process that wait for their reply, in the order of their arrival. Replies come in about this order.
 * So if a newer turn is answered before the oldest one, the oldest one drops out of the backlog: it is stuck, for
 * example because the Redis node of its partition is unavailable, and the turns behind it go on. All times are passed in.
 */
export const createWaitingTurns = () => {
  const backlog = new Set<{ since: number }>();
  /** Answers since the overload began, or since a turn was accepted for them. */
  let answers = 0;

  return {
    enter: (since: number): WaitingTurn => {
      const turn = { since };
      backlog.add(turn);
      return {
        answered: () => {
          const [oldest] = backlog;
          answers += 1;
          if (backlog.delete(turn) && oldest) backlog.delete(oldest);
        },
        leave: () => void backlog.delete(turn),
      };
    },

    /** How long the oldest turn of the backlog has waited, if there is a backlog. */
    waitMs: (now: number): number => {
      const [oldest] = backlog;
      return oldest && backlog.size >= BACKLOG_MIN ? now - oldest.since : 0;
    },

    isFull: (): boolean => backlog.size >= BURST_MAX,

    /** True if a new turn must be refused after turns have waited for so long. Call it once for each turn. */
    refuses: (waitMs: number): boolean => {
      if (backlog.size >= BURST_MAX) return true;
      if (waitMs < WAIT_MAX_MS) {
        answers = 0;
        return false;
      }
      if (answers < ANSWERS_PER_TURN) return true;
      answers -= ANSWERS_PER_TURN;
      return false;
    },
  };
};
