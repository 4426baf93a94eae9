import { join } from 'node:path';
import { startMongod } from './services/mongod.ts';
import type { Service } from './services/process.ts';
import { startRedis } from './services/redis.ts';

export { startMongod } from './services/mongod.ts';
export type { Service, ServiceOptions } from './services/process.ts';
export { freePort } from './services/resources.ts';
export { type RedisOptions, startRedis } from './services/redis.ts';
export { BUS_OFFSET, type RedisCluster, startRedisCluster } from './services/redis-cluster.ts';
export { type ReplicaSet, startReplicaSet } from './services/replica-set.ts';
export { type SentinelSet, startSentinelSet } from './services/redis-sentinel.ts';

export type Services = {
  redisUrl: string;
  mongodbUrl: string;
  /** Process ids of the services that this run started. A service given by URL has no process id. */
  pids: { redis?: number; mongod?: number };
  /** These services, with their names. */
  started: [name: string, service: Service][];
  stop: () => Promise<void>;
};

/**
 * Provides a Redis and a MongoDB for one run: those of REDIS_URL and MONGODB_URL, or new ones on free ports. With
 * `dataDir`, the data of new ones is kept for the next run.
 */
export const startServices = async ({
  dataDir,
  env = process.env,
}: {
  dataDir?: string;
  env?: Record<string, string | undefined>;
} = {}): Promise<Services> => {
  const dataDirOf = (name: string) => (dataDir === undefined ? {} : { dataDir: join(dataDir, name) });
  const none = Promise.resolve(undefined);
  const [redis, mongod] = await Promise.allSettled([
    env['REDIS_URL'] ? none : startRedis({ ...dataDirOf('redis'), persistent: dataDir !== undefined }),
    env['MONGODB_URL'] ? none : startMongod(dataDirOf('mongodb')),
  ]);
  const started = Object.entries({ Redis: redis, MongoDB: mongod }).flatMap(([name, one]): Services['started'] =>
    one.status === 'fulfilled' && one.value ? [[name, one.value]] : [],
  );
  const stop = async (): Promise<void> => {
    await Promise.all(started.map(([, service]) => service.dispose()));
  };
  if (redis.status === 'rejected' || mongod.status === 'rejected') {
    await stop();
    throw redis.status === 'rejected' ? redis.reason : (mongod as PromiseRejectedResult).reason; // one of the two was rejected
  }
  return {
    redisUrl: redis.value?.url ?? env['REDIS_URL'] ?? '',
    mongodbUrl: mongod.value?.url ?? env['MONGODB_URL'] ?? '',
    pids: {
      ...(redis.value?.pid === undefined ? {} : { redis: redis.value.pid }),
      ...(mongod.value?.pid === undefined ? {} : { mongod: mongod.value.pid }),
    },
    started,
    stop,
  };
};
