import type { RedisOptions } from 'ioredis';

const SENTINEL_PORT = 26_379;
const SCHEMES: Record<string, { tls: boolean }> = {
  'redis+sentinel:': { tls: false },
  'rediss+sentinel:': { tls: true },
};

/** How a connection finds its master. */
export type SentinelOptions = Pick<
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

/** An address with its comma-separated hosts replaced by one host, so that it is a valid URL, and the list of hosts. */
const splitHosts = (address: string): { url: URL; hosts: string[] } => {
  const start = address.indexOf('//') + 2;
  const slash = address.indexOf('/', start);
  const end = slash === -1 ? address.length : slash;
  const authority = address.slice(start, end);
  const userinfo = authority.slice(0, authority.lastIndexOf('@') + 1);
  const hosts = authority.slice(userinfo.length).split(',');
  if (hosts.includes('')) throw new Error('REDIS_URL: a host is missing: redis+sentinel://host:26379,host:26379/name');
  return { url: new URL(`http://${userinfo}${hosts[0]}${address.slice(end)}`), hosts };
};

/**
 * The connection options of an address with sentinels, `redis+sentinel://user:password@host:26379,host:26379/name`, or
 * null for any other address. `name` is the master's name. The password is that of Redis; `?sentinelPassword=…` is that
 * of the sentinels. Throws if the address is malformed.
 */
export const sentinelOptionsOf = (address: string): SentinelOptions | null => {
  const scheme = SCHEMES[address.slice(0, address.indexOf('//'))];
  if (!scheme) return null;
  const { url, hosts } = splitHosts(address);
  const name = url.pathname.slice(1);
  if (name === '') throw new Error('REDIS_URL: the name of the master is missing: redis+sentinel://host:26379/name');
  const sentinelPassword = url.searchParams.get('sentinelPassword');
  return {
    name: decodeURIComponent(name),
    sentinels: hosts.map((one) => {
      const { hostname, port } = new URL(`http://${one}`);
      return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? SENTINEL_PORT : Number(port) };
    }),
    ...(url.username && { username: decodeURIComponent(url.username) }),
    ...(url.password && { password: decodeURIComponent(url.password) }),
    ...(sentinelPassword && { sentinelPassword }),
    ...(scheme.tls && { tls: {}, enableTLSForSentinelMode: true }),
    sentinelRetryStrategy: (attempt) => Math.min(50 * attempt, 500),
    // A master that became a replica refuses writes until the connection is made anew.
    reconnectOnError: ({ message }) => (message.startsWith('READONLY') ? 2 : false),
  };
};
