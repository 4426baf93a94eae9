import { connect } from 'node:net';
import { type Service, type ServiceOptions, startService } from './process.ts';
import { type ServiceLocation, startCommand } from './program.ts';

export type RedisOptions = ServiceOptions & {
  /** The port of the master that this Redis copies. */
  replicaOf?: number;
  /** If true, Redis writes an append-only file, so that data survives a stop or kill. Default: false. */
  persistent?: boolean;
  /** More settings, as on the command line. */
  settings?: string[];
};

export const pingRedis = ({ port }: { port: number }): Promise<void> =>
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
export const startRedis = (given: RedisOptions = {}): Promise<Service> => {
  const { persistent = false, replicaOf, settings: more = [], ...options } = given;
  const settings = ({ port, dir, bind }: ServiceLocation): string[] => {
    const network = ['--port', String(port), '--bind', bind, '--protected-mode', 'no'];
    const storage = ['--dir', dir, '--appendonly', persistent ? 'yes' : 'no', '--save', ''];
    const copies = replicaOf === undefined ? [] : ['--replicaof', '127.0.0.1', String(replicaOf)];
    const log = ['--logfile', `${dir}/redis.log`];
    return [...network, ...storage, ...copies, '--maxmemory-policy', 'noeviction', ...log, ...more];
  };
  return startService(
    {
      name: 'redis',
      logFile: 'redis.log',
      url: (port) => `redis://127.0.0.1:${port}`,
      ready: pingRedis,
      start: (where) => startCommand({ service: 'redis', program: 'redis-server', settings }, where),
    },
    options,
  );
};
