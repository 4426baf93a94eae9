import { Cluster, type ClusterNode, type ClusterOptions, type Redis } from 'ioredis';
import { BLOCKED_FOR_MS, type ClusterAddress, type RedisRole, retryStrategy, SILENT_AFTER_MS } from './address.ts';
import { corkWrites, watchSilence } from './connection.ts';

const SLOTS_REFRESH_MS = 1_000;

/**
 * A command fails if the connection to its node is lost. The next command asks another node which node has the slot
 * now.
 */
export const CLUSTER_FAILING_FAST = {
  enableOfflineQueue: false,
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  maxRedirections: 5,
} as const;

const OPTIONS = {
  // The client reads the slots at intervals. Its commands fail without a delay, so nothing else notices a node that has
  // lost its slots but still answers.
  api: { ...CLUSTER_FAILING_FAST, slotsRefreshInterval: SLOTS_REFRESH_MS },
  // Commands wait for the fail-over, however long it takes.
  worker: { maxRedirections: Number.POSITIVE_INFINITY },
} as const;

const watchNodes = (cluster: Cluster, silentAfterMs: () => number): void =>
  void cluster.on('+node', (node: Redis) => {
    corkWrites(node);
    watchSilence(node, { silentAfterMs, pings: false });
  });

/** BullMQ waits for jobs on a duplicate of the client, so the connections of duplicates are watched for silence too. */
class WatchedCluster extends Cluster {
  override duplicate(nodes?: ClusterNode[], options?: ClusterOptions): Cluster {
    const copy = super.duplicate(nodes, options);
    watchNodes(copy, () => BLOCKED_FOR_MS);
    return copy;
  }
}

type Opening = {
  role: Exclude<RedisRole, 'subscriber'>;
  silentAfterMs: () => number;
  draining: AbortSignal | undefined;
};

/** A client of a cluster, with one connection to each node that it needs. Does not connect yet. */
export const createCluster = (
  { nodes, redisOptions, clusterOptions }: ClusterAddress,
  { role, silentAfterMs, draining }: Opening,
): Cluster => {
  const cluster = new WatchedCluster(nodes, {
    ...OPTIONS[role],
    ...clusterOptions,
    // A client that does not reconnect fails its waiting commands, so that the process can stop.
    clusterRetryStrategy: (attempt) => (draining?.aborted ? null : retryStrategy(attempt)),
    lazyConnect: true,
    redisOptions: { ...redisOptions, maxRetriesPerRequest: null, connectTimeout: SILENT_AFTER_MS[role] },
  });
  watchNodes(cluster, silentAfterMs);
  // A command that fails fast does not wait for its node's connection, so all nodes are connected before.
  if (role === 'api') cluster.on('+node', (node: Redis) => void node.connect().catch(() => undefined));
  return cluster;
};

/** Waits until each master is connected or has failed. */
export const connectMasters = async (cluster: Cluster): Promise<void> => {
  await Promise.allSettled(cluster.nodes('master').map((node) => node.ping()));
};
