import * as z from 'zod';
import { serverNow } from '../platform/process/clock.ts';
import type { RedisClient } from '../platform/redis/redis.ts';

export const PRESENT_STATES = ['reading', 'writing'] as const;
/** A browser repeats its state before this time is over. */
const EXPIRES_MS = 15_000;
const EXPIRE_CHECK_MS = 1_000;

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

const idOf = ({ conversationId, operatorId }: Presence): string => `${conversationId} ${operatorId}`;

type Dependencies = {
  /** Runs the commands. */
  redis: RedisClient;
  /** Listens to the channel, so it can run no other command. */
  subscriber: RedisClient;
  /** The name of two things in Redis: the channel, and the sorted set of those present. */
  name: string;
  onChange: (presence: Presence) => void;
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
  list: () => Presence[];
};

export const createPresence = ({ redis, subscriber, name, onChange }: Dependencies): PresenceBoard => {
  const present = new Map<string, { presence: Presence; until: number }>();
  let listening = false;
  /** True if the read of who was present must be repeated. */
  let unread = false;
  let timer: NodeJS.Timeout | undefined;

  const note = (presence: Presence, until: number): void => {
    const known = present.get(idOf(presence));
    if (presence.state === 'gone') present.delete(idOf(presence));
    else present.set(idOf(presence), { presence, until });
    if ((known?.presence.state ?? 'gone') !== presence.state) onChange(presence);
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
      present.clear();
      await subscriber.unsubscribe(name);
    },

    list: () => [...present.values()].map(({ presence }) => presence),
  };
};
