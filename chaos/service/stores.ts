import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import { type Service, startMongod, startRedis, startReplicaSet, startSentinelSet } from '../../scripts/services.ts';
import { openRelay, type Relay, through } from '../../test/support/relay.ts';

export const TOPOLOGIES = ['one', 'replica-set', 'sentinel'] as const;
/** How many commands MongoDB refuses after `refuseWrites`. */
export const REFUSED_WRITES = 3;
/** A code that says nothing about the connection, so the service must not take the whole batch for lost. */
const BAD_VALUE = 2;
/** The master stays away for so long, so that the sentinels promote the replica before it is back. */
const PROMOTED_WITHIN_MS = 5_000;

export type Topology = (typeof TOPOLOGIES)[number];

/** A store behind a relay, or directly reachable if it has several members. */
export type Store = {
  /** The address for the processes. */
  url: string;
  /** The address for the checker, without a relay. */
  directUrl: string;
  /** Null if the store has several members: they find each other without the relay. */
  relay: Relay | null;
  /** Kills the store, or its primary, and starts it again. */
  crash: () => Promise<void>;
  /** Lets MongoDB refuse the next `update` commands of the API. Null if the store cannot do so. */
  refuseWrites: (() => Promise<void>) | null;
  dispose: () => Promise<void>;
};

const refuseWrites = async (url: string): Promise<void> => {
  const client = await mongoose.mongo.MongoClient.connect(url);
  await client
    .db('admin')
    .command({
      configureFailPoint: 'failCommand',
      mode: { times: REFUSED_WRITES },
      data: { errorCode: BAD_VALUE, failCommands: ['update'], appName: 'api' },
    })
    .finally(() => client.close());
};

const behindRelay = async (service: Service, refuses = false): Promise<Store> => {
  const relay = await openRelay(service.url);
  return {
    url: through(service.url, relay),
    directUrl: service.url,
    relay,
    crash: async () => {
      await service.kill();
      await service.restart();
    },
    refuseWrites: refuses ? () => refuseWrites(service.url) : null,
    dispose: async () => {
      await relay.cut();
      await service.dispose();
    },
  };
};

/** Three members with elections. A crash kills the primary, so that another member is elected. */
const replicaSet = async (): Promise<Store> => {
  const set = await startReplicaSet(3);
  return {
    url: set.url,
    directUrl: set.url,
    relay: null,
    crash: async () => {
      const primary = await set.findPrimary();
      await primary?.kill();
      await primary?.restart();
    },
    refuseWrites: null,
    dispose: () => set.dispose(),
  };
};

/** A master, a replica and three sentinels. A crash kills the master, so that the replica is promoted. */
const sentinelSet = async (): Promise<Store> => {
  const set = await startSentinelSet();
  return {
    url: set.url,
    directUrl: set.url,
    relay: null,
    crash: async () => {
      const master = await set.findMaster();
      await master?.kill();
      await sleep(PROMOTED_WITHIN_MS);
      await master?.restart();
    },
    refuseWrites: null,
    dispose: () => set.dispose(),
  };
};

/** A Redis that keeps nothing on disk, so that a crash loses all its data, and a MongoDB that keeps what it journaled. */
export const openStores = async (topology: Topology): Promise<{ redis: Store; mongodb: Store }> => ({
  redis: topology === 'sentinel' ? await sentinelSet() : await behindRelay(await startRedis()),
  mongodb:
    topology === 'replica-set' ? await replicaSet() : await behindRelay(await startMongod({ failPoints: true }), true),
});
