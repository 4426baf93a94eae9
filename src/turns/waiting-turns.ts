/** While turns wait less than this, all new ones are accepted. */
export const WAIT_FREE_MS = 500;
/** The wait that an overload settles at. Callers are far more patient. */
const WAIT_AIM_MS = 1_000;
/** Fewer turns or jobs are no overload. A few may wait long for other reasons. */
export const BACKLOG_MIN = 100;
/** So many turns may wait. This bounds a burst, in which no turn has waited long yet. */
const BURST_MAX = 2_000;
/** So many answers are saved for an overload. A short stall of a store is thus no overload. */
const SAVED_MAX = 200;

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
  /** In an overload, new turns are accepted in exchange for answers. */
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

    /**
     * True if a new turn must be refused after turns have waited for so long. Call it once for each turn. A new turn costs
     * one answer at the wait that is aimed at, two at twice the wait, and so on. So the wait settles there.
     */
    refuses: (waitMs: number): boolean => {
      if (backlog.size >= BURST_MAX) return true;
      if (waitMs < WAIT_FREE_MS) {
        answers = Math.min(answers, SAVED_MAX);
        return false;
      }
      const cost = waitMs / WAIT_AIM_MS;
      if (answers < cost) return true;
      answers -= cost;
      return false;
    },
  };
};
