import { hash } from 'node:crypto';
import { performance as measured } from 'node:perf_hooks';
import type { Request, RequestHandler, Response } from 'express';
import { errorBodyOf } from '../platform/http/http.ts';
import { createByteShares, createLateLines, networkOf } from '../platform/http/shares.ts';
import { bearerIn } from '../platform/process/credentials.ts';
import { unavailable } from '../platform/process/errors.ts';
import type { Logger } from '../platform/process/logger.ts';
import type { Waiter } from './waiters.ts';
import { addTo, restAfter } from '../platform/process/slots.ts';
import { createLru } from '../platform/process/lru.ts';

/** Turns may take this much longer than without a queue. This bounds how long a turn waits behind turns of others. */
const QUEUED_MS = 80;
const WINDOW_LEAST = 16;
/** The first window, and the least when no turn has waited. */
const WINDOW_FIRST = 64;
const WINDOW_MOST = 1_000;
/**
 * The least window when no turn was answered for some time, for example because a reply worker starts again. A smaller
 * one leaves the difference to the lines, so that a short stall refuses nothing.
 */
const WINDOW_STALLED = 128;
const STALLED_AFTER_MS = 250;
const ADAPTED_EVERY_MS = 100;
/** The window follows the times of at least this many turns, because fewer say little. */
const TURNS_LEAST = 16;
const QUARTER = TURNS_LEAST >> 2;
/** How soon an overload is probed first, and how often after that. */
const PROBED_FIRST_MS = 1_000;
const PROBED_EVERY_MS = 10_000;
/** With a window of at most this, a probe costs nothing, so one is made at once if turns take long nevertheless. */
const WINDOW_SMALL = 24;
/**
 * The window after a probe has shown that turns take as long alone. A larger one would be wrong if they wait behind turns
 * of other processes.
 */
const WINDOW_NOT_SMALL = 32;
/** A turn without a queue waits for the model, 0.4 s at most. What took longer has waited for something else. */
const UNQUEUED_MOST_MS = 400;
/** A probe ends after this time, whatever it has seen: its turns may never be answered. */
const PROBE_MOST_MS = 2_000;
/** Probes take at most this part of the time. So a long probe is rare and costs little. */
const PROBES_PART = 1 / 30;

/**
 * The time within which the fastest quarter of the turns was answered. Slower turns are ignored: they may wait for the
 * model or for a stuck partition, and a smaller window would not help them.
 */
const fastOf = (times: number[]): number =>
  Math.max(1, times.toSorted((one, other) => one - other)[times.length >> 2] ?? 0);

/**
 * A probe times turns that begin together, once all from before it have ended, until more than a quarter of them was
 * answered. It times no others, because what is answered first is mostly what is fast. `beforeMs`: what turns took before.
 * `why`: it was time for one in an overload, or no turn waited at the gate, or the window is small.
 */
type Probe = {
  why: 'due' | 'open' | 'small';
  from: number;
  beforeMs: number;
  begun: Set<Turn>;
  times: number[];
};

/**
 * How many turns may be in flight: enough to keep the processes behind the gate busy, but so few that turns hardly queue
 * there. While turns wait at the gate, the window shrinks if turns take too long, and grows if not. How long they take
 * without a queue depends on the machine and its stores, so it is measured while few are in flight, and now and then, if
 * some wait or take long, by a probe with a small window. While none waits, the window is at most twice what is used.
 * Otherwise a burst would fill at once what an earlier load had needed.
 */
const createWindow = (inFlight: Set<Turn>) => {
  let size = WINDOW_FIRST;
  let adaptedAt = 0;
  /** Since then: how long turns took, the most in flight, and whether some waited at the gate or may have behind it. */
  let times: number[] = [];
  let most = 0;
  let wasFull = false;
  let wasQueued = false;
  let answeredAt = 0;
  /** When more turns than the least window were last in flight. Those that began before may have waited behind others. */
  let manyAt = 0;
  /** What a turn takes without a queue. */
  let unqueuedMs = 0;
  /** What turns took when the window was adapted last, since the last probe. */
  let fastBefore = Number.POSITIVE_INFINITY;
  let probe: Probe | null = null;
  let nextProbeAt = 0;
  /** From when on the result of a probe in an overload is checked, once no turn waits. */
  let checkedFrom = Number.POSITIVE_INFINITY;

  const startProbe = (why: Probe['why'], beforeMs: number): void => {
    probe = { why, from: performance.now(), beforeMs, begun: new Set(), times: [] };
  };

  const endProbe = ({ why, from, beforeMs, times: took }: Probe, now: number): void => {
    if (took.length > QUARTER) unqueuedMs = Math.min(UNQUEUED_MOST_MS, Math.max(1, ...took));
    probe = null;
    fastBefore = Number.POSITIVE_INFINITY;
    nextProbeAt = now + Math.max(PROBED_EVERY_MS, (now - from) / PROBES_PART);
    checkedFrom = why === 'open' ? Number.POSITIVE_INFINITY : now + PROBED_FIRST_MS;
    const hasQueued = beforeMs > unqueuedMs + QUEUED_MS;
    if (why === 'open' && hasQueued) size = WINDOW_FIRST;
    if (why === 'small' && !hasQueued) size = WINDOW_NOT_SMALL;
  };

  const noteUnqueued = (fast: number, now: number): void => {
    unqueuedMs = Math.min(UNQUEUED_MOST_MS, fast);
    nextProbeAt = now + PROBED_FIRST_MS;
    checkedFrom = Number.POSITIVE_INFINITY;
  };

  const adapt = (now: number): void => {
    const fast = fastOf(times);
    // What turns take alone is at most what they took beside others. A second look, because some may be quick by chance.
    unqueuedMs = Math.min(unqueuedMs, Math.max(fast, fastBefore));
    const targetMs = unqueuedMs + QUEUED_MS;
    // Perhaps the turns of before were quick, and those of now wait for the model.
    const isSmallInVain = size <= WINDOW_SMALL && Math.min(fast, fastBefore) > targetMs;
    fastBefore = fast;
    if (wasFull && isSmallInVain) startProbe('small', fast);
    else if (wasFull && now >= nextProbeAt) startProbe('due', fast);
    else if (wasFull) {
      const change = Math.min(1.25, Math.max(0.7, targetMs / fast));
      size = Math.min(WINDOW_MOST, Math.max(WINDOW_LEAST, size * change));
    } else {
      size = Math.min(size, Math.max(WINDOW_FIRST, 2 * most));
      const mayQueue = now >= checkedFrom || (fast > targetMs && now >= nextProbeAt);
      if (!wasQueued) noteUnqueued(fast, now);
      else if (mayQueue) startProbe('open', fast);
    }
  };

  const isStalled = (): boolean => {
    const [oldest] = inFlight;
    return oldest !== undefined && performance.now() - Math.max(answeredAt, oldest.since) > STALLED_AFTER_MS;
  };

  return {
    get size(): number {
      if (isStalled()) return Math.max(WINDOW_STALLED, Math.round(size));
      return probe ? WINDOW_LEAST : Math.round(size);
    },

    /** How many turns a smaller window than in a stall leaves to the lines. */
    get spare(): number {
      return Math.max(0, WINDOW_STALLED - this.size);
    },

    /** Call this for each turn that passes, once it is in flight. */
    entered: (turn: Turn): void => {
      if (probe && turn.since - probe.from > PROBE_MOST_MS) endProbe(probe, turn.since);
      if (!probe || probe.begun.size === TURNS_LEAST) return;
      const [oldest = turn] = inFlight;
      if (oldest.since >= probe.from) probe.begun.add(turn);
    },

    /** Call this for each answered turn. `isFull`: turns wait at the gate. */
    answered: (turn: Turn, { now, isFull }: { now: number; isFull: boolean }): void => {
      const { since } = turn;
      answeredAt = now;
      most = Math.max(most, inFlight.size);
      wasFull ||= isFull;
      if (inFlight.size > WINDOW_LEAST) manyAt = now;
      wasQueued ||= since <= manyAt;
      if (probe) {
        if (probe.begun.has(turn)) probe.times.push(now - since);
        if (probe.times.length <= QUARTER) return;
        endProbe(probe, now);
      } else {
        times.push(now - since);
        if (now - adaptedAt < ADAPTED_EVERY_MS || times.length < TURNS_LEAST) return;
        adapt(now);
      }
      adaptedAt = now;
      times = [];
      most = 0;
      wasFull = false;
      wasQueued = false;
    },
  };
};

/** A turn waits at the gate for at most this time. Then it is refused. */
const WAIT_MAX_MS = 2_000;
/** How many turns a new line may hold, so that a burst or a short stall of a store does not count as an overload. */
const LINE_BURST = 1_000;
const LINE_LEAST = 50;
/**
 * A line older than this holds at most half as many turns as were served from it in this time, and what a small window
 * leaves to it. So a turn waits about half of this time.
 */
const LINE_MS = 1_000;
/** The maximum bytes of all waiting turns together. An assistant may have as many as remain free. */
const WAITING_BYTES = 64 * 1024 * 1024;
const BYTES_OF_A_REQUEST = 16 * 1024;

type Waiting = { key: string; admit: () => void };

/** The waiting turns of an assistant. Its keys take turns. */
class Line {
  size = 0;
  readonly #keys = new Map<string, Set<Waiting>>();
  readonly #since: number;
  #countedFrom: number;
  #served = 0;
  #servedBefore = 0;

  constructor(now: number) {
    this.#since = now;
    this.#countedFrom = now;
  }

  #count(now: number): void {
    const periods = Math.floor((now - this.#countedFrom) / LINE_MS);
    if (periods === 0) return;
    this.#servedBefore = periods === 1 ? this.#served : 0;
    this.#served = 0;
    this.#countedFrom += periods * LINE_MS;
  }

  /** `spare`: how many turns it may hold in addition. */
  isFull(now: number, spare: number): boolean {
    if (now - this.#since < LINE_MS) return this.size >= LINE_BURST;
    this.#count(now);
    return this.size >= Math.max(LINE_LEAST, Math.max(this.#served, this.#servedBefore) / 2 + spare);
  }

  add(one: Waiting): void {
    const some = this.#keys.get(one.key);
    if (some) some.add(one);
    else this.#keys.set(one.key, new Set([one]));
    this.size += 1;
  }

  remove(one: Waiting): void {
    const some = this.#keys.get(one.key);
    if (!some?.delete(one)) return;
    if (some.size === 0) this.#keys.delete(one.key);
    this.size -= 1;
  }

  next(now: number): Waiting | undefined {
    const [[key, some] = []] = this.#keys;
    const [one] = some ?? [];
    if (key === undefined || !some || !one) return undefined;
    this.remove(one);
    this.#count(now);
    this.#served += 1;
    if (some.size > 0) {
      this.#keys.delete(key);
      this.#keys.set(key, some); // moves the key to the end of the round
    }
    return one;
  }
}

/**
 * A turn that is older than this no longer counts when a newer one is answered: it is stuck, or waits for the model.
 */
const STUCK_AFTER_MS = 250;
/** At most this many turns are in flight beyond the window. All belong to assistants below their share. */
const BESIDE_MAX = 128;
/**
 * How many turns of one assistant are accepted at once. Those that only repeat one, or that wait for a provider or for
 * further messages, have no reply that tells the window when they are too many. So while this process is busy and other
 * assistants send too, each keeps its place for a rest, four times as long as it took.
 */
const ACCEPTED_AT_ONCE = 16;
/** The process is busy from this share of the time on, measured so often. */
const BUSY = 0.8;
const MEASURED_EVERY_MS = 100;
/** Others send too if a turn of another assistant came within this time. */
const OTHERS_WITHIN_MS = 1_000;

/** True if the event loop was busy for most of the last time. */
const createBusyCheck = (): (() => boolean) => {
  let [last, at, isBusy] = [measured.eventLoopUtilization(), performance.now(), false];
  return () => {
    const now = performance.now();
    if (now - at < MEASURED_EVERY_MS) return isBusy;
    const used = measured.eventLoopUtilization();
    isBusy = measured.eventLoopUtilization(used, last).utilization > BUSY;
    [last, at] = [used, now];
    return isBusy;
  };
};
/**
 * A turn older than this no longer counts as in flight, even if no newer turn is answered: its caller no longer waits.
 */
const IN_FLIGHT_MAX_MS = 30_000;
/** Refusals that are closer together than this belong to the same overload, which is logged once. */
const SAME_OVERLOAD_MS = 10_000;
/**
 * A refusal is sent this late, and refusals of one assistant so far apart. Otherwise a caller who continues regardless
 * would cause thousands in a second.
 */
const REFUSED_LATE_MS = 1_000;
const REFUSED_APART_MS = 2;
const REFUSED_MOST_MS = 5_000;
/** While turns wait for the window, at most this many requests of unknown callers are checked at once. */
const STRANGERS_MAX = 500;
const CALLERS_KNOWN = 10_000;

/** A turn that has passed the gate. It is in flight until it is answered, or until `leave` is called. */
export type PassedTurn = {
  /** Call this before the turn is accepted. The waiter is cancelled when the turn ends. */
  follow: (waiter: Waiter) => void;
  /**
   * Call this when the turn is accepted. It then stays in flight until its reply, even if its caller disconnects.
   * `inOrder`: the turn is the head of its conversation, so the window may follow its time. Any other turn may wait behind
   * its head for a provider or for further messages, so it counts for 0.25 s at most.
   */
  stay: (inOrder: boolean) => void;
  /** Call this when nothing of the turn waits behind the gate. Has no effect after `stay`. */
  leave: () => void;
};

type Turn = { assistantId: string; since: number; isAccepting: boolean; waiter?: Waiter; timer?: NodeJS.Timeout };
type Caller = { assistantId: string; keyId: string | null; bytes: number; req: Request; res: Response };

/**
 * Admits turns by shares, so that an assistant that sends more than the service can answer delays only itself
 * (docs/design.md, Fair shares). At most a window of turns is in flight. Further turns wait in one line per assistant,
 * and the lines take turns. An assistant with less than its share of the window in flight never waits.
 */
export type Gate = {
  /** True if a request with a message must be refused now, because the line of its assistant is full. */
  refuses: (req: Request, res: Response) => boolean;

  /** Counts a refusal, and waits before it is sent. */
  refuse: (req: Request) => Promise<void>;

  /**
   * Call this when a request has passed all checks and its body was read. Resolves when the turn may be accepted.
   * Throws 503 if it would wait too long.
   */
  pass: (caller: Caller) => Promise<PassedTurn>;
};

type Dependencies = { onRefused: () => void; logger: Logger; isBusy?: () => boolean };

/** What a request says about its caller, without a look into a store: the channel's assistant, or a hash of its key. */
const markOf = ({ params, headers }: Request): string =>
  params.assistant_id === undefined
    ? hash('sha256', bearerIn(headers.authorization) ?? '')
    : String(params.assistant_id);

export const createGate = ({ onRefused, logger, isBusy = createBusyCheck() }: Dependencies): Gate => {
  const lines = new Map<string, Line>();
  const bytesWaiting = createByteShares(WAITING_BYTES);
  /** The turns in flight, in the order in which they passed. */
  const inFlight = new Set<Turn>();
  const window = createWindow(inFlight);
  /** How many turns each assistant has in flight. */
  const owned = new Map<string, number>();
  /** How many of them are being accepted. */
  const accepting = new Map<string, number>();
  const assistants = createLru<string>({ most: CALLERS_KNOWN });
  const late = createLateLines({ lateMs: REFUSED_LATE_MS, apartMs: REFUSED_APART_MS, mostMs: REFUSED_MOST_MS });
  let strangers = 0;
  let refusedAt = Number.NEGATIVE_INFINITY;
  let last = '';
  /** When a turn came last that was not of the assistant before. */
  let othersAt = Number.NEGATIVE_INFINITY;

  /**
   * True if the assistant has less than its share in flight. A window that has just shrunk delays only assistants above
   * their share. One that has none in flight never waits, whatever others do.
   */
  const isBelowShare = (assistantId: string): boolean => {
    const own = owned.get(assistantId) ?? 0;
    return own === 0 || (inFlight.size < window.size + BESIDE_MAX && own < window.size / owned.size);
  };

  const acceptsMost = (assistantId: string): boolean => (accepting.get(assistantId) ?? 0) >= ACCEPTED_AT_ONCE;

  /** True if turns wait for the window. A line whose assistant accepts the most that it may does not. */
  const isFull = (): boolean => lines.size > 0 && inFlight.size >= window.size;

  /** What a small window leaves to each line. */
  const spare = (): number => window.spare / lines.size;

  const admitOne = (assistantId: string, line: Line, now: number): void => {
    const one = line.next(now);
    lines.delete(assistantId);
    if (line.size > 0) lines.set(assistantId, line); // moves the assistant to the end of the round
    one?.admit();
  };

  /** The line whose turn it is. */
  const nextLine = (): [string, Line] | null => {
    for (const one of lines) if (!acceptsMost(one[0])) return one;
    return null;
  };

  const admitWaiting = (now: number): void => {
    while (inFlight.size < window.size) {
      const next = nextLine();
      if (!next) return;
      admitOne(...next, now);
    }
  };

  const admitOf = (assistantId: string, now: number): void => {
    for (;;) {
      const line = lines.get(assistantId);
      if (!line || acceptsMost(assistantId) || !isBelowShare(assistantId)) return;
      admitOne(assistantId, line, now);
    }
  };

  const admitAfter = ({ assistantId }: Turn): void => {
    const now = performance.now();
    admitOf(assistantId, now);
    admitWaiting(now);
  };

  /** Ends the flight of a turn. If it is still being accepted, it keeps its place there until `stay` or `leave`. */
  const drop = (turn: Turn): void => {
    if (!inFlight.delete(turn)) return;
    addTo(owned, turn.assistantId, -1);
    turn.waiter?.cancel();
    clearTimeout(turn.timer);
    admitAfter(turn);
  };

  const dropOlder = (than: number, now: number): void => {
    const [oldest] = inFlight;
    if (oldest && now - oldest.since > than) drop(oldest);
  };

  const enter = (assistantId: string): PassedTurn => {
    const since = performance.now();
    const turn: Turn = { assistantId, since, isAccepting: true };
    inFlight.add(turn);
    window.entered(turn);
    addTo(owned, assistantId, 1);
    addTo(accepting, assistantId, 1);
    const endAccept = (): void => {
      addTo(accepting, assistantId, -1);
      admitAfter(turn);
    };
    // A turn that repeats another one may be answered before it is accepted.
    let isTimed = false;
    const onReply = ({ reply }: Awaited<Waiter['reply']>): void => {
      const now = performance.now();
      // An erasure waits for nothing behind the gate.
      if (isTimed && reply.outcome !== 'erased') window.answered(turn, { now, isFull: isFull() });
      if (inFlight.has(turn)) dropOlder(STUCK_AFTER_MS, now);
      drop(turn);
    };
    return {
      follow: (waiter) => {
        turn.waiter = waiter;
        void waiter.reply.then(onReply);
      },
      stay: (inOrder) => {
        if (!turn.isAccepting) return;
        turn.isAccepting = false;
        isTimed = inOrder;
        turn.waiter?.arm();
        if (!inOrder && inFlight.has(turn)) turn.timer = setTimeout(drop, STUCK_AFTER_MS, turn);
        endAccept();
      },
      leave: () => {
        if (!turn.isAccepting) return;
        turn.isAccepting = false;
        drop(turn);
        const now = performance.now();
        const rests = now - othersAt < OTHERS_WITHIN_MS && isBusy();
        if (rests) setTimeout(endAccept, restAfter(now - since)).unref();
        else endAccept();
      },
    };
  };

  const note = (): void => {
    const now = performance.now();
    onRefused();
    if (now - refusedAt > SAME_OVERLOAD_MS) {
      logger.warn(
        { inFlight: inFlight.size, lines: lines.size },
        'overloaded: new turns of the busiest assistants get 503. Add reply workers, API processes or a faster MongoDB',
      );
    }
    refusedAt = now;
  };

  const refuse = (req: Request): Promise<void> => {
    note();
    return late.wait(assistants.get(markOf(req)) ?? networkOf(req.ip));
  };

  let stallCheck: NodeJS.Timeout | undefined;
  /** Lets turns pass that a stall gives a place. Nothing else would, because none is answered. */
  const checkForStall = (): void => {
    admitWaiting(performance.now());
    if (lines.size > 0) return;
    clearInterval(stallCheck);
    stallCheck = undefined;
  };

  /** Waits in the line of the assistant. Leaves it if the caller leaves, or has waited too long. */
  const wait = ({ assistantId, keyId, res }: Caller, bytes: number): Promise<PassedTurn> =>
    new Promise((resolve, reject) => {
      const line = lines.get(assistantId) ?? new Line(performance.now());
      const leave = (): void => {
        line.remove(one);
        if (line.size === 0) lines.delete(assistantId);
        end();
        reject(unavailable());
      };
      const timer = setTimeout(() => {
        leave();
        note();
      }, WAIT_MAX_MS);
      const end = (): void => {
        clearTimeout(timer);
        res.off('close', leave);
        bytesWaiting.release(assistantId, bytes);
      };
      const one: Waiting = {
        key: keyId ?? 'channel',
        admit: () => {
          end();
          resolve(enter(assistantId));
        },
      };
      res.once('close', leave);
      line.add(one);
      lines.set(assistantId, line);
      stallCheck ??= setInterval(checkForStall, STALLED_AFTER_MS).unref();
    });

  return {
    refuses: (req, res) => {
      if (lines.size === 0) return false;
      const assistantId = assistants.get(markOf(req));
      if (assistantId !== undefined) return lines.get(assistantId)?.isFull(performance.now(), spare()) === true;
      if (!isFull()) return false;
      if (strangers >= STRANGERS_MAX) return true;
      strangers += 1;
      let counted = true;
      const end = (): void => {
        if (counted) strangers -= 1;
        counted = false;
      };
      res.locals.noStranger = end;
      res.once('close', end);
      return false;
    },

    refuse,

    pass: async (caller) => {
      const { assistantId, req, res } = caller;
      const now = performance.now();
      assistants.set(markOf(req), assistantId);
      if (last !== assistantId && last !== '') othersAt = now;
      last = assistantId;
      if (res.closed) throw unavailable();
      dropOlder(IN_FLIGHT_MAX_MS, now);
      const isFree = inFlight.size < window.size || isBelowShare(assistantId);
      if (!lines.has(assistantId) && isFree && !acceptsMost(assistantId)) return enter(assistantId);
      const bytes = BYTES_OF_A_REQUEST + caller.bytes;
      if (lines.get(assistantId)?.isFull(now, spare()) || !bytesWaiting.take(assistantId, bytes)) {
        await refuse(req);
        throw unavailable();
      }
      return wait(caller, bytes);
    },
  };
};

/** Reports how long each request with a message took. Requests whose callers disconnected are not reported. */
export const measureTurns =
  (report: (status: number, seconds: number) => void): RequestHandler =>
  ({ method }, res, next) => {
    const startedAt = performance.now();
    if (method === 'POST') res.on('finish', () => report(res.statusCode, (performance.now() - startedAt) / 1000));
    next();
  };

/**
 * Answers 503 to a turn whose assistant's line is full. This comes before all other checks and reads no body, because a
 * refusal must cost far less than a turn.
 */
export const refuseAtGate = ({ refuses, refuse }: Gate): RequestHandler => {
  const error = unavailable();
  return async (req, res, next) => {
    if (req.method !== 'POST' || !refuses(req, res)) return next();
    await refuse(req);
    const body = JSON.stringify(errorBodyOf(error, res));
    res.writeHead(error.status, {
      ...error.headers,
      'Content-Type': 'application/json; charset=utf-8',
      'Content-Length': Buffer.byteLength(body),
    });
    res.end(body);
  };
};
