import type { Operator } from '../operators/operator.ts';
import type { FindSignedIn, SessionRef } from '../operators/access.ts';
import { ApiError } from '../process/errors.ts';
import type { Logger } from '../process/logger.ts';
import type { Hub } from './hub.ts';
import type { Presence, PresenceBoard } from './presence.ts';
import { createSubscriber, type EventSink, type Subscriber } from './subscriber.ts';

const CHECK_EVERY_MS = 500;
/** Without an answer of MongoDB for this time, nobody knows who is still signed in, so all connections end. */
const UNCHECKED_MAX_MS = 5_000;
const COMMENT_EVERY_MS = 15_000;
const CONNECTIONS_MAX = 10;

type Connected = { subscriber: Subscriber; session: SessionRef; operator: Operator };
type Dependencies = {
  hub: Hub;
  createPresence: (onChange: (presence: Presence) => void) => PresenceBoard;
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

const eventOf = ({ conversationId, operatorId, email, state }: Presence): string =>
  JSON.stringify({ conversationId, operatorId, email, state });

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
  let checkedAt = 0;

  const presence = createPresence((changed) => {
    for (const { subscriber, operator } of connected)
      if (operator.operatorId !== changed.operatorId) subscriber.sendPresence(changed, eventOf(changed));
  });

  /** Ends the connections whose session has ended, or whose operator may use other assistants than before. */
  const check = async (): Promise<void> => {
    const all = [...connected];
    const found = await findSignedIn(all.map(({ session }) => session));
    checkedAt = performance.now();
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
    if (performance.now() - checkedAt > UNCHECKED_MAX_MS) endAll();
    // Also then, because new connections would be ended too until a check succeeds.
    void checkOnce();
  };

  const endAll = (): void => {
    for (const { subscriber } of connected) subscriber.end();
  };
  draining.addEventListener('abort', endAll, { once: true });

  const startTimers = (): void => {
    checkedAt = performance.now();
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
      const one = { subscriber, session, operator };
      connected.add(one);
      if (connected.size === 1) startTimers();
      const disconnect = (): void => {
        if (connected.delete(one) && connected.size === 0) stopTimers();
      };
      try {
        const remove = await hub.add(subscriber, from);
        for (const other of presence.list())
          if (other.operatorId !== operator.operatorId) subscriber.sendPresence(other, eventOf(other));
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
