import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis, type RedisOptions } from 'ioredis';
import { withDeadline } from './deadline.ts';
import type { Logger } from './logger.ts';
import { sentinelOptionsOf } from './redis-address.ts';
import { watchSilence } from './redis-silence.ts';

/**
 * How a connection behaves while Redis is unavailable or silent. `api`: commands fail, so that a caller gets 503 in
 * time. `worker`: commands wait for Redis, as BullMQ's blocking reads require, until the process stops. `subscriber`:
 * pub/sub only.
 */
export type RedisRole = 'api' | 'worker' | 'subscriber';

const FAILING_FAST = { enableOfflineQueue: false, maxRetriesPerRequest: 0 } as const;
const OPTIONS = {
  api: FAILING_FAST,
  worker: { maxRetriesPerRequest: null },
  subscriber: { maxRetriesPerRequest: null, autoResubscribe: true },
} as const;

/**
 * How long a server may leave a command unanswered. Callers of a process with the role `api` must get an answer within
 * a second.
 */
const SILENT_AFTER_MS = { api: 800, worker: 3_000, subscriber: 1_600 } as const;
/**
 * How long the connection on which BullMQ waits for jobs may be silent. This limit must exceed BullMQ's longest wait
 * (10 s).
 */
const BLOCKED_FOR_MS = 13_000;
const QUIT_WITHIN_MS = 500;
const GONE_CHECK_MS = 250;

const retryStrategy = (attempt: number): number => Math.min(50 * 2 ** Math.min(attempt, 5), 1000);

type Corked = Redis['stream'];

/**
 * Sends the commands of one turn of the event loop in one write. ioredis' auto-pipelining does the same, but copies
 * every script of the connection, which costs more than the commands. BullMQ waits for jobs on a duplicate of the
 * connection, so duplicates are watched for silence too.
 */
class WatchedRedis extends Redis {
  private corked: Corked | null = null;

  override sendCommand(...[command, stream]: Parameters<Redis['sendCommand']>): unknown {
    if (this.corked === null && this.status === 'ready') {
      const own = this.stream;
      this.corked = own;
      own.cork();
      setImmediate(() => {
        this.corked = null;
        own.uncork();
      });
    }
    return super.sendCommand(command, stream);
  }

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
  /** After this signal, commands fail instead of waiting, so that a process can stop while Redis is unavailable. */
  draining?: AbortSignal;
};

/** Opens one connection, directly or by sentinels (redis-address.ts). Resolves once the connection is ready, or rejects after `timeoutMs`. */
export const openRedis = async (
  { url, role, timeoutMs = 10_000, draining }: Opening,
  logger: Logger,
): Promise<Redis> => {
  const options = { ...OPTIONS[role], retryStrategy, connectTimeout: 2000, lazyConnect: true };
  const sentinels = sentinelOptionsOf(url);
  const redis = sentinels ? new WatchedRedis({ ...options, ...sentinels }) : new WatchedRedis(url, options);
  let silentAfterMs: number = SILENT_AFTER_MS[role];
  watchSilence(redis, { silentAfterMs: () => silentAfterMs, pings: role === 'subscriber' });
  const failFast = (): void => {
    Object.assign(redis.options, FAILING_FAST);
    silentAfterMs = SILENT_AFTER_MS.api;
  };
  if (draining?.aborted) failFast();
  draining?.addEventListener('abort', failFast, { once: true });
  let lastMessage = '';
  let lastFailure: Error | undefined;
  redis.on('error', (cause: Error) => {
    lastFailure = cause;
    // Logs one line per kind of failure instead of one per reconnect.
    if (cause.message !== lastMessage) logger.warn({ err: cause, role }, 'redis connection failed');
    lastMessage = cause.message;
  });
  redis.on('ready', () => {
    if (lastMessage !== '') logger.info({ role }, 'redis is available again');
    lastMessage = '';
  });
  const ready = new Promise<void>((resolve) => redis.once('ready', resolve));
  redis.connect().catch(() => undefined); // the retry strategy continues; `ready` or the deadline decides
  try {
    await withDeadline(ready, timeoutMs, {
      late: () => new Error(`Redis did not answer within ${timeoutMs} ms`, { cause: lastFailure }),
    });
  } catch (cause) {
    redis.disconnect();
    throw cause;
  }
  // BullMQ's workers wait for jobs on a duplicate of this connection, which copies its options. With `lazyConnect`, the
  // duplicate would try to connect only once, and after a failure its worker would get no more jobs.
  redis.options.lazyConnect = false;
  return redis;
};

/** Sends `quit` if the server answers. Otherwise disconnects. */
export const closeRedis = async (redis: Redis): Promise<void> => {
  if (redis.status !== 'ready') return redis.disconnect();
  await withDeadline(redis.quit(), QUIT_WITHIN_MS).catch(() => redis.disconnect());
};

/**
 * Resolves when Redis has not answered two pings in a row. Use this only with a connection whose commands fail fast,
 * because every ping must end.
 */
export const whenUnavailable = async (redis: Redis, { signal }: { signal: AbortSignal }): Promise<void> => {
  for (let missed = 0; missed < 2 && !signal.aborted; ) {
    await sleep(GONE_CHECK_MS, undefined, { signal, ref: false }).catch(() => undefined);
    const answers = redis.status === 'ready' && (await redis.ping().then(Boolean, () => false));
    missed = answers ? 0 : missed + 1;
  }
};

/**
 * All Redis keys of a partition share a hash tag. So a partition is stored on one node of a cluster, and one Lua call
 * may use several of its keys. A conversation's partition depends only on its `_id`.
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
