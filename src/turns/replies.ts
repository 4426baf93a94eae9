import type { Redis } from 'ioredis';
import * as z from 'zod';
import { SuggestedAction } from '../assistants/suggested-action.ts';
import type { RecentTurn, StoredConversation } from '../conversations/conversation.ts';
import type { FoundTurn } from '../conversations/store.ts';
import type { Logger } from '../platform/logger.ts';

const LOOK_AFTER_MS = 2_000;
const LOOK_EVERY_MS = 500;

const Reply = z.discriminatedUnion('outcome', [
  z.object({
    outcome: z.literal('answered'),
    reply: z.string(),
    suggestedActions: z.array(SuggestedAction).optional(),
    messageId: z.string(),
  }),
  z.object({ outcome: z.literal('failed') }),
  z.object({ outcome: z.literal('erased') }),
]);

/** What ends a wait: the chat response, a turn that failed by our fault, or a conversation erased meanwhile. */
export type Reply = z.infer<typeof Reply>;

const Published = z.object({ turnId: z.string(), conversationId: z.string(), reply: Reply });
export type Published = z.infer<typeof Published>;

export type Waiter = {
  turnId: string;
  reply: Promise<Published>;
  /** The turn is known to be accepted: from now on the store is asked when Redis stays silent. */
  arm: () => void;
  cancel: () => void;
};

type Dependencies = {
  subscriber: Redis;
  /** This process's own channel. */
  channel: string;
  findTurn: (turnId: string) => Promise<FoundTurn | null>;
  storedReply: (conversation: StoredConversation, turn: RecentTurn) => Promise<Reply>;
  logger: Logger;
};

type Entry = { since: number; armed: boolean; resolve: (published: Published) => void };

/**
 * Publishes committed replies to the channels of those who wait for them. Replies of one turn of the event loop to one
 * channel are one message: a batch of commits ends together. Never throws; waiters look into the store.
 */
export const createPublisher = (redis: Redis) => {
  let gathered = new Map<string, Published[]>();

  const flush = (): void => {
    for (const [channel, published] of gathered) {
      redis.publish(channel, JSON.stringify(published)).catch(() => undefined);
    }
    gathered = new Map();
  };

  return (channels: string[], published: Published): void => {
    if (gathered.size === 0) setImmediate(flush);
    for (const channel of channels) {
      const known = gathered.get(channel);
      if (known) known.push(published);
      else gathered.set(channel, [published]);
    }
  };
};

/**
 * Callers of this process that wait for a reply. Pub/sub may lose a message and a worker may die between commit and
 * publish, so waiters older than 2 s look into the store.
 */
export const openReplies = async ({ subscriber, channel, findTurn, storedReply, logger }: Dependencies) => {
  const waiting = new Map<string, Set<Entry>>();

  const settle = (published: Published): void => {
    const entries = waiting.get(published.turnId);
    waiting.delete(published.turnId);
    for (const { resolve } of entries ?? []) resolve(published);
  };

  const look = async (turnId: string): Promise<void> => {
    const found = await findTurn(turnId);
    if (found?.state === 'waiting') return;
    if (!found) return settle({ turnId, conversationId: '', reply: { outcome: 'erased' } });
    const reply = await storedReply(found.conversation, found.turn);
    settle({ turnId, conversationId: found.conversation.conversationId, reply });
  };

  const lookAtOld = (): void => {
    const now = performance.now();
    for (const [turnId, entries] of waiting) {
      const due = [...entries].filter(({ armed, since }) => armed && now - since > LOOK_AFTER_MS);
      if (due.length === 0) continue;
      for (const entry of due) entry.since = now;
      look(turnId).catch((cause: unknown) =>
        logger.debug({ err: cause, turnId }, 'a waiting turn could not be looked up'),
      );
    }
  };

  subscriber.on('message', (_channel, text) => {
    const parsed = z.array(Published).safeParse(JSON.parse(text));
    if (parsed.success) for (const published of parsed.data) settle(published);
    else logger.error({ issues: parsed.error.issues.length }, 'malformed replies were published');
  });
  await subscriber.subscribe(channel);
  const timer = setInterval(lookAtOld, LOOK_EVERY_MS);

  return {
    channel,

    /** Register before the turn is accepted: the reply may come first. */
    watch: (turnId: string): Waiter => {
      const { promise, resolve } = Promise.withResolvers<Published>();
      const entry: Entry = { since: performance.now(), armed: false, resolve };
      const entries = waiting.get(turnId) ?? new Set<Entry>();
      entries.add(entry);
      waiting.set(turnId, entries);
      return {
        turnId,
        reply: promise,
        arm: () => {
          entry.armed = true;
        },
        cancel: () => {
          entries.delete(entry);
          if (entries.size === 0 && waiting.get(turnId) === entries) waiting.delete(turnId);
        },
      };
    },

    close: (): void => clearInterval(timer),
  };
};

export type Replies = Awaited<ReturnType<typeof openReplies>>;
