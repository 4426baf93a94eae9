import type { InboxStore } from '../conversations/inbox.ts';
import type { ReadAssignees } from '../inbox/assignees.ts';
import { type Inbox, toInboxRow } from '../inbox/inbox.ts';
import { openMongo } from '../platform/mongo/mongo.ts';
import { createFindSignedIn, type FindSignedIn, type SessionRef } from '../operators/access.ts';
import type { Operator } from '../operators/operator.ts';
import { serverDate } from '../platform/process/clock.ts';
import { ApiError } from '../platform/process/errors.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createSlices, restIfBusy } from '../platform/process/slices.ts';
import type { RedisClient } from '../platform/redis/redis.ts';
import type { Module } from '../service.ts';
import { FEED_SILENT_AFTER_MS } from './change-feed.ts';
import { CATCH_UPS, createHub, createSerial, type Hub } from './hub.ts';
import { createPresence, type Presence, type PresenceBoard } from './presence.ts';
import { createSubscriber, type EventSink, type LivePresence, type LiveRow, type Subscriber } from './subscriber.ts';

const CHECK_EVERY_MS = 500;
/**
 * Without an answer of MongoDB for this many checks (five seconds), nobody knows who is still signed in, so all connections
 * end. Checks are counted, not seconds, because a process that stood still has not heard an answer that is there.
 */
const UNANSWERED_MAX = 10;
const COMMENT_EVERY_MS = 15_000;
const CONNECTIONS_MAX = 10;
/** How many states of presence are written to a browser in one go. */
const PRESENCES_AT_ONCE = 500;

/** `hasList`: it was sent who is present, so it is sent what changes. */
type Connected = { subscriber: Subscriber; session: SessionRef; operator: Operator; hasList: boolean };
type Dependencies = {
  hub: Hub;
  createPresence: (onChanges: (changes: LivePresence[]) => Promise<void>) => PresenceBoard;
  findSignedIn: FindSignedIn;
  /** Connections end when the process begins to stop. */
  draining: AbortSignal;
  logger: Logger;
};

const tooMany = (): ApiError =>
  new ApiError('rate_limited', {
    message: `An operator can have ${CONNECTIONS_MAX} connections for live updates. Close a tab.`,
    headers: {
      'Retry-After': '15',
      'X-RateLimit-Limit': String(CONNECTIONS_MAX),
      'X-RateLimit-Remaining': '0',
      'X-RateLimit-Reset': '15',
    },
  });

const sameAccess = (a: Operator, b: Operator): boolean =>
  a.role === b.role && JSON.stringify(a.assistantIds) === JSON.stringify(b.assistantIds);

/** The browsers that are connected for live updates to this process. Without a browser, nothing runs. */
export type LiveUpdates = {
  announce: (presence: Presence) => Promise<void>;

  /**
   * Connects a browser, which gets what it missed since `from`. Returns the function that disconnects it. Throws
   * before anything is written.
   */
  connect: (
    sink: EventSink,
    options: { operator: Operator; session: SessionRef; from: string | null },
  ) => Promise<() => void>;

  close: () => Promise<void>;
};

export const createLiveUpdates = ({
  hub,
  createPresence,
  findSignedIn,
  draining,
  logger,
}: Dependencies): LiveUpdates => {
  const connected = new Set<Connected>();
  let timers: NodeJS.Timeout[] = [];
  let unanswered = 0;

  const inTurn = createSerial();
  /** One call after the other, so that no browser gets an older state after a newer one. Other work runs in between. */
  const sendPresence = (states: LivePresence[], to: Connected[]): Promise<void> =>
    inTurn(async () => {
      for (let at = 0; at < states.length; at += PRESENCES_AT_ONCE) {
        const part = states.slice(at, at + PRESENCES_AT_ONCE);
        for (const { subscriber } of to) {
          const rest = restIfBusy();
          if (rest) await rest;
          subscriber.sendPresence(part);
        }
      }
    });
  const presence = createPresence((changes) =>
    sendPresence(
      changes,
      [...connected].filter(({ hasList }) => hasList),
    ),
  );

  /** Ends the connections whose session has ended, or whose operator may use other assistants than before. */
  const check = async (): Promise<void> => {
    const all = [...connected];
    const found = await findSignedIn(all.map(({ session }) => session));
    unanswered = 0;
    for (const [at, { subscriber, operator }] of all.entries()) {
      const now = found[at] ?? null;
      if (now && sameAccess(now, operator)) continue;
      if (now) subscriber.reset(null);
      subscriber.end();
    }
  };
  let checking = false;
  const checkOnce = async (): Promise<void> => {
    if (checking) return;
    checking = true;
    await check().catch((cause: unknown) => logger.debug({ err: cause }, 'live connections could not be checked'));
    checking = false;
  };
  const tick = (): void => {
    unanswered += 1;
    if (unanswered > UNANSWERED_MAX) endAll();
    // The check is repeated even then. Until it succeeds, new connections are ended too.
    void checkOnce();
  };

  const endAll = (): void => {
    for (const { subscriber } of connected) subscriber.end();
  };
  draining.addEventListener('abort', endAll, { once: true });

  const startTimers = (): void => {
    unanswered = 0;
    timers = [setInterval(tick, CHECK_EVERY_MS).unref(), setInterval(hub.keepAlive, COMMENT_EVERY_MS).unref()];
    presence.listen().catch((cause: unknown) => logger.warn({ err: cause }, 'presence is not known'));
  };
  const stopTimers = (): void => {
    for (const timer of timers) clearInterval(timer);
    presence.stopListening().catch(() => undefined);
  };

  return {
    announce: presence.announce,

    connect: async (sink, { operator, session, from }) => {
      const own = [...connected].filter((one) => one.operator.operatorId === operator.operatorId);
      if (own.length >= CONNECTIONS_MAX) throw tooMany();
      const subscriber = createSubscriber({ access: operator, sink });
      const one = { subscriber, session, operator, hasList: false };
      connected.add(one);
      if (connected.size === 1) startTimers();
      const disconnect = (): void => {
        if (connected.delete(one) && connected.size === 0) stopTimers();
      };
      try {
        const remove = await hub.add(subscriber, from);
        one.hasList = true;
        await sendPresence(presence.list(), [one]);
        return () => {
          remove();
          disconnect();
        };
      } catch (cause) {
        disconnect();
        throw cause;
      }
    },

    close: async () => {
      endAll();
      stopTimers();
      await hub.close();
    },
  };
};

/**
 * Reads the rows of these conversations, if they belong to these assistants. The rows have no read position, because
 * one row is sent to all operators.
 */
export const createReadRows =
  (inbox: Pick<InboxStore, 'readRows'>, readAssignees: ReadAssignees) =>
  async (keys: string[], assistantIds: string[] | null): Promise<LiveRow[]> => {
    const context = { assignees: await readAssignees(), now: serverDate(), readSeq: null };
    const rows: LiveRow[] = [];
    const slices = createSlices();
    for await (const one of inbox.readRows(keys, assistantIds)) {
      const { readSeq: _own, ...row } = toInboxRow(one, context);
      const { conversationId, assistantId } = row;
      rows.push({ conversationId, assistantId, json: JSON.stringify(row) });
      if (slices.isOver()) await slices.next();
    }
    return rows;
  };

/** Connections for the change stream, for the catch-ups, and for the commands that end them. */
const CONNECTIONS = 2 * CATCH_UPS;
const CONNECTED_WITHIN_MS = 800;

/** Assembles the live updates of one API process. They open nothing until a browser connects. */
export const openLiveUpdates = (
  { service, config, logger, lifecycle }: Module,
  { inbox, subscriber }: { inbox: Pick<Inbox, 'readAssignees'>; subscriber: RedisClient },
): LiveUpdates => {
  const { redis, partitions, aside } = service;
  const name = `${partitions.tags[0]}:presence`;
  const options = { timeoutMs: CONNECTED_WITHIN_MS, maxPoolSize: CONNECTIONS, silentAfterMs: FEED_SILENT_AFTER_MS };
  return createLiveUpdates({
    hub: createHub({
      connect: () => openMongo({ url: config.MONGODB_URL, ...options, aside: true }, logger),
      readRows: createReadRows(aside.conversations.inbox, inbox.readAssignees),
      logger,
    }),
    createPresence: (onChanges) => createPresence({ redis, subscriber, name, onChanges }),
    findSignedIn: createFindSignedIn(aside.mongo),
    draining: lifecycle.draining,
    logger,
  });
};
