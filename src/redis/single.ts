import { Redis, type RedisOptions } from 'ioredis';
import {
  BLOCKED_FOR_MS,
  clusterAddressOf,
  CONNECT_WITHIN_MS,
  type RedisNode,
  type RedisRole,
  retryStrategy,
  sentinelOptionsOf,
} from './address.ts';
import { corkWrites, watchSilence } from './connection.ts';

export const FAILING_FAST = { enableOfflineQueue: false, maxRetriesPerRequest: 0 } as const;
const OPTIONS = {
  api: FAILING_FAST,
  worker: { maxRetriesPerRequest: null },
  subscriber: { maxRetriesPerRequest: null, autoResubscribe: true },
} as const;

/** BullMQ waits for jobs on a duplicate of the connection, so duplicates are watched for silence too. */
class WatchedRedis extends Redis {
  override duplicate(override?: Partial<RedisOptions>): Redis {
    const copy = super.duplicate(override);
    corkWrites(copy);
    watchSilence(copy, { silentAfterMs: () => BLOCKED_FOR_MS, pings: false });
    return copy;
  }
}

/**
 * One connection to some node of a cluster, for pub/sub: PUBLISH reaches all nodes. After a failure, the next node is
 * tried. ioredis' own subscriber of a cluster does not notice a silent node.
 */
const connectToAny = (nodes: RedisNode[], options: Omit<RedisOptions, 'replyMapping'>): Redis => {
  let at = Math.floor(Math.random() * nodes.length);
  const next = () => nodes[at++ % nodes.length] as RedisNode;
  const redis = new WatchedRedis({ ...options, ...next() });
  redis.options.retryStrategy = (attempt) => {
    Object.assign(redis.options, next());
    return retryStrategy(attempt);
  };
  return redis;
};

/** One connection: to one Redis, to the master that sentinels name, or to any node of a cluster. Does not connect yet. */
export const createSingle = (url: string, role: RedisRole): Redis => {
  const options = { ...OPTIONS[role], retryStrategy, connectTimeout: CONNECT_WITHIN_MS, lazyConnect: true };
  const sentinels = sentinelOptionsOf(url);
  const cluster = clusterAddressOf(url);
  let redis: Redis;
  if (sentinels) redis = new WatchedRedis({ ...options, ...sentinels });
  else if (cluster) redis = connectToAny(cluster.nodes, { ...options, ...cluster.redisOptions });
  else redis = new WatchedRedis(url, options);
  corkWrites(redis);
  return redis;
};
