import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort, startMongod, startRedis } from '../../scripts/services.ts';

const ROOT = join(import.meta.dirname, '../..');
/**
 * The stores keep their data on disk. In memory, journal syncs would cost nothing and the figures would be too good.
 */
const DATA = join(ROOT, '.local/bench');
const READY_WITHIN_MS = 60_000;
const STOP_WITHIN_MS = 6_000;
const TICK_MS = 10; // USER_HZ is 100 on Linux

export type Child = { name: string; pid: number; port: number; stop: () => Promise<void> };

type Start = {
  name: string;
  file: string;
  env: Record<string, string>;
  /** The environment variable that sets the process's port. */
  portIn?: 'PORT' | 'WORKER_HEALTH_PORT';
  nodeArgs?: string[];
};

const open = new Set<() => Promise<void>>();

/** Stops all processes that the bench has started, by process id. Concurrent calls share one result. */
export const closeAll = async (): Promise<void> => {
  closing ??= Promise.allSettled([...open].map((close) => close())).finally(() => (closing = undefined));
  await closing;
};

let closing: Promise<unknown> | undefined;

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

export const memoryMbOf = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

export const startChild = async ({ name, file, env, portIn = 'PORT', nodeArgs = [] }: Start): Promise<Child> => {
  const port = await freePort();
  const child = spawn(process.execPath, [...nodeArgs, join(ROOT, file)], {
    cwd: ROOT,
    env: { ...process.env, ...env, [portIn]: String(port) },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = once(child, 'exit');
  const stop = async (): Promise<void> => {
    open.delete(stop);
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS);
    await ended;
    clearTimeout(late);
  };
  open.add(stop);
  const until = performance.now() + READY_WITHIN_MS;
  for (;;) {
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (ready) return { name, pid: child.pid as number, port, stop };
    if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode} while it started`);
    if (performance.now() > until) throw new Error(`${name} was not ready within ${READY_WITHIN_MS / 1000} s`);
    await sleep(5);
  }
};

/** Starts a separate Redis and mongod with server-sized caches. Their data is on disk until they are closed. */
export const openServices = async (part: string) => {
  const folder = join(DATA, `${part}-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  const redis = await startRedis({ dataDir: join(folder, 'redis') });
  const mongod = await startMongod({ dataDir: join(folder, 'mongodb'), modest: false });
  const close = async (): Promise<void> => {
    open.delete(close);
    await Promise.all([redis.dispose(), mongod.dispose()]);
    rmSync(folder, { recursive: true, force: true });
  };
  open.add(close);
  return {
    redisUrl: redis.url,
    mongodbUrlOf: (database: string) => mongod.url.replace('/parley?', `/${database}?`),
    pids: { mongod: mongod.pid as number, redis: redis.pid as number },
    close,
  };
};

export type Services = Awaited<ReturnType<typeof openServices>>;
