import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { startMongod, startRedis } from '../../scripts/services.ts';
import { stopAll } from './processes.ts';

const ROOT = join(import.meta.dirname, '../..');
/**
 * The stores keep their data on disk. In memory, journal syncs would cost nothing and the figures would be too good.
 */
const DATA = join(ROOT, '.local/bench');
const TICK_MS = 10; // USER_HZ is 100 on Linux

const opened: (() => unknown)[] = [];

/** `closeAll` calls this. What was opened last is closed first. */
export const atClose = (close: () => unknown): void => void opened.push(close);

const closeNow = async (): Promise<void> => {
  await stopAll();
  for (const close of opened.splice(0).toReversed()) await Promise.resolve(close()).catch(() => undefined);
};

let closing: Promise<void> | undefined;

/** Stops all programs and closes all stores that this process has opened. Concurrent calls share one result. */
export const closeAll = async (): Promise<void> => {
  closing ??= closeNow().finally(() => (closing = undefined));
  await closing;
};

export const cpuMsOf = (pid: number): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
};

/** The total number of times that the threads of a process went to sleep and were woken again. */
export const wakeUpsOf = (pid: number): number =>
  readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
    return sum + Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1] ?? 0);
  }, 0);

/** The resident memory of a process, now or at most. */
export const memoryMbOf = (pid: number, what: 'VmRSS' | 'VmHWM' = 'VmRSS'): number =>
  Number(new RegExp(`${what}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

/** Starts a separate Redis and mongod with server-sized caches. Their data is on disk until `closeAll`. */
export const openServices = async (part: string) => {
  const folder = join(DATA, `${part}-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  const redis = await startRedis({ dataDir: join(folder, 'redis') });
  const mongod = await startMongod({ dataDir: join(folder, 'mongodb'), modest: false });
  atClose(async () => {
    await Promise.all([redis.dispose(), mongod.dispose()]);
    rmSync(folder, { recursive: true, force: true });
  });
  return {
    redisUrl: redis.url,
    mongodbUrlOf: (database: string) => mongod.url.replace('/parley?', `/${database}?`),
    pids: { mongod: mongod.pid as number, redis: redis.pid as number },
  };
};

export type Services = Awaited<ReturnType<typeof openServices>>;
