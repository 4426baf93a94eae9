import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { type Service, startService } from './process.ts';
import { type ServiceLocation, startCommand } from './program.ts';
import { pingRedis, startRedis } from './redis.ts';
import { freePort } from './resources.ts';

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
      ready: pingRedis,
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

export type SentinelSetOptions = {
  /** The port on which sentinels, replicas and clients reach the member with this port. Default: its own. */
  announcedPortOf?: (port: number) => Promise<number>;
};

/** Starts a Redis with one replica, and three sentinels that promote the replica when the master is away for 1 s. */
export const startSentinelSet = async ({
  announcedPortOf = (port) => Promise.resolve(port),
}: SentinelSetOptions = {}): Promise<SentinelSet> => {
  const startMember = async (replicaOf?: number) => {
    const port = await freePort();
    const announced = await announcedPortOf(port);
    const settings = ['--replica-announce-ip', '127.0.0.1', '--replica-announce-port', String(announced)];
    const service = await startRedis({ port, settings, ...(replicaOf !== undefined && { replicaOf }) });
    return { service, announced };
  };
  const master = await startMember();
  const members = [master, await startMember(master.announced)];
  const sentinels = await Promise.all(Array.from({ length: SENTINELS }, () => startSentinel(master.announced)));
  return {
    url: `redis+sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/${MASTER}`,
    members: members.map(({ service }) => service),
    findMaster: async () => {
      const redis = new Redis(sentinels[0]?.port ?? 0, '127.0.0.1');
      const [, port] = (await redis
        .call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER)
        .finally(() => redis.disconnect())) as [string, string];
      return members.find(({ announced }) => announced === Number(port))?.service;
    },
    dispose: async () => {
      await Promise.all([...sentinels, ...members.map(({ service }) => service)].map((service) => service.dispose()));
    },
  };
};
