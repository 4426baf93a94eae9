import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type Service, startService } from './process.ts';
import { type ServiceLocation, startCommand } from './program.ts';
import { pingRedis, startRedis } from './redis.ts';
import { freePort } from './resources.ts';

const MASTER = 'parley';
const SENTINELS = 3;
const QUORUM = 2;
/** Four rounds: a sentinel asks for the state of a replica every 10 s. */
const COMPLETE_MS = 40_000;
const ANSWER_MS = 10_000;
const EVERY_MS = 50;

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

/** Sends one `SENTINEL` command about the master. */
const ask = async ({ port }: Service, command: string): Promise<unknown> => {
  const redis = new Redis(port, '127.0.0.1', { commandTimeout: ANSWER_MS, maxRetriesPerRequest: 0 });
  redis.on('error', () => undefined);
  try {
    return await redis.call('SENTINEL', command, MASTER);
  } finally {
    redis.disconnect();
  }
};

/** The fields of one `SENTINEL MASTER` or `SENTINEL REPLICAS` entry: names and values in turn. */
const fieldsOf = (entry: string[]): Map<string, string> =>
  new Map(Array.from({ length: entry.length / 2 }, (_, index) => [entry[2 * index] ?? '', entry[2 * index + 1] ?? '']));

/**
 * Waits until this sentinel can take part in a failover: it knows the other sentinels, and the replica is in sync with
 * the master. Sentinels learn of each other every 2 s, and of replicas every 10 s.
 */
const untilComplete = async (sentinel: Service): Promise<void> => {
  const until = performance.now() + COMPLETE_MS;
  const isComplete = async (): Promise<boolean> => {
    const master = fieldsOf((await ask(sentinel, 'MASTER')) as string[]);
    const [replica = []] = (await ask(sentinel, 'REPLICAS')) as string[][];
    const others = Number(master.get('num-other-sentinels'));
    return others === SENTINELS - 1 && fieldsOf(replica).get('master-link-status') === 'ok';
  };
  while (!(await isComplete().catch(() => false))) {
    if (performance.now() > until) throw new Error(`sentinel ${sentinel.port} cannot take part in a failover`);
    await pause(EVERY_MS);
  }
};

export type SentinelSet = {
  /** For REDIS_URL. */
  url: string;
  /** The master and its replicas, in the order of their start. */
  members: Service[];
  /** The member that the sentinels name as master. */
  findMaster: () => Promise<Service | undefined>;
  dispose: () => Promise<void>;
};

type SentinelSetOptions = {
  /** The port on which sentinels, replicas and clients reach the member with this port. Default: its own. */
  announcedPortOf?: (port: number) => Promise<number>;
};

/** Starts a Redis with one replica, and three sentinels that promote the replica when the master is away for 1 s. */
export const startSentinelSet = async ({
  announcedPortOf = (port) => Promise.resolve(port),
}: SentinelSetOptions = {}): Promise<SentinelSet> => {
  const started: Service[] = [];
  const dispose = async (): Promise<void> => {
    await Promise.all(started.map((service) => service.dispose()));
  };
  const startMember = async (replicaOf?: number) => {
    const port = await freePort();
    const announced = await announcedPortOf(port);
    const settings = ['--replica-announce-ip', '127.0.0.1', '--replica-announce-port', String(announced)];
    const service = await startRedis({ port, settings, ...(replicaOf !== undefined && { replicaOf }) });
    started.push(service);
    return { service, announced };
  };
  const startNextSentinel = async (master: number): Promise<Service> => {
    const sentinel = await startSentinel(master);
    started.push(sentinel);
    return sentinel;
  };
  try {
    const master = await startMember();
    const members = [master, await startMember(master.announced)];
    const first = await startNextSentinel(master.announced);
    const sentinels = [first];
    while (sentinels.length < SENTINELS) sentinels.push(await startNextSentinel(master.announced));
    await Promise.all(sentinels.map(untilComplete));
    return {
      url: `redis+sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/${MASTER}`,
      members: members.map(({ service }) => service),
      findMaster: async () => {
        const [, port] = (await ask(first, 'GET-MASTER-ADDR-BY-NAME')) as [string, string];
        return members.find(({ announced }) => announced === Number(port))?.service;
      },
      dispose,
    };
  } catch (cause) {
    await dispose();
    throw cause;
  }
};
