import type { ClusterOptions, RedisOptions } from 'ioredis';

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
export const SILENT_AFTER_MS = { api: 800, worker: 3_000, subscriber: 1_600 } as const;

/**
 * How long the connection on which BullMQ waits for jobs may be silent. This limit must exceed BullMQ's longest wait
 * (10 s).
 */
export const BLOCKED_FOR_MS = 13_000;

export const CONNECT_WITHIN_MS = 2_000;

export const retryStrategy = (attempt: number): number => Math.min(50 * 2 ** Math.min(attempt, 5), 1000);

const SCHEMES: Record<string, { several: 'sentinels' | 'cluster'; tls: boolean; port: number }> = {
  'redis+sentinel:': { several: 'sentinels', tls: false, port: 26_379 },
  'rediss+sentinel:': { several: 'sentinels', tls: true, port: 26_379 },
  'redis+cluster:': { several: 'cluster', tls: false, port: 6379 },
  'rediss+cluster:': { several: 'cluster', tls: true, port: 6379 },
};

export type RedisNode = { host: string; port: number };

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
export type ClusterAddress = {
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
