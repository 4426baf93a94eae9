import type { RequestHandler, Response } from 'express';
import { serverNow } from '../process/clock.ts';
import { unavailable } from '../process/errors.ts';
import { requestIdOf } from '../http/http.ts';
import type { Logger } from '../process/logger.ts';
import type { TurnQueue } from './queue.ts';

const SAMPLE_EVERY_MS = 100;
/** An older sample says nothing about the present. */
const SAMPLE_VALID_MS = 2_000;

/**
 * How long the oldest job has waited, sampled while turns arrive. This also counts turns of other processes and turns
 * whose callers do not wait. Of the partitions that answer, the one with the middle wait is taken, so that a stuck one
 * does not count.
 */
const createQueueWait = (queue: Pick<TurnQueue, 'waitingByPartition'>): ((now: number) => number) => {
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

/** Refusals that are closer together than this belong to the same overload, which is logged once. */
const SAME_OVERLOAD_MS = 10_000;

type Dependencies = { turnQueue: Pick<TurnQueue, 'waitingByPartition'>; onRefused: () => void; logger: Logger };

/**
 * Refuses new turns while accepted turns wait too long, so that every accepted turn is answered soon (docs/design.md,
 * Overload). In an overload, about as many turns are accepted as are answered, so no capacity has to be configured.
 */
export type Overload = {
  /** True if a request with a message must be refused now. Call it once for each, before all other checks. */
  refuses: () => boolean;

  /**
   * Call this when a request has passed all checks and its body was read. Null if the turn must be refused, because
   * too many came at the same moment.
   */
  enter: () => WaitingTurn | null;
};

export const createOverload = ({ turnQueue, onRefused, logger }: Dependencies): Overload => {
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
    refuses: () => {
      const now = performance.now();
      const waitMs = Math.max(turns.waitMs(now), queueWait(now));
      const refused = turns.refuses(waitMs);
      if (refused) note(now, waitMs);
      return refused;
    },

    enter: () => {
      const now = performance.now();
      if (!turns.isFull()) return turns.enter(now);
      note(now, turns.waitMs(now));
      return null;
    },
  };
};

/** While turns wait less than this, all new ones are accepted. */
const WAIT_FREE_MS = 500;
/** The wait that an overload settles at. Callers are far more patient. */
const WAIT_AIM_MS = 1_000;
/** Fewer turns or jobs are no overload. A few may wait long for other reasons. */
const BACKLOG_MIN = 100;
/** The most turns that wait. This bounds a burst, in which no turn has waited long yet. */
const BURST_MAX = 2_000;
/** At most this many answers are saved for an overload. So a short stall of a store refuses no turn. */
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
  /**
   * How many turns were answered and not yet exchanged for a new one. In an overload, only such an exchange accepts a
   * turn.
   */
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
     * True if a new turn must be refused at this wait. Call it once for each turn. At `WAIT_AIM_MS`, each accepted turn
     * uses up one answered turn, at twice that wait two, and so on. So the wait settles at `WAIT_AIM_MS`.
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

/** Counts a turn as waiting, at most until its response ends. Refuses it if too many came at the same moment. */
export const enterUntilClosed = ({ enter }: Overload, res: Response): WaitingTurn => {
  const waiting = enter();
  if (!waiting) throw unavailable();
  res.on('close', waiting.leave);
  return waiting;
};

/** Reports how long each request with a message took. A request that its caller left is not reported. */
export const measureTurns =
  (report: (status: number, seconds: number) => void): RequestHandler =>
  ({ method }, res, next) => {
    const startedAt = performance.now();
    if (method === 'POST') res.on('finish', () => report(res.statusCode, (performance.now() - startedAt) / 1000));
    next();
  };

/**
 * Answers 503 to a turn in an overload. This comes before all other checks and reads no body, because a refusal must
 * cost far less than a turn.
 */
export const refuseInOverload = ({ refuses }: Overload): RequestHandler => {
  const error = unavailable();
  return ({ method }, res, next) => {
    if (method !== 'POST' || !refuses()) return next();
    const body = JSON.stringify(error.toBody(requestIdOf(res)));
    res.writeHead(error.status, {
      ...error.headers,
      'Content-Type': 'application/json; charset=utf-8',
      'Content-Length': Buffer.byteLength(body),
    });
    res.end(body);
  };
};
