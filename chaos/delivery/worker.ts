import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../scripts/services.ts';

const READY_WITHIN_MS = 30_000;

export type Worker = { child: ChildProcess; readyAt: number; kill: () => Promise<void> };

const alive = new Set<ChildProcess>();

/** Kills all workers, so that none outlives the run, however the run ends. */
export const killAllWorkers = (): void => {
  for (const child of alive) child.kill('SIGKILL');
};

const MAINS = { delivery: 'workers/delivery/main.ts', reply: 'workers/reply/main.ts' } as const;

/** Starts a worker as an operator does, with a planted fault if one is named. Resolves when the worker is ready. */
export const startWorker = async (
  env: Record<string, string>,
  { kind = 'delivery', plant = null }: { kind?: keyof typeof MAINS; plant?: string | null } = {},
): Promise<Worker> => {
  const port = await freePort();
  const preload = plant === null ? [] : ['--import', new URL('plant.ts', import.meta.url).href];
  const child = spawn(process.execPath, [...preload, MAINS[kind]], {
    env: {
      ...process.env,
      LOG_LEVEL: 'warn',
      ...env,
      WORKER_HEALTH_PORT: String(port),
      CHAOS_PLANT: plant ?? '',
    },
    stdio: ['ignore', 'ignore', process.env['SHOW_LOGS'] ? 'inherit' : 'ignore'],
  });
  alive.add(child);
  child.once('exit', () => alive.delete(child));
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  const until = performance.now() + READY_WITHIN_MS;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`a worker ended with ${child.exitCode}: SHOW_LOGS=1 shows why`);
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (ready) return { child, readyAt: performance.now(), kill };
    if (performance.now() > until) {
      await kill();
      throw new Error('a worker was not ready within 30 s');
    }
    await sleep(20);
  }
};
