import { setTimeout as sleep } from 'node:timers/promises';
import {
  BUS_OFFSET,
  type Service,
  startRedisCluster,
  startReplicaSet,
  startSentinelSet,
} from '../../scripts/services.ts';
import { clusterNode, mongodMember, openPeerRelays, sentinelOrReplica } from '../../test/kit/peer-relays.ts';
import type { Store } from './store.ts';

/** Longer than a Redis needs until another member is master, about 3 s. */
const MASTER_ISOLATED_MS = 8_000;
/** After about 10 s of silence, a majority of the other members confirms writes again (measured). */
const PRIMARY_ISOLATED_MS = 14_000;
/** A sentinel that did not run for 2 s does nothing for the next 30 s. */
const SUCCESSOR_WITHIN_MS = 60_000;
const ASK_EVERY_MS = 200;
/** A master stays away for so long, so that its replica is promoted before it is back. */
const PROMOTED_WITHIN_MS = 5_000;
/** The partitions of a Redis Cluster, so that each master has some. */
const PARTITIONS = 6;

type PeerRelays = ReturnType<typeof openPeerRelays>;

/** A member to isolate, as the relays know it. `hasSuccessor` is true if another member is master or primary. */
type Isolated = { as: Parameters<PeerRelays['isolate']>[0]; hasSuccessor: () => Promise<boolean> };

/** Isolates a master or primary for at least `ms`, until another member has taken over. Fails if none does. */
const isolateFor = async (ms: number, relays: PeerRelays, { as, hasSuccessor }: Isolated): Promise<void> => {
  const until = performance.now() + SUCCESSOR_WITHIN_MS;
  relays.isolate(as);
  try {
    await sleep(ms);
    while (!(await hasSuccessor())) {
      if (performance.now() > until) throw new Error('no other member took over');
      await sleep(ASK_EVERY_MS);
    }
  } finally {
    relays.heal();
  }
};

/** The checker uses the same address as the processes, because the relays let clients through. */
const storeOf = (
  set: { url: string; dispose: () => Promise<void> },
  relays: PeerRelays,
  faults: Store['faults'],
): Store => ({
  url: set.url,
  directUrl: set.url,
  faults,
  dispose: async () => {
    await set.dispose();
    relays.close();
  },
});

const killForLong = async (master: Service | undefined): Promise<void> => {
  await master?.kill();
  await sleep(PROMOTED_WITHIN_MS);
  await master?.restart();
};

/**
 * Three members with elections. When the primary is killed or isolated, another member is elected. An isolated primary
 * applies writes that no majority has, until it steps down. They are rolled back.
 */
export const replicaSet = async (): Promise<Store> => {
  const relays = openPeerRelays(mongodMember);
  const set = await startReplicaSet(3, { announcedPortOf: relays.relayTo });
  const kill = async (): Promise<void> => {
    const primary = await set.findPrimary();
    await primary?.kill();
    await primary?.restart();
  };
  const isolate = async (): Promise<void> => {
    const member = await set.findPrimary();
    if (!member) return;
    const as = { port: member.port, id: String(member.port) };
    const hasSuccessor = async (): Promise<boolean> => (await set.findPrimary(member)) !== null;
    await isolateFor(PRIMARY_ISOLATED_MS, relays, { as, hasSuccessor });
  };
  return storeOf(set, relays, [
    { name: 'kill the primary', run: kill },
    { name: 'isolate the primary', run: isolate },
  ]);
};

/**
 * A master, a replica and three sentinels. When the master is killed or isolated, the replica is promoted. An isolated
 * master accepts writes until the sentinels reach it again and make it a replica. Then it loses them.
 */
export const sentinelSet = async (): Promise<Store> => {
  const relays = openPeerRelays(sentinelOrReplica);
  const set = await startSentinelSet({ announcedPortOf: relays.relayTo });
  const isolate = async (): Promise<void> => {
    const member = await set.findMaster();
    if (!member) return;
    const hasSuccessor = async (): Promise<boolean> => {
      const now = await set.findMaster().catch(() => undefined);
      return now !== undefined && now !== member;
    };
    await isolateFor(MASTER_ISOLATED_MS, relays, { as: { port: member.port }, hasSuccessor });
  };
  return storeOf(set, relays, [
    { name: 'kill the master of Redis', run: async () => killForLong(await set.findMaster()) },
    { name: 'isolate the master of Redis', run: isolate },
  ]);
};

/**
 * Three masters, each with a replica. An isolated master is still reached by its clients: it accepts writes that are
 * lost when its replica is promoted.
 */
export const redisCluster = async (): Promise<Store> => {
  const relays = openPeerRelays(clusterNode);
  const busPortOf = (port: number): Promise<number> => relays.relayTo(port + BUS_OFFSET);
  const set = await startRedisCluster({ busPortOf });
  let nth = 0;
  const nextKey = (): string => `key ${nth++}`;
  const isolate = async (): Promise<void> => {
    const key = nextKey();
    const member = await set.findMaster(key);
    if (!member) return;
    const as = { port: member.port + BUS_OFFSET, id: await set.idOf(member) };
    const hasSuccessor = async (): Promise<boolean> => (await set.findMaster(key, member)) !== undefined;
    await isolateFor(MASTER_ISOLATED_MS, relays, { as, hasSuccessor });
  };
  const store = storeOf(set, relays, [
    { name: 'kill a master of Redis', run: async () => killForLong(await set.findMaster(nextKey())) },
    { name: 'isolate a master of Redis', run: isolate },
  ]);
  return { ...store, env: { PARTITIONS: String(PARTITIONS) } };
};
