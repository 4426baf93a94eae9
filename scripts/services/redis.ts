import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { type Service, type ServiceOptions, startService } from './process.ts';
import { type ServiceLocation, startCommand } from './program.ts';

export type RedisOptions = ServiceOptions & {
  /** The port of the master that this Redis copies. */
  replicaOf?: number;
  /** If true, Redis writes an append-only file, so that data survives a stop or kill. Default: false. */
  persistent?: boolean;
};

const ping = ({ port }: { port: number }): Promise<void> =>
  new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, timeout: 1000 }, () => socket.write('PING\r\n'));
    const end = (cause?: Error): void => {
      socket.destroy();
      if (cause) reject(cause);
      else resolve();
    };
    socket.on('error', end).on('timeout', () => end(new Error('no answer')));
    // Redis answers "-LOADING" until it has read its data file.
    socket.on('data', (data) => (data.toString().startsWith('+PONG') ? end() : end(new Error(data.toString().trim()))));
  });

/** Starts a Redis on 127.0.0.1 with `noeviction`, because a queue must never lose a key. */
export const startRedis = ({ persistent = false, replicaOf, ...options }: RedisOptions = {}): Promise<Service> => {
  const settings = ({ port, dir, bind }: ServiceLocation): string[] => {
    const network = ['--port', String(port), '--bind', bind, '--protected-mode', 'no'];
    const storage = ['--dir', dir, '--appendonly', persistent ? 'yes' : 'no', '--save', ''];
    const copies = replicaOf === undefined ? [] : ['--replicaof', '127.0.0.1', String(replicaOf)];
    return [...network, ...storage, ...copies, '--maxmemory-policy', 'noeviction', '--logfile', `${dir}/redis.log`];
  };
  return startService(
    {
      name: 'redis',
      logFile: 'redis.log',
      url: (port) => `redis://127.0.0.1:${port}`,
      ready: ping,
      start: (where) => startCommand({ service: 'redis', program: 'redis-server', settings }, where),
    },
    options,
  );
};

const MASTER = 'parley';
const SENTINELS = 3;
const QUORUM = 2;

const sentinelConfig = (master: number): string =>
  [
    `sentinel monitor ${MASTER} 127.0.0.1 ${master} ${QUORUM}`,
    `sentinel down-after-milliseconds ${MASTER} 1000`,
    `sentinel failover-timeout ${MASTER} 5000`,
    'sentinel resolve-hostnames no',
    '',
  ].join('\n');

const startSentinel = (master: number): Promise<Service> =>
  startService(
    {
      name: 'sentinel',
      logFile: 'sentinel.log',
      url: (port) => `redis://127.0.0.1:${port}`,
      ready: ping,
      start: (where) => {
        // A sentinel rewrites its configuration file, and keeps it when it is started again.
        writeFileSync(join(where.dataDir, 'sentinel.conf'), sentinelConfig(master));
        const settings = ({ port, dir, bind }: ServiceLocation): string[] => {
          const network = ['--port', String(port), '--bind', bind, '--protected-mode', 'no'];
          return [`${dir}/sentinel.conf`, '--sentinel', ...network, '--logfile', `${dir}/sentinel.log`];
        };
        return startCommand({ service: 'redis', program: 'redis-server', settings }, where);
      },
    },
    {},
  );

export type SentinelSet = {
  /** For REDIS_URL. */
  url: string;
  /** The master and its replicas, in the order of their start. */
  members: Service[];
  /** The member that the sentinels name as master. */
  findMaster: () => Promise<Service | undefined>;
  dispose: () => Promise<void>;
};

/** Starts a Redis with one replica, and three sentinels that promote the replica when the master is away for 1 s. */
export const startSentinelSet = async (): Promise<SentinelSet> => {
  const master = await startRedis();
  const members = [master, await startRedis({ replicaOf: master.port })];
  const sentinels = await Promise.all(Array.from({ length: SENTINELS }, () => startSentinel(master.port)));
  return {
    url: `redis+sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/${MASTER}`,
    members,
    findMaster: async () => {
      const redis = new Redis(sentinels[0]?.port ?? 0, '127.0.0.1');
      const [, port] = (await redis
        .call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER)
        .finally(() => redis.disconnect())) as [string, string];
      return members.find((member) => member.port === Number(port));
    },
    dispose: async () => {
      await Promise.all([...sentinels, ...members].map((service) => service.dispose()));
    },
  };
};
