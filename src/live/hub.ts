import type { Connection } from 'mongoose';
import type { Logger } from '../platform/logger.ts';
import { MISSED_MAX, readMissed } from './catch-up.ts';
import type { Changes } from './change-feed.ts';
import { createErasedIds } from './erased-ids.ts';
import { merge } from './recent-changes.ts';
import { createSerial } from './serial.ts';
import { openSource, type Source } from './source.ts';
import type { LiveRow, Subscriber } from './subscriber.ts';

const ROWS_AT_ONCE = 500;
/** How long the change stream stays open without a browser. */
const LINGER_MS = 10_000;

const POSITION = /^[0-9A-F]{18,1000}$/;

type Dependencies = {
  connection: Connection;
  /** Reads the rows of these keys, but only of these assistants. Null means all assistants. */
  readRows: (keys: string[], assistantIds: string[] | null) => Promise<LiveRow[]>;
  lingerMs?: number;
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
export const createHub = ({ connection, readRows, lingerMs = LINGER_MS, logger }: Dependencies) => {
  const subscribers = new Set<Subscriber>();
  const erasedIds = createErasedIds();
  const inTurn = createSerial();
  const oneCatchUp = createSerial();
  let source: Promise<Source> | null = null;
  let running: Source | null = null;
  let users = 0;
  let linger: NodeJS.Timeout | undefined;

  const publish = async ({ keys, erased, position }: Changes, to: Set<Subscriber>): Promise<void> => {
    for (const { conversationId } of erased) erasedIds.add(conversationId);
    // A browser that comes back gets the rows of what it missed when it joins.
    if (to.size === 0) return;
    const assistantIds = assistantsOf(to);
    for (let at = 0; at === 0 || at < keys.length; at += ROWS_AT_ONCE) {
      const some = keys.slice(at, at + ROWS_AT_ONCE);
      const isLast = at + ROWS_AT_ONCE >= keys.length;
      const read = some.length > 0 ? await readRows(some, assistantIds) : [];
      const rows = read.filter(({ conversationId }) => !erasedIds.has(conversationId));
      const batch = isLast ? { rows, erased, position } : { rows, erased: [], position: null };
      for (const subscriber of to) subscriber.send(batch);
    }
  };

  const open = async (): Promise<Source> => {
    const opened = await openSource({
      connection,
      inTurn,
      onChanges: (changes) => publish(changes, subscribers),
      onLost: (position) => {
        for (const subscriber of subscribers) subscriber.reset(position);
      },
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

  /** What the browser missed since `from`, or null if that is not known any more. */
  const missedSince = async ({ recent }: Source, from: string): Promise<Changes | null> => {
    if (!POSITION.test(from)) return null;
    if (from >= recent.oldest()) return { keys: [], erased: [], position: from };
    return oneCatchUp(() => readMissed(connection, from, recent.newest()));
  };

  const join = async (opened: Source, subscriber: Subscriber, missed: Changes | null): Promise<void> => {
    const { recent } = opened;
    const position = recent.newest();
    if (missed === null || missed.position < recent.oldest()) subscriber.reset(position);
    else {
      const all = merge([missed, recent.since(missed.position)], position);
      if (all.keys.length > MISSED_MAX) subscriber.reset(position);
      else await publish(all, new Set([subscriber]));
      subscriber.moveTo(position);
    }
    subscribers.add(subscriber);
  };

  return {
    /** Tells the browsers that the connection lives, and how far they have come. */
    keepAlive: (): void => {
      for (const subscriber of subscribers) subscriber.keepAlive(running?.recent.newest() ?? null);
    },

    /**
     * Adds a browser, and sends it what it missed since `from`. Without `from`, it gets only what changes from now on.
     * Returns the function that removes it.
     */
    add: async (subscriber: Subscriber, from: string | null): Promise<() => void> => {
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
        const missed = await missedSince(opened, from ?? opened.recent.newest());
        await inTurn(() => join(opened, subscriber, missed));
      } catch (cause) {
        remove();
        throw cause;
      }
      return remove;
    },

    close: async (): Promise<void> => {
      for (const subscriber of subscribers) subscriber.end();
      await stop();
    },
  };
};

export type Hub = ReturnType<typeof createHub>;
