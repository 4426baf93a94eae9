import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis, type RedisOptions } from 'ioredis';
import { withDeadline } from './deadline.ts';
import type { Logger } from './logger.ts';
import { watchSilence } from './redis-silence.ts';

/**
 * How a connection behaves while Redis is away, or silent: both are the same here. `api`: commands fail, so that a caller
 * hears 503 in time. `worker`: commands wait for Redis to return (BullMQ's blocking reads need it so), but not those of a
 * process that stops. `subscriber`: pub/sub only.
 */
export type RedisRole = 'api' | 'worker' | 'subscriber';

const FAILING_FAST = { enableOfflineQueue: false, maxRetriesPerRequest: 0 } as const;
const OPTIONS = {
  api: { ...FAILING_FAST, enableAutoPipelining: true },
  worker: { maxRetriesPerRequest: null, enableAutoPipelining: true },
  subscriber: { maxRetriesPerRequest: null, autoResubscribe: true },
} as const;

/** How long a server may leave a command without an answer. Behind `api` somebody waits who is to hear within a second. */
const SILENT_AFTER_MS = { api: 800, worker: 3_000, subscriber: 1_600 } as const;
/** A connection on which BullMQ waits for jobs: longer than it lets Redis block (10 s). */
const BLOCKED_FOR_MS = 13_000;
const QUIT_WITHIN_MS = 500;
const GONE_CHECK_MS = 250;

const retryStrategy = (attempt: number): number => Math.min(50 * 2 ** Math.min(attempt, 5), 1000);

/** A copy is what BullMQ blocks on while it waits for jobs. */
class WatchedRedis extends Redis {
  override duplicate(override?: Partial<RedisOptions>): Redis {
    const copy = super.duplicate(override);
    watchSilence(copy, { silentAfterMs: () => BLOCKED_FOR_MS, pings: false });
    return copy;
  }
}

type Opening = {
  url: string;
  role: RedisRole;
  timeoutMs?: number;
  /** From then on nothing waits for Redis to return, so that a process can stop without it. */
  draining?: AbortSignal;
};

/** Opens one connection; resolves once it is ready, or rejects after `timeoutMs` without it. */
export const openRedis = async (
  { url, role, timeoutMs = 10_000, draining }: Opening,
  logger: Logger,
): Promise<Redis> => {
  const options = { ...OPTIONS[role], retryStrategy, connectTimeout: 2000, lazyConnect: true };
  const redis = new WatchedRedis(url, options);
  let silentAfterMs: number = SILENT_AFTER_MS[role];
  watchSilence(redis, { silentAfterMs: () => silentAfterMs, pings: role === 'subscriber' });
  const failFast = (): void => {
    Object.assign(redis.options, FAILING_FAST);
    silentAfterMs = SILENT_AFTER_MS.api;
  };
  if (draining?.aborted) failFast();
  draining?.addEventListener('abort', failFast, { once: true });
  let lastMessage = '';
  redis.on('error', (cause: Error) => {
    // One line per kind of failure, not one per attempt to reconnect.
    if (cause.message !== lastMessage) logger.warn({ err: cause, role }, 'redis connection failed');
    lastMessage = cause.message;
  });
  redis.on('ready', () => {
    if (lastMessage !== '') logger.info({ role }, 'redis is available again');
    lastMessage = '';
  });
  const ready = new Promise<void>((resolve) => redis.once('ready', resolve));
  redis.connect().catch(() => undefined); // the retry strategy goes on; `ready` or the time decides
  try {
    await withDeadline(ready, timeoutMs, {
      late: () => new Error(`Redis did not answer within ${timeoutMs} ms`),
    });
  } catch (cause) {
    redis.disconnect();
    throw cause;
  }
  // BullMQ's workers wait for jobs on a copy of this connection. One that is asked to connect has a single try, after which
  // its worker hears of no job for ever; one that connects by itself tries until it can.
  redis.options.lazyConnect = false;
  return redis;
};

/** `quit` where the server still listens, a hard cut where it does not. */
export const closeRedis = async (redis: Redis): Promise<void> => {
  if (redis.status !== 'ready') return redis.disconnect();
  await withDeadline(redis.quit(), QUIT_WITHIN_MS).catch(() => redis.disconnect());
};

/** Resolves once Redis does not answer two pings in a row. For a connection that fails fast: there each ping has an end. */
export const whenUnavailable = async (redis: Redis, { signal }: { signal: AbortSignal }): Promise<void> => {
  for (let missed = 0; missed < 2 && !signal.aborted; ) {
    await sleep(GONE_CHECK_MS, undefined, { signal, ref: false }).catch(() => undefined);
    const answers = redis.status === 'ready' && (await redis.ping().then(Boolean, () => false));
    missed = answers ? 0 : missed + 1;
  }
};

/**
 * Redis keys of one partition share one hash tag, so that a partition can live on any node of a cluster and one Lua call
 * may touch several of its keys. A conversation's partition follows from its `_id` alone.
 */
export type Partitions = {
  count: number;
  tags: string[];
  tagOf: (conversationKey: string) => string;
  indexOf: (conversationKey: string) => number;
};

export const createPartitions = (prefix: string, count: number): Partitions => {
  const tags = Array.from({ length: count }, (_, index) => `{${prefix}-${index}}`);
  const indexOf = (key: string): number =>
    count === 1 ? 0 : createHash('sha1').update(key).digest().readUInt32BE(0) % count;
  return { count, tags, indexOf, tagOf: (key) => tags[indexOf(key)] as string };
};
