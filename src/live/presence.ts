import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import { serverNow } from '../platform/process/clock.ts';
import type { RedisClient } from '../platform/redis/redis.ts';
import type { LivePresence } from './subscriber.ts';

export const PRESENT_STATES = ['reading', 'writing'] as const;
/** A browser repeats its state before this time is over. */
const EXPIRES_MS = 15_000;
const EXPIRE_CHECK_MS = 1_000;
/** What changes within this time after something was told is told together. */
const GATHER_MS = 200;

const Present = z.object({
  conversationId: z.string(),
  assistantId: z.string(),
  operatorId: z.string(),
  email: z.string(),
  state: z.enum(PRESENT_STATES),
});
const Announced = z.object({ ...Present.shape, state: z.enum([...PRESENT_STATES, 'gone']) });

/** Says that an operator reads a conversation or writes in it now. */
export type Presence = z.infer<typeof Announced>;

const parse = (text: string): Presence | null => {
  try {
    return Announced.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
};

type Told = LivePresence & { state: Presence['state'] };

const toTold = ({ conversationId, assistantId, operatorId, email, state }: Presence): Told => {
  const json = JSON.stringify({ conversationId, operatorId, email, state });
  return { operatorId, assistantId, state, json };
};

const idOf = ({ conversationId, operatorId }: Presence): string => `${conversationId} ${operatorId}`;

type Dependencies = {
  /** Runs the commands. */
  redis: RedisClient;
  /** Listens to the channel, so it can run no other command. */
  subscriber: RedisClient;
  /** The name of two things in Redis: the channel, and the sorted set of those present. */
  name: string;
  /** Gets the last state of each that has changed. It gets no more before it is done. */
  onChanges: (changes: LivePresence[]) => Promise<unknown>;
};

/**
 * Which operators read or write in which conversation. Each announcement is published, and kept in a sorted set until
 * it expires, so that a process that starts to listen learns who is present.
 */
export type PresenceBoard = {
  announce: (presence: Presence) => Promise<void>;

  /** Starts to listen. If it cannot read who is present, it tries again every second. */
  listen: () => Promise<void>;

  stopListening: () => Promise<void>;

  /** Who is present, as `onChanges` was told last. */
  list: () => LivePresence[];
};

export const createPresence = ({ redis, subscriber, name, onChanges }: Dependencies): PresenceBoard => {
  const present = new Map<string, { presence: Presence; until: number }>();
  /** Who is present as was told, and what has changed since. */
  const [told, changed] = [new Map<string, Told>(), new Map<string, Told>()];
  let isTelling = false;
  let listening = false;
  /** True if the read of who was present must be repeated. */
  let unread = false;
  let timer: NodeJS.Timeout | undefined;

  /** Operators together report hundreds of changes a second, and each is written to hundreds of browsers. */
  const tell = async (): Promise<void> => {
    if (isTelling) return;
    isTelling = true;
    await Promise.resolve(); // what is noted in one step is told together
    while (changed.size > 0) {
      const changes = [...changed].filter(([id, { state }]) => (told.get(id)?.state ?? 'gone') !== state);
      changed.clear();
      for (const [id, one] of changes)
        if (one.state === 'gone') told.delete(id);
        else told.set(id, one);
      await Promise.allSettled([onChanges(changes.map(([, one]) => one)), sleep(GATHER_MS, undefined, { ref: false })]);
    }
    isTelling = false;
  };
  const note = (presence: Presence, until: number): void => {
    const id = idOf(presence);
    const known = present.get(id);
    if (presence.state === 'gone') present.delete(id);
    else present.set(id, { presence, until });
    if ((known?.presence.state ?? 'gone') === presence.state) return;
    changed.set(id, toTold(presence));
    void tell();
  };
  const expire = (): void => {
    const now = serverNow();
    for (const { presence, until } of present.values()) if (until <= now) note({ ...presence, state: 'gone' }, 0);
  };
  /** Subscribes before it reads who is present, so that no announcement is missed. */
  const readPresent = async (): Promise<void> => {
    unread = false;
    try {
      await subscriber.subscribe(name);
      const stored = await redis.zrange(name, serverNow(), '+inf', 'BYSCORE', 'WITHSCORES');
      for (let at = 0; listening && at < stored.length; at += 2) {
        const presence = parse(stored[at] ?? '');
        if (presence && !present.has(idOf(presence))) note(presence, Number(stored[at + 1]));
      }
    } catch (cause) {
      unread = true;
      throw cause;
    }
  };
  const tick = (): void => {
    expire();
    if (unread) readPresent().catch(() => undefined); // the first failure was reported, and the next tick tries again
  };
  const hear = (channel: string, text: string): void => {
    const presence = channel === name ? parse(text) : null;
    if (presence) note(presence, serverNow() + EXPIRES_MS);
  };

  return {
    announce: async (presence) => {
      const now = serverNow();
      const [id, text] = [{ ...presence, state: undefined }, JSON.stringify(presence)];
      const others = PRESENT_STATES.map((state) => JSON.stringify({ ...id, state }));
      const change = redis
        .multi()
        .zremrangebyscore(name, '-inf', now)
        .zrem(name, ...others);
      if (presence.state !== 'gone') change.zadd(name, now + EXPIRES_MS, text).pexpire(name, EXPIRES_MS);
      await change.publish(name, text).exec();
    },

    listen: async () => {
      if (listening) return;
      listening = true;
      subscriber.on('message', hear); // replies come by it too, so only while somebody looks
      timer = setInterval(tick, EXPIRE_CHECK_MS).unref();
      await readPresent();
    },

    stopListening: async () => {
      listening = false;
      subscriber.off('message', hear);
      clearInterval(timer);
      for (const states of [present, told, changed]) states.clear();
      await subscriber.unsubscribe(name);
    },

    list: () => [...told.values()],
  };
};
