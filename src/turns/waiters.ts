import { setImmediate as nextRound } from 'node:timers/promises';
import * as z from 'zod';
import { ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import type { Message, RecentTurn, TurnRef } from '../conversations/conversation.ts';
import type { FoundTurn, TurnConversation } from '../conversations/store.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/logger.ts';
import { TIMING, type Timing } from '../platform/process/time-limits.ts';
import type { Partitions } from '../platform/redis/queue.ts';
import type { RedisClient } from '../platform/redis/redis.ts';

const MARK = `for _, key in ipairs(KEYS) do redis.call('SET', key, '1', 'PX', ARGV[1]) end`;

type Scripts = { parleyDelivered: (...args: (string | number)[]) => Promise<unknown> };

/** Records which replies have reached a caller. If Redis loses a record, the stored reply may be sent again. */
export type DeliveredReplies = {
  /**
   * Records a delivery. Call this after a response was written. Does not wait for Redis. The records of one tick are
   * written with one command per partition.
   */
  mark: (turn: TurnRef) => void;

  /** Returns the ids of those turns whose replies are recorded as delivered. Empty while Redis is unavailable. */
  find: (turns: TurnRef[]) => Promise<Set<string>>;
};

export const createDeliveredReplies = (redis: RedisClient, partitions: Partitions): DeliveredReplies => {
  redis.defineCommand('parleyDelivered', { lua: MARK });
  const scripts = redis as unknown as Scripts; // defined just above
  const keyOf = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:delivered:${turnId}`;

  let gathered: TurnRef[] = [];
  const flush = (): void => {
    const byPartition = Map.groupBy(gathered, ({ key }) => partitions.indexOf(key));
    gathered = [];
    for (const turns of byPartition.values()) {
      scripts.parleyDelivered(turns.length, ...turns.map(keyOf), TIMING.deliveredKeptMs).catch(() => undefined);
    }
  };

  return {
    mark: (turn) => {
      if (gathered.length === 0) setImmediate(flush);
      gathered.push(turn);
    },

    find: async (turns) => {
      const values = await Promise.all(turns.map((turn) => redis.get(keyOf(turn)).catch(() => null)));
      return new Set(turns.filter((_, index) => values[index] !== null).map(({ turnId }) => turnId));
    },
  };
};

/** A part of a reply, published by a worker. The part follows the first `from` characters of the reply. */
const Delta = z.object({
  turnId: z.string(),
  attempt: z.int().min(1),
  from: z.int().min(0),
  delta: z.string(),
});
type Delta = z.infer<typeof Delta>;

/** The known beginning of a reply, and the attempt that wrote it. */
export type Progress = { attempt: number; text: string };

export const NOTHING_YET: Progress = { attempt: 1, text: '' };

/**
 * Adds a delta. A higher attempt starts from an empty text. A delta that is late, repeated or after a gap changes
 * nothing.
 */
const advance = (known: Progress, { attempt, from, delta }: Delta): Progress => {
  if (attempt < known.attempt) return known;
  const text = attempt === known.attempt ? known.text : '';
  if (from > text.length || from + delta.length <= text.length) return known;
  return { attempt, text: text + delta.slice(text.length - from) };
};

/**
 * The progress with the whole reply, to be sent last. If the reply does not continue the text that was sent, because of
 * a fall-back or a handoff, the whole reply is sent under a new attempt (docs/contract.md, Streaming).
 */
export const complete = (sent: Progress, reply: string): Progress =>
  reply.startsWith(sent.text) ? { ...sent, text: reply } : { attempt: sent.attempt + 1, text: reply };

const SUBSCRIBED_WITHIN_MS = 10_000;

const Reply = z.discriminatedUnion('outcome', [
  z.object({
    outcome: z.literal('answered'),
    reply: z.string(),
    suggestedActions: z.array(SuggestedAction).optional(),
    sources: z.array(ReplySource).optional(),
    messageId: z.string(),
    mergedInto: z.string().optional(),
  }),
  z.object({ outcome: z.literal('failed') }),
  z.object({ outcome: z.literal('erased') }),
]);

/** How a wait ends: with the chat response, a failed turn, or an erased conversation. */
export type Reply = z.infer<typeof Reply>;
export type AnsweredReply = Extract<Reply, { outcome: 'answered' }>;

/** What a caller gets of a stored message. */
export const answeredWith = ({ content, messageId, suggestedActions, sources }: Message): AnsweredReply => ({
  outcome: 'answered',
  reply: content,
  messageId,
  ...(suggestedActions && { suggestedActions }),
  ...(sources && { sources }),
});

const Published = z.object({ turnId: z.string(), conversationId: z.string(), reply: Reply });
type Published = z.infer<typeof Published>;

const PublishedBatch = z.array(z.union([Published, Delta]));

/** The end of a channel's name if its callers want a stream. Only such channels get the deltas of a reply. */
const STREAM_SUFFIX = ':stream';
export const streamChannels = (channels: string[]): string[] =>
  channels.filter((channel) => channel.endsWith(STREAM_SUFFIX));

export type Waiter = {
  turnId: string;
  reply: Promise<Published>;
  /** Call this once the turn is accepted. From then on, the store is checked if no reply is published. */
  arm: () => void;
  cancel: () => void;
};

type Dependencies = {
  subscriber: RedisClient;
  hear: Publisher['hear'];
  /** This process's own channel. */
  channel: string;
  /** True if the turn is pending. Concurrent calls share one read. */
  isPending: (turn: TurnRef) => Promise<boolean>;
  findTurn: (turnId: string) => Promise<FoundTurn | null>;
  storedReply: (conversation: TurnConversation, turn: RecentTurn) => Promise<Reply>;
  timing: Timing;
  logger: Logger;
};

type Entry = {
  key: string;
  since: number;
  armed: boolean;
  resolve: (published: Published) => void;
  onProgress: ((progress: Progress) => void) | null;
};

/**
 * Publishes replies and their deltas to the channels of the callers who wait for them. Everything that is published to
 * a channel in one tick becomes one message. Never throws: if publishing fails, waiting callers still
 * get their reply, because the store is also checked for them.
 */
export type Publish = (channels: string[], published: Published | Delta) => void;

export type Publisher = {
  publish: Publish;
  /** What is published to a channel of this process reaches it without Redis. */
  hear: (channel: string, listener: (published: (Published | Delta)[]) => void) => void;
};

export const createPublisher = (redis: RedisClient): Publisher => {
  const listeners = new Map<string, (published: (Published | Delta)[]) => void>();
  let gathered = new Map<string, (Published | Delta)[]>();

  const flush = (): void => {
    for (const [channel, published] of gathered) {
      const listener = listeners.get(channel);
      if (listener) listener(published);
      else redis.publish(channel, JSON.stringify(published)).catch(() => undefined);
    }
    gathered = new Map();
  };

  return {
    publish: (channels, published) => {
      if (channels.length === 0) return;
      if (gathered.size === 0) setImmediate(flush);
      for (const channel of channels) {
        const known = gathered.get(channel);
        if (known) known.push(published);
        else gathered.set(channel, [published]);
      }
    },

    hear: (channel, listener) => void listeners.set(channel, listener),
  };
};

/** Parses JSON. Invalid JSON gives undefined, because an error thrown in a listener would end the process. */
const parseJson = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

/**
 * Manages the callers of this process that wait for a reply. Pub/sub may lose a message, and a worker may die after the
 * commit and before it publishes. So the store is checked for callers who have waited for `checkStoreAfterMs`.
 */
export type Replies = {
  channel: string;
  streamChannel: string;

  /**
   * Waits for the reply to a turn. Call this before the turn is accepted, because the reply may arrive immediately
   * afterwards. `onProgress` gets the known text.
   */
  watch: (turn: TurnRef, onProgress?: ((progress: Progress) => void) | null) => Waiter;

  close: () => void;
};

/**
 * How many callers of one turn in a process get its reply in pieces, because each piece is written for each of them. The
 * others get it whole.
 */
const STREAMS_OF_TURN = 4;
/** How many further callers of turns, beside the first of each, are answered in a turn of the loop. */
const ANSWERED_AT_ONCE = 20;

export const openReplies = async ({
  subscriber,
  hear,
  channel,
  isPending,
  findTurn,
  storedReply,
  timing,
  logger,
}: Dependencies): Promise<Replies> => {
  const waiting = new Map<string, Set<Entry>>();
  /** The known text of each reply that a caller waits for. */
  const inProgress = new Map<string, Progress>();

  /** The further callers of turns, who wait for their answers: a turn may have thousands. Turns take turns. */
  const lines = new Set<() => boolean>();
  let isAnswering = false;

  const answerAll = async (): Promise<void> => {
    isAnswering = true;
    while (lines.size > 0) {
      await nextRound();
      let left = ANSWERED_AT_ONCE;
      for (const answerNext of lines) {
        lines.delete(answerNext);
        if (answerNext()) lines.add(answerNext); // behind the others
        left -= 1;
        if (left === 0) break;
      }
    }
    isAnswering = false;
  };

  const resolveWaiters = (published: Published): void => {
    const [first, ...others] = waiting.get(published.turnId) ?? [];
    waiting.delete(published.turnId);
    inProgress.delete(published.turnId);
    first?.resolve(published);
    if (others.length === 0) return;
    let answered = 0;
    lines.add(() => {
      others[answered]?.resolve(published);
      answered += 1;
      return answered < others.length;
    });
    if (!isAnswering) void answerAll();
  };

  const addDelta = (delta: Delta): void => {
    const entries = waiting.get(delta.turnId);
    if (!entries) return;
    const known = inProgress.get(delta.turnId) ?? NOTHING_YET;
    const progress = advance(known, delta);
    if (progress === known) return;
    inProgress.set(delta.turnId, progress);
    for (const { onProgress } of entries) onProgress?.(progress);
  };

  /** Under load many turns wait, nearly all of them pending, so this is checked first and for all in one read. */
  const lookUp = async ({ key, turnId }: TurnRef): Promise<void> => {
    if (await isPending({ key, turnId })) return;
    const found = await findTurn(turnId);
    if (found?.state === 'pending') return;
    if (!found) return resolveWaiters({ turnId, conversationId: '', reply: { outcome: 'erased' } });
    const reply = await storedReply(found.conversation, found.turn);
    resolveWaiters({ turnId, conversationId: found.conversation.conversationId, reply });
  };

  /** The turns that are being looked up. No second look waits behind a slow one. */
  const lookedUp = new Set<string>();

  const lookUpOld = (): void => {
    const now = performance.now();
    for (const [turnId, entries] of waiting) {
      const due = [...entries].filter(({ armed, since }) => armed && now - since > timing.checkStoreAfterMs);
      for (const entry of due) entry.since = now;
      if (due.length === 0 || lookedUp.has(turnId)) continue;
      lookedUp.add(turnId);
      lookUp({ key: due[0]?.key ?? '', turnId })
        .catch((cause: unknown) => logger.debug({ err: cause, turnId }, 'a waiting turn could not be looked up'))
        .finally(() => lookedUp.delete(turnId));
    }
  };

  const receive = (all: (Published | Delta)[]): void => {
    for (const published of all) {
      if ('reply' in published) resolveWaiters(published);
      else addDelta(published);
    }
  };

  const streamChannel = `${channel}${STREAM_SUFFIX}`;
  for (const own of [channel, streamChannel]) hear(own, receive);
  subscriber.on('message', (from, text) => {
    if (from !== channel && from !== streamChannel) return;
    const parsed = PublishedBatch.safeParse(parseJson(text));
    if (parsed.success) receive(parsed.data);
    else logger.error({ issues: parsed.error.issues.length }, 'malformed replies were published');
  });
  await withDeadline(subscriber.subscribe(channel, streamChannel), SUBSCRIBED_WITHIN_MS);
  const timer = setInterval(lookUpOld, timing.checkStoreEveryMs);

  return {
    channel,
    streamChannel,

    watch: ({ key, turnId }, onProgress = null) => {
      const { promise, resolve } = Promise.withResolvers<Published>();
      const entries = waiting.get(turnId) ?? new Set<Entry>();
      const streams = onProgress ? [...entries].filter((one) => one.onProgress !== null).length : 0;
      const inPieces = streams < STREAMS_OF_TURN ? onProgress : null;
      const entry: Entry = { key, since: performance.now(), armed: false, resolve, onProgress: inPieces };
      entries.add(entry);
      waiting.set(turnId, entries);
      const known = inProgress.get(turnId);
      if (known) inPieces?.(known);
      return {
        turnId,
        reply: promise,
        arm: () => {
          entry.armed = true;
        },
        cancel: () => {
          entries.delete(entry);
          if (entries.size > 0 || waiting.get(turnId) !== entries) return;
          waiting.delete(turnId);
          inProgress.delete(turnId);
        },
      };
    },

    close: () => clearInterval(timer),
  };
};
