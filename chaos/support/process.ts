import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../scripts/services.ts';

const READY_WITHIN_MS = 30_000;

const MAINS = {
  api: 'src/main.ts',
  reply: 'workers/reply/main.ts',
  delivery: 'workers/delivery/main.ts',
  sources: 'workers/sources/main.ts',
  all: 'workers/all/main.ts',
} as const;

export type Kind = keyof typeof MAINS;

export type Process = {
  kind: Kind;
  child: ChildProcess;
  url: string;
  /** True once `end` or `kill` was called. */
  ended: boolean;
  /** Sends the signal and waits for the end. Returns the exit code, or null after SIGKILL. */
  end: (signal: 'SIGKILL' | 'SIGTERM') => Promise<number | null>;
  kill: () => Promise<void>;
};

type Options = {
  kind: Kind;
  env: Record<string, string>;
  /** The name of a planted fault (test/kit/planted.ts). */
  plant?: string | null;
  /** Shifts the clock of the process. */
  skewMs?: number;
  /** Default: a free port. */
  port?: number;
};

const alive = new Set<ChildProcess>();

/** Kills all processes, so that none outlives the run, however the run ends. */
export const killAll = (): void => {
  for (const child of alive) child.kill('SIGKILL');
};

const preloads = ({ plant = null, skewMs = 0 }: Options): string[] => [
  '--import',
  new URL('../../test/kit/stall.ts', import.meta.url).href,
  ...(plant === null ? [] : ['--import', new URL('../../test/kit/plant.ts', import.meta.url).href]),
  ...(skewMs === 0 ? [] : ['--import', new URL('../../test/kit/skewed-clock.ts', import.meta.url).href]),
];

/**
 * Starts a process as an operator does, with a planted fault or a shifted clock if they are given. Does not wait until
 * it is ready, because its stores may be down.
 */
export const spawnProcess = async (options: Options): Promise<Process> => {
  const { kind, env, plant, skewMs = 0 } = options;
  const port = options.port ?? (await freePort());
  const child = spawn(process.execPath, [...preloads(options), MAINS[kind]], {
    env: {
      ...process.env,
      LOG_LEVEL: 'warn',
      ...env,
      PORT: String(port),
      WORKER_HEALTH_PORT: String(port),
      CHAOS_PLANT: plant ?? '',
      CLOCK_SKEW_MS: String(skewMs),
    },
    stdio: ['ignore', process.env['SHOW_LOGS'] ? 'inherit' : 'ignore', process.env['SHOW_LOGS'] ? 'inherit' : 'ignore'],
  });
  alive.add(child);
  child.once('exit', () => alive.delete(child));
  const started: Process = {
    kind,
    child,
    url: `http://127.0.0.1:${port}`,
    ended: false,
    end: async (signal) => {
      started.ended = true;
      if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
      const exited = once(child, 'exit');
      child.kill(signal);
      await exited;
      return child.exitCode;
    },
    kill: async () => void (await started.end('SIGKILL')),
  };
  return started;
};

export const isReady = ({ url }: Pick<Process, 'url'>): Promise<boolean> =>
  fetch(`${url}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  );

/** Starts a process and waits until it is ready. */
export const startProcess = async (options: Options): Promise<Process> => {
  const started = await spawnProcess(options);
  const { child, kill } = started;
  const until = performance.now() + READY_WITHIN_MS;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`a process ended with ${child.exitCode}: SHOW_LOGS=1 shows why`);
    if (await isReady(started)) return started;
    if (performance.now() > until) {
      await kill();
      throw new Error(`a process was not ready within ${READY_WITHIN_MS / 1000} s`);
    }
    await sleep(20);
  }
};
