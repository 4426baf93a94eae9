import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, mongo } from 'mongoose';
import { teamOf } from '../operators/access.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/logger.ts';
import { isMongoUnavailable } from '../platform/mongo/failures.ts';
import { createSlices } from '../platform/process/slices.ts';
import { createSlots } from '../platform/process/slots.ts';
import {
  type ChangeFeed,
  type Changes,
  isPosition,
  MISSED_MAX,
  openChangeFeed,
  PositionLost,
  readMissed,
  RecentChanges,
} from './change-feed.ts';
import type { LiveRow, Subscriber } from './subscriber.ts';

/** The time in which changes are gathered before their rows are read. */
const GATHER_MS = 200;
const WAIT_MS = 2_000;
const RETRY_MS = 250;
const STOPPED_WITHIN_MS = 500;
/** If MongoDB refuses the stream this often in a row, the position counts as lost, because it is the likely reason. */
const REFUSALS_MAX = 4;

type Source = { connection: Connection; recent: RecentChanges; stop: () => Promise<void> };

type Options = {
  /** Opens the connection of the change streams. It is closed with the source. */
  connect: () => Promise<Connection>;
  /** Runs work after everything that is already being sent to browsers. */
  inTurn: <Value>(work: () => Promise<Value>) => Promise<Value>;
  onChanges: (changes: Changes) => Promise<void>;
  /** Changes before this position may be missing. */
  onLost: (position: string) => void;
  readWithinMs?: number;
  logger: Logger;
};

/**
 * Reads the change stream until it is stopped. After a failure it continues at the last changes that were sent, so none
 * is missing. If MongoDB cannot continue there, it starts again at the present.
 */
const openSource = async ({ connect, inTurn, onChanges, onLost, readWithinMs, logger }: Options): Promise<Source> => {
  const connection = await connect();
  const first = await openChangeFeed(connection, null).catch(async (cause: unknown) => {
    await connection.destroy().catch(() => undefined);
    throw cause;
  });
  let feed: ChangeFeed | null = first;
  const recent = new RecentChanges(first.position);
  const source: Source = { connection, recent, stop: async () => undefined };
  let [stopped, failing, refusals] = [false, false, 0];

  const startAgain = async (): Promise<void> => {
    const opened = await openChangeFeed(connection, null);
    feed = opened;
    await inTurn(async () => {
      source.recent = new RecentChanges(opened.position);
      onLost(opened.position);
    });
  };

  const isLost = (cause: unknown): boolean => {
    if (cause instanceof PositionLost) return true;
    const isRefused = cause instanceof mongo.MongoServerError && !isMongoUnavailable(cause);
    refusals = isRefused ? refusals + 1 : 0;
    return refusals >= REFUSALS_MAX;
  };

  const step = async (): Promise<void> => {
    feed ??= await openChangeFeed(connection, source.recent.newest);
    const changes = await feed.read(WAIT_MS, readWithinMs);
    await inTurn(async () => {
      await onChanges(changes);
      source.recent.add(changes);
    });
    [failing, refusals] = [false, 0];
    if (changes.keys.length + changes.erased.length > 0) await sleep(GATHER_MS);
  };

  const recover = async (cause: unknown): Promise<void> => {
    if (!failing) logger.warn({ err: cause }, 'the change stream of the live updates failed');
    failing = true;
    await feed?.close().catch(() => undefined);
    feed = null;
    await sleep(RETRY_MS);
    // If this fails too, the next step fails in the same way and comes back here.
    if (isLost(cause) && !stopped) await startAgain().catch(() => undefined);
  };

  const run = async (): Promise<void> => {
    while (!stopped) await step().catch((cause: unknown) => (stopped ? undefined : recover(cause)));
    await feed?.close();
  };
  const ended = run();

  source.stop = async () => {
    stopped = true;
    await feed?.close();
    await withDeadline(ended, STOPPED_WITHIN_MS).catch(() => undefined);
    await withDeadline(connection.destroy(), STOPPED_WITHIN_MS).catch(() => undefined);
  };
  return source;
};

const MAX = 10_000;

/**
 * The conversations that were erased last. Their document is deleted a moment after the tombstone is written, so a row
 * may still be read in between.
 */
const createErasedIds = () => {
  const ids = new Set<string>();

  return {
    has: (conversationId: string): boolean => ids.has(conversationId),

    add: (conversationId: string): void => {
      ids.add(conversationId);
      const [oldest] = ids;
      if (ids.size > MAX && oldest !== undefined) ids.delete(oldest);
    },
  };
};

/** Runs work one after the other, in order of the calls. Work that fails does not stop the work after it. */
export const createSerial = () => {
  let last: Promise<unknown> = Promise.resolve();

  return <Value>(work: () => Promise<Value>): Promise<Value> => {
    const result = last.then(work);
    last = result.catch(() => undefined);
    return result;
  };
};

const ROWS_AT_ONCE = 500;
const SENT_AT_ONCE = 100;
/** How long the change stream stays open without a browser. */
const LINGER_MS = 10_000;
/**
 * How many browsers that come back are sent what they missed at the same time, apart from the rounds. Each operator has
 * one of these at a time, and all people with the same assistants have half. Their part then rests for as long as it
 * took, without a place. A browser that gets no place in time loads everything again, and so does one that has not read
 * everything in time.
 */
export const CATCH_UPS = 4;
const CATCH_UPS_OF_A_TEAM = 2;
const PLACE_WITHIN_MS = 2_000;
const CATCH_UP_MS = 10_000;
/**
 * A catch-up reads again what changed during its last pass, at most this often. What is left is sent when the browser
 * joins the rounds. If that is more than `REST_MAX`, the browser loads everything again.
 */
const PASSES = 3;
const REST_MAX = 500;
/**
 * The maximum that all browsers of a process together may leave unread. Above it, the browsers that left the most are
 * cut off.
 */
const UNREAD_TOTAL_BYTES = 67_108_864;

type Dependencies = {
  /** Opens the connection of the change streams, which no other work uses. */
  connect: () => Promise<Connection>;
  /** Reads the rows of these keys, but only of these assistants. Null means all assistants. */
  readRows: (keys: string[], assistantIds: string[] | null) => Promise<LiveRow[]>;
  lingerMs?: number;
  readWithinMs?: number;
  catchUpMs?: number;
  logger: Logger;
};

/** The assistants that at least one of the subscribers may use. Null means all assistants. */
const assistantsOf = (subscribers: Set<Subscriber>): string[] | null => {
  const ids = new Set<string>();
  for (const { access } of subscribers) {
    if (access.role === 'owner' || access.assistantIds === null) return null;
    for (const id of access.assistantIds) ids.add(id);
  }
  return [...ids];
};

/**
 * One change stream for all browsers of this process (docs/design.md, Live updates). It is open while a browser is
 * connected. Everything that is sent goes through `inTurn`, one batch after the other, so that no browser gets an older
 * row after a newer one.
 */
export type Hub = {
  /** Tells the browsers that the connection lives, and how far they have come. */
  keepAlive: () => void;

  /**
   * Adds a browser, and sends it what it missed since `from`. Without `from`, it gets only what changes from now on.
   * Returns the function that removes it.
   */
  add: (subscriber: Subscriber, from: string | null) => Promise<() => void>;

  close: () => Promise<void>;
};

export const createHub = ({
  connect,
  readRows,
  lingerMs = LINGER_MS,
  readWithinMs,
  catchUpMs = CATCH_UP_MS,
  logger,
}: Dependencies): Hub => {
  const subscribers = new Set<Subscriber>();
  const erasedIds = createErasedIds();
  const inTurn = createSerial();
  const ofTeams = createSlots(({ own, ofTenant }) => own === 0 && ofTenant < CATCH_UPS_OF_A_TEAM);
  const catchUps = createSlots(({ inUse }) => inUse < CATCH_UPS);
  let source: Promise<Source> | null = null;
  let running: Source | null = null;
  let users = 0;
  let linger: NodeJS.Timeout | undefined;

  const relieve = (): void => {
    const all = [...subscribers];
    let total = all.reduce((sum, one) => sum + one.unread(), 0);
    if (total <= UNREAD_TOTAL_BYTES) return;
    for (const one of all.toSorted((a, b) => b.unread() - a.unread())) {
      if (total <= UNREAD_TOTAL_BYTES) return;
      total -= one.unread();
      one.cutOff();
    }
  };

  const publish = async (
    { keys, erased, reload, position }: Changes,
    to: Set<Subscriber>,
    afterEach: () => unknown,
  ): Promise<void> => {
    for (const { conversationId } of erased) erasedIds.add(conversationId);
    if (reload) {
      for (const subscriber of to) subscriber.reset(position);
      return;
    }
    // Nobody listens, so nothing is read. A browser that joins again gets what it missed.
    if (to.size === 0) return;
    const assistantIds = assistantsOf(to);
    const slices = createSlices();
    for (let at = 0; at === 0 || at < keys.length; at += ROWS_AT_ONCE) {
      const some = keys.slice(at, at + ROWS_AT_ONCE);
      const isLast = at + ROWS_AT_ONCE >= keys.length;
      const read = some.length > 0 ? await readRows(some, assistantIds) : [];
      const rows = read.filter(({ conversationId }) => !erasedIds.has(conversationId));
      for (let sent = 0; sent === 0 || sent < rows.length; sent += SENT_AT_ONCE) {
        const part = { rows: rows.slice(sent, sent + SENT_AT_ONCE), erased: [], position: null };
        const batch = isLast && sent + SENT_AT_ONCE >= rows.length ? { ...part, erased, position } : part;
        for (const subscriber of to) {
          subscriber.send(batch);
          if (!slices.isOver()) continue;
          relieve();
          await slices.next();
        }
        await afterEach();
      }
    }
  };

  const open = async (): Promise<Source> => {
    const opened = await openSource({
      connect,
      inTurn,
      onChanges: (changes) => publish(changes, subscribers, relieve),
      onLost: (position) => {
        for (const subscriber of subscribers) subscriber.reset(position);
      },
      ...(readWithinMs !== undefined && { readWithinMs }),
      logger,
    });
    running = opened;
    return opened;
  };

  const start = async (): Promise<Source> => {
    source ??= open();
    const opening = source;
    return opening.catch((cause: unknown) => {
      if (source === opening) source = null;
      throw cause;
    });
  };

  const stop = async (): Promise<void> => {
    clearTimeout(linger);
    const opened = source;
    [source, running] = [null, null];
    await (await opened?.catch(() => null))?.stop();
  };

  /** What a browser missed since `from`, or null if that is not known any more. */
  const missedSince = async (
    { connection, recent }: Source,
    from: string,
    over: AbortSignal,
  ): Promise<Changes | null> => {
    if (!isPosition(from)) return null;
    if (from >= recent.oldest) return recent.since(from);
    return readMissed(connection, { from, until: recent.newest, left: over });
  };

  const sendMissed = async (
    opened: Source,
    subscriber: Subscriber,
    { from, over }: { from: string; over: AbortSignal },
  ): Promise<string | null> => {
    let position = from;
    for (let pass = 0; pass < PASSES; pass += 1) {
      const missed = await missedSince(opened, position, over);
      const isPossible = missed && !missed.reload && missed.keys.length + missed.erased.length <= MISSED_MAX;
      if (!isPossible || over.aborted) return null;
      if (pass > 0 && missed.keys.length <= ROWS_AT_ONCE) break;
      await publish(missed, new Set([subscriber]), () => subscriber.drained(over));
      position = missed.position;
    }
    return position;
  };

  /**
   * Sends a browser what it missed since `from`, apart from the rounds for other browsers. Returns the position that it
   * has reached, or null if it has to load everything again.
   */
  const catchUp = async (opened: Source, subscriber: Subscriber, from: string): Promise<string | null> => {
    const { access, left } = subscriber;
    const { operatorId } = access;
    const tenant = teamOf({ ...access, token: null });
    const wanted = { tenant, signal: AbortSignal.any([left, AbortSignal.timeout(PLACE_WITHIN_MS)]) };
    const own = await ofTeams.acquire(operatorId, wanted).catch(() => null);
    const place = own && (await catchUps.acquire(operatorId, wanted).catch(() => null));
    const since = performance.now();
    const over = AbortSignal.any([left, AbortSignal.timeout(catchUpMs)]);
    try {
      return place && (await sendMissed(opened, subscriber, { from, over }));
    } catch (cause) {
      if (over.aborted) return null;
      throw cause;
    } finally {
      place?.release();
      if (own) setTimeout(own.release, Math.min(catchUpMs, performance.now() - since)).unref();
    }
  };

  const join = async ({ recent }: Source, subscriber: Subscriber, reached: string | null): Promise<void> => {
    if (subscriber.left.aborted) return;
    const position = recent.newest;
    const rest = reached === null || reached < recent.oldest ? null : recent.since(reached);
    if (rest === null || rest.reload || rest.keys.length > REST_MAX) subscriber.reset(position);
    else {
      await publish(rest, new Set([subscriber]), relieve);
      subscriber.moveTo(position);
    }
    subscribers.add(subscriber);
  };

  return {
    keepAlive: () => {
      for (const subscriber of subscribers) subscriber.keepAlive(running?.recent.newest ?? null);
    },

    add: async (subscriber, from) => {
      users += 1;
      clearTimeout(linger);
      let removed = false;
      const remove = (): void => {
        if (removed) return;
        removed = true;
        subscribers.delete(subscriber);
        users -= 1;
        if (users === 0) linger = setTimeout(() => void stop(), lingerMs).unref();
      };
      try {
        const opened = await start();
        const reached = from === null ? opened.recent.newest : await catchUp(opened, subscriber, from);
        await inTurn(() => join(opened, subscriber, reached));
      } catch (cause) {
        remove();
        throw cause;
      }
      return remove;
    },

    close: async () => {
      ofTeams.close();
      catchUps.close();
      for (const subscriber of subscribers) subscriber.end();
      await stop();
    },
  };
};
