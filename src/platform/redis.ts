import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import type { Logger } from './logger.ts';

/**
 * How a connection behaves while Redis is away. `api`: commands fail at once, so that a caller hears 503 in time.
 * `worker`: commands wait for Redis to return (BullMQ's blocking reads need it so). `subscriber`: pub/sub only.
 */
export type RedisRole = 'api' | 'worker' | 'subscriber';

const OPTIONS = {
  api: { enableOfflineQueue: false, maxRetriesPerRequest: 0, enableAutoPipelining: true },
  worker: { maxRetriesPerRequest: null, enableAutoPipelining: true },
  subscriber: { maxRetriesPerRequest: null, autoResubscribe: true },
} as const;

const retryStrategy = (attempt: number): number => Math.min(50 * 2 ** Math.min(attempt, 5), 1000);

/** Opens one connection; resolves once it is ready, or rejects after `timeoutMs` without it. */
export const openRedis = async (
  { url, role, timeoutMs = 10_000 }: { url: string; role: RedisRole; timeoutMs?: number },
  logger: Logger,
): Promise<Redis> => {
  const redis = new Redis(url, { ...OPTIONS[role], retryStrategy, connectTimeout: 2000, lazyConnect: true });
  let lastMessage = '';
  redis.on('error', (cause: Error) => {
    // One line per kind of failure, not one per attempt to reconnect.
    if (cause.message !== lastMessage) logger.warn({ err: cause, role }, 'redis connection failed');
    lastMessage = cause.message;
  });
  redis.on('ready', () => {
    if (lastMessage !== '') logger.info({ role }, 'redis is back');
    lastMessage = '';
  });
  const ready = new Promise<void>((resolve) => redis.once('ready', resolve));
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Redis did not answer within ${timeoutMs} ms`)), timeoutMs);
  });
  redis.connect().catch(() => undefined); // the retry strategy goes on; `ready` or the timer decides
  try {
    await Promise.race([ready, late]);
  } catch (cause) {
    redis.disconnect();
    throw cause;
  } finally {
    clearTimeout(timer);
  }
  // BullMQ's workers wait for jobs on a copy of this connection. One that is asked to connect has a single try, after which
  // its worker hears of no job for ever; one that connects by itself tries until it can.
  redis.options.lazyConnect = false;
  return redis;
};

/** `quit` where the server still listens, a hard cut where it does not. */
export const closeRedis = async (redis: Redis): Promise<void> => {
  if (redis.status === 'ready') await redis.quit().catch(() => redis.disconnect());
  else redis.disconnect();
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
