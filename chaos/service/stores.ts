import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import {
  type Service,
  startMongod,
  startRedis,
  startRedisCluster,
  startReplicaSet,
  startSentinelSet,
} from '../../scripts/services.ts';
import { openRelay, through } from '../../test/support/relay.ts';
import { openBus } from './bus.ts';
import { REFUSAL_LASTS_MS, REFUSED_WRITES } from './rule-of-refusals.ts';

export const TOPOLOGIES = ['one', 'replica-set', 'sentinel', 'cluster'] as const;
/** A code that says nothing about the connection, so the service must not take the whole batch for lost. */
const BAD_VALUE = 2;
const SILENCE_MS = 6_000;
/** Longer than the API waits for MongoDB, so that every failure of an earlier fault is past. */
const CALM_BEFORE_REFUSAL_MS = 6_000;
/** A master stays away for so long, so that its replica is promoted before it is back. */
const PROMOTED_WITHIN_MS = 5_000;
/** The partitions of a Redis Cluster, so that each master has some. */
const PARTITIONS = 6;

export type Topology = (typeof TOPOLOGIES)[number];

/** Called when MongoDB was told to refuse writes. */
type Refused = (at: number) => void;

export type StoreFault = { name: string; run: (refused: Refused) => Promise<void> };

export type Store = {
  /** The address for the processes. */
  url: string;
  /** The address for the checker, without a relay. */
  directUrl: string;
  /** More settings of the processes. */
  env?: Record<string, string>;
  /** What can happen to this store, apart from FLUSHALL. */
  faults: StoreFault[];
  dispose: () => Promise<void>;
};

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

/** Three members with elections. When the primary is killed, another member is elected. */
const replicaSet = async (): Promise<Store> => {
  const set = await startReplicaSet(3);
  const kill = async (): Promise<void> => {
    const primary = await set.findPrimary();
    await primary?.kill();
    await primary?.restart();
  };
  return { url: set.url, directUrl: set.url, faults: [{ name: 'kill the primary', run: kill }], dispose: set.dispose };
};

const killForLong = async (master: Service | undefined): Promise<void> => {
  await master?.kill();
  await sleep(PROMOTED_WITHIN_MS);
  await master?.restart();
};

/** A master, a replica and three sentinels. When the master is killed, the replica is promoted. */
const sentinelSet = async (): Promise<Store> => {
  const set = await startSentinelSet();
  const kill = async (): Promise<void> => killForLong(await set.findMaster());
  const faults = [{ name: 'kill the master of Redis', run: kill }];
  return { url: set.url, directUrl: set.url, faults, dispose: set.dispose };
};

/**
 * Three masters, each with a replica. An isolated master is still reached by its clients: it accepts writes that are
 * lost when its replica is promoted.
 */
const redisCluster = async (): Promise<Store> => {
  const bus = openBus();
  const set = await startRedisCluster({ busPortOf: bus.relayTo });
  let nth = 0;
  const anyMaster = (): Promise<Service | undefined> => set.findMaster(`key ${nth++}`);
  const isolate = async (): Promise<void> => {
    const master = await anyMaster();
    if (!master) return;
    bus.isolate({ port: master.port, id: await set.idOf(master) });
    await sleep(SILENCE_MS);
    bus.heal();
  };
  return {
    url: set.url,
    directUrl: set.url,
    env: { PARTITIONS: String(PARTITIONS) },
    faults: [
      { name: 'kill a master of Redis', run: async () => killForLong(await anyMaster()) },
      { name: 'isolate a master of Redis', run: isolate },
    ],
    dispose: async () => {
      await set.dispose();
      bus.close();
    },
  };
};

const REDIS: Partial<Record<Topology, () => Promise<Store>>> = { sentinel: sentinelSet, cluster: redisCluster };

/** A Redis that keeps nothing on disk, so that a crash loses all its data, and a MongoDB that keeps what it journaled. */
export const openStores = async (topology: Topology): Promise<{ redis: Store; mongodb: Store }> => ({
  redis: (await REDIS[topology]?.()) ?? (await behindRelay('Redis', await startRedis())),
  mongodb: topology === 'replica-set' ? await replicaSet() : await oneMongod(),
});
