import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import { type Service, startMongod, startRedis } from '../../scripts/services.ts';
import { openRelay, through } from '../../test/kit/relay.ts';
import { redisCluster, replicaSet, sentinelSet } from './replicated-stores.ts';
import { REFUSAL_LASTS_MS, REFUSED_WRITES } from './rule-of-refusals.ts';
import type { Refused, Store, StoreFault } from './store.ts';

export const TOPOLOGIES = ['one', 'replica-set', 'sentinel', 'cluster'] as const;
/** A code that says nothing about the connection, so the service must not take the whole batch for lost. */
const BAD_VALUE = 2;
const SILENCE_MS = 6_000;
/** Longer than the API waits for MongoDB, so that every failure of an earlier fault is past. */
const CALM_BEFORE_REFUSAL_MS = 6_000;

export type Topology = (typeof TOPOLOGIES)[number];

/** Lets MongoDB refuse the next `update` commands of the API. */
const refuseWrites = async (url: string, refused: Refused): Promise<void> => {
  await sleep(CALM_BEFORE_REFUSAL_MS);
  const at = performance.now();
  const client = await mongoose.mongo.MongoClient.connect(url);
  try {
    await client.db('admin').command({
      configureFailPoint: 'failCommand',
      mode: { times: REFUSED_WRITES },
      data: { errorCode: BAD_VALUE, failCommands: ['update'], appName: 'api' },
    });
  } finally {
    await client.close();
  }
  refused(at);
  await sleep(REFUSAL_LASTS_MS);
};

/** One server behind a relay. */
const behindRelay = async (name: 'Redis' | 'MongoDB', service: Service): Promise<Store> => {
  const relay = await openRelay(service.url);
  const kill = async (): Promise<void> => {
    await service.kill();
    await service.restart();
  };
  const silence = async (): Promise<void> => {
    relay.freeze();
    await sleep(SILENCE_MS);
    relay.thaw();
  };
  return {
    url: through(service.url, relay),
    directUrl: service.url,
    faults: [
      { name: `kill ${name}`, run: kill },
      { name: `silence ${name}`, run: silence },
    ],
    dispose: async () => {
      await relay.cut();
      await service.dispose();
    },
  };
};

const oneMongod = async (): Promise<Store> => {
  const service = await startMongod({ failPoints: true });
  const store = await behindRelay('MongoDB', service);
  const refuse: StoreFault = { name: 'refuse writes', run: (refused) => refuseWrites(service.url, refused) };
  return { ...store, faults: [...store.faults, refuse] };
};

const REDIS: Partial<Record<Topology, () => Promise<Store>>> = { sentinel: sentinelSet, cluster: redisCluster };

/** A Redis that keeps nothing on disk, so that a crash loses all its data, and a MongoDB that keeps what it journaled. */
export const openStores = async (topology: Topology): Promise<{ redis: Store; mongodb: Store }> => ({
  redis: (await REDIS[topology]?.()) ?? (await behindRelay('Redis', await startRedis())),
  mongodb: topology === 'replica-set' ? await replicaSet() : await oneMongod(),
});
