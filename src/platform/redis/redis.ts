import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, type ClusterNode, type ClusterOptions, Redis, type RedisOptions } from 'ioredis';
import { withDeadline } from '../process/deadline.ts';
import type { Logger } from '../process/logger.ts';
import { corkWrites, keepSubscribed, watchSilence } from './connection.ts';

/**
 * How a connection behaves while Redis is unavailable or silent. `api`: commands fail, so that a caller gets 503 in
 * time. `worker`: commands wait for Redis, as BullMQ's blocking reads require, until the process stops. `subscriber`:
 * pub/sub only.
 */
export type RedisRole = 'api' | 'worker' | 'subscriber';

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

const CONNECT_WITHIN_MS = 2_000;

const retryStrategy = (attempt: number): number => Math.min(50 * 2 ** Math.min(attempt, 5), 1000);

const SCHEMES: Record<string, { several: 'sentinels' | 'cluster'; tls: boolean; port: number }> = {
  'redis+sentinel:': { several: 'sentinels', tls: false, port: 26_379 },
  'rediss+sentinel:': { several: 'sentinels', tls: true, port: 26_379 },
  'redis+cluster:': { several: 'cluster', tls: false, port: 6379 },
  'rediss+cluster:': { several: 'cluster', tls: true, port: 6379 },
};

type RedisNode = { host: string; port: number };

/** How a connection finds its master. */
type SentinelOptions = Pick<
  RedisOptions,
  | 'name'
  | 'sentinels'
  | 'username'
  | 'password'
  | 'sentinelPassword'
  | 'tls'
  | 'enableTLSForSentinelMode'
  | 'sentinelRetryStrategy'
  | 'reconnectOnError'
>;

/** How a client finds the nodes of a cluster, and what it needs to connect to each of them. */
type ClusterAddress = {
  nodes: RedisNode[];
  redisOptions: Pick<RedisOptions, 'username' | 'password' | 'tls'>;
  clusterOptions: Pick<ClusterOptions, 'dnsLookup'>;
};

type Several = {
  scheme: (typeof SCHEMES)[string];
  url: URL;
  nodes: RedisNode[];
  user: { username?: string; password?: string };
};

/** Splits an address with several hosts. Null if the address names one Redis. */
const parseSeveral = (address: string): Several | null => {
  const scheme = SCHEMES[address.slice(0, address.indexOf('//'))];
  if (!scheme) return null;
  const start = address.indexOf('//') + 2;
  const slash = address.indexOf('/', start);
  const end = slash === -1 ? address.length : slash;
  const authority = address.slice(start, end);
  const userinfo = authority.slice(0, authority.lastIndexOf('@') + 1);
  const hosts = authority.slice(userinfo.length).split(',');
  if (hosts.includes('')) throw new Error(`REDIS_URL: a host is missing: …://host:${scheme.port},host:${scheme.port}`);
  // With one host, the rest of the address is a valid URL.
  const url = new URL(`http://${userinfo}${hosts[0]}${address.slice(end)}`);
  const nodes = hosts.map((one) => {
    const { hostname, port } = new URL(`http://${one}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? scheme.port : Number(port) };
  });
  const user = {
    ...(url.username && { username: decodeURIComponent(url.username) }),
    ...(url.password && { password: decodeURIComponent(url.password) }),
  };
  return { scheme, url, nodes, user };
};

/**
 * The connection options of an address with sentinels, `redis+sentinel://user:password@host:26379,host:26379/name`, or
 * null for any other address. `name` is the master's name. The password is that of Redis; `?sentinelPassword=…` is that
 * of the sentinels. Throws if the address is malformed.
 */
export const sentinelOptionsOf = (address: string): SentinelOptions | null => {
  const parsed = parseSeveral(address);
  if (parsed?.scheme.several !== 'sentinels') return null;
  const { scheme, url, nodes, user } = parsed;
  const name = url.pathname.slice(1);
  if (name === '') throw new Error('REDIS_URL: the name of the master is missing: redis+sentinel://host:26379/name');
  const sentinelPassword = url.searchParams.get('sentinelPassword');
  return {
    name: decodeURIComponent(name),
    sentinels: nodes,
    ...user,
    ...(sentinelPassword && { sentinelPassword }),
    ...(scheme.tls && { tls: {}, enableTLSForSentinelMode: true }),
    sentinelRetryStrategy: (attempt) => Math.min(50 * attempt, 500),
    // A master that became a replica refuses writes until the connection is made anew.
    reconnectOnError: ({ message }) => (message.startsWith('READONLY') ? 2 : false),
  };
};

/**
 * The options of a cluster's address, `redis+cluster://user:password@host:6379,host:6379`, or null for any other
 * address. The hosts are some nodes of the cluster; the client learns the others from them. Throws if the address is
 * malformed.
 */
export const clusterAddressOf = (address: string): ClusterAddress | null => {
  const parsed = parseSeveral(address);
  if (parsed?.scheme.several !== 'cluster') return null;
  const { scheme, nodes, user } = parsed;
  return {
    nodes,
    redisOptions: { ...user, ...(scheme.tls && { tls: {} }) },
    // A certificate names the host, so with TLS the client must not replace a host by its address.
    clusterOptions: scheme.tls ? { dnsLookup: (host, found) => found(null, host) } : {},
  };
};

/** One connection, or a client of a cluster. */
export type RedisClient = Redis | Cluster;

const ANSWERED_WITHIN_MS = 500;
const GONE_CHECK_MS = 250;

const SLOTS_REFRESH_MS = 1_000;

/**
 * A command fails if the connection to its node is lost. The next command asks another node which node has the slot
 * now.
 */
const CLUSTER_FAILING_FAST = {
  enableOfflineQueue: false,
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  maxRedirections: 5,
} as const;

const CLUSTER_OPTIONS = {
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

type ClusterOpening = {
  role: Exclude<RedisRole, 'subscriber'>;
  silentAfterMs: () => number;
  draining: AbortSignal | undefined;
};

/** A client of a cluster, with one connection to each node that it needs. Does not connect yet. */
const createCluster = (
  { nodes, redisOptions, clusterOptions }: ClusterAddress,
  { role, silentAfterMs, draining }: ClusterOpening,
): Cluster => {
  const cluster = new WatchedCluster(nodes, {
    ...CLUSTER_OPTIONS[role],
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
const connectMasters = async (cluster: Cluster): Promise<void> => {
  await Promise.allSettled(cluster.nodes('master').map((node) => node.ping()));
};

type Opening = {
  url: string;
  role: RedisRole;
  timeoutMs?: number;
  /** After this signal, commands fail instead of waiting, so that a process can stop while Redis is unavailable. */
  draining?: AbortSignal;
};

export const isCluster = (redis: RedisClient): redis is Cluster => redis.isCluster;

const FAILING_FAST = { enableOfflineQueue: false, maxRetriesPerRequest: 0 } as const;
const SINGLE_OPTIONS = {
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

/**
 * One connection: to one Redis, to the master that sentinels name, or to any node of a cluster. Does not connect yet.
 */
const createSingle = (url: string, role: RedisRole): Redis => {
  const options = { ...SINGLE_OPTIONS[role], retryStrategy, connectTimeout: CONNECT_WITHIN_MS, lazyConnect: true };
  const sentinels = sentinelOptionsOf(url);
  const cluster = clusterAddressOf(url);
  let redis: Redis;
  if (sentinels) redis = new WatchedRedis({ ...options, ...sentinels });
  else if (cluster) redis = connectToAny(cluster.nodes, { ...options, ...cluster.redisOptions });
  else redis = new WatchedRedis(url, options);
  corkWrites(redis);
  if (role === 'subscriber') keepSubscribed(redis);
  return redis;
};

/**
 * Logs one line per kind of failure instead of one per reconnect. For a cluster, each node is reported separately. The
 * returned function gives the last failure.
 */
const logFailures = (redis: RedisClient, { role, logger }: { role: RedisRole; logger: Logger }) => {
  const lastMessages = new Map<string | undefined, string>();
  let lastFailure: Error | undefined;
  const failed = (cause: Error, node?: string): void => {
    lastFailure = cause;
    if (lastMessages.get(node) !== cause.message) logger.warn({ err: cause, role, node }, 'redis connection failed');
    lastMessages.set(node, cause.message);
  };
  const available = (node?: string): void => {
    if (lastMessages.delete(node)) logger.info({ role, node }, 'redis is available again');
  };
  redis.on('error', (cause: Error) => failed(cause));
  redis.on('ready', () => available());
  redis.on('node error', failed);
  redis.on('+node', (node: Redis) => node.on('ready', () => available(`${node.options.host}:${node.options.port}`)));
  return () => lastFailure;
};

const create = ({ url, role, draining }: Opening): RedisClient => {
  const address = role === 'subscriber' ? null : clusterAddressOf(url);
  let silentAfterMs: number = SILENT_AFTER_MS[role];
  const limit = (): number => silentAfterMs;
  let redis: RedisClient;
  if (address && role !== 'subscriber') redis = createCluster(address, { role, silentAfterMs: limit, draining });
  else {
    redis = createSingle(url, role);
    watchSilence(redis, { silentAfterMs: limit, pings: role === 'subscriber' });
  }
  const failFast = (): void => {
    Object.assign(redis.options, isCluster(redis) ? CLUSTER_FAILING_FAST : FAILING_FAST);
    silentAfterMs = SILENT_AFTER_MS.api;
  };
  if (draining?.aborted) failFast();
  draining?.addEventListener('abort', failFast, { once: true });
  return redis;
};

/**
 * Opens one connection, directly or by sentinels, or a client of a cluster (address.ts). Resolves once it is ready, or
 * rejects after `timeoutMs`.
 */
export const openRedis = async (opening: Opening, logger: Logger): Promise<RedisClient> => {
  const { role, timeoutMs = 10_000 } = opening;
  const redis = create(opening);
  const lastFailure = logFailures(redis, { role, logger });
  const ready = new Promise<void>((resolve) => redis.once('ready', resolve));
  redis.connect().catch(() => undefined); // the retry strategy continues; `ready` or the deadline decides
  try {
    await withDeadline(ready, timeoutMs, {
      late: () => new Error(`Redis did not answer within ${timeoutMs} ms`, { cause: lastFailure() }),
    });
    if (isCluster(redis)) await connectMasters(redis);
  } catch (cause) {
    redis.disconnect();
    throw cause;
  }
  // BullMQ's workers wait for jobs on a duplicate of this connection, which copies its options. With `lazyConnect`, the
  // duplicate would try to connect only once, and after a failure its worker would get no more jobs.
  redis.options.lazyConnect = false;
  return redis;
};

/** The connections to the masters of a cluster, or the one connection. */
export const mastersOf = (redis: RedisClient): Redis[] => (isCluster(redis) ? redis.nodes('master') : [redis]);

/** Waits for the answers to all commands that were sent, if the server answers, and disconnects. */
export const closeRedis = async (redis: RedisClient): Promise<void> => {
  const last = mastersOf(redis)
    .filter(({ status }) => status === 'ready')
    .map((server) => server.ping());
  await withDeadline(Promise.all(last), ANSWERED_WITHIN_MS).catch(() => undefined);
  redis.disconnect();
};

/** Resolves if Redis answers. One master of a cluster is enough, because each serves its own partitions. */
export const pingRedis = async (redis: RedisClient): Promise<void> => {
  if (redis.status !== 'ready') throw new Error('not connected');
  await Promise.any(mastersOf(redis).map((server) => server.ping()));
};

/**
 * Resolves when two reads of this key in a row got no answer. Use this only with a client whose commands fail fast,
 * because every read must end.
 */
export const whenUnavailable = async (
  redis: RedisClient,
  { key, signal }: { key: string; signal: AbortSignal },
): Promise<void> => {
  for (let missed = 0; missed < 2 && !signal.aborted; ) {
    await sleep(GONE_CHECK_MS, undefined, { signal, ref: false }).catch(() => undefined);
    const answers =
      redis.status === 'ready' &&
      (await redis.exists(key).then(
        () => true,
        () => false,
      ));
    missed = answers ? 0 : missed + 1;
  }
};
