import { type ChildProcess, spawn, type SpawnOptions } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../scripts/services.ts';

const ROOT = join(import.meta.dirname, '../..');

export const MAINS = {
  api: 'src/main.ts',
  reply: 'workers/reply/main.ts',
  delivery: 'workers/delivery/main.ts',
  sources: 'workers/sources/main.ts',
  all: 'workers/all/main.ts',
  quickAll: 'test/support/quick-process.ts all',
  quickReply: 'test/support/quick-process.ts reply',
  quickSemantic: 'test/support/quick-process.ts semantic',
  quickSources: 'test/support/quick-process.ts sources',
} as const;

const READY_WITHIN_MS = 120_000;
const STOP_WITHIN_MS = 6_000;
const LINES_SHOWN = 20;

const alive = new Set<Program>();

/** Kills all programs, so that none outlives the run, however the run ends. Resolves when they have ended. */
export const killAll = async (): Promise<void> => {
  await Promise.all([...alive].map(({ kill }) => kill()));
};

export const stopAll = async (): Promise<void> => {
  await Promise.all([...alive].map(({ stop }) => stop()));
};

export type Ended = { status: number | null; stdout: string; stderr: string };

export type Program = {
  child: ChildProcess;
  pid: number;
  /** What it has written so far. `said` is both, as it came. */
  output: { stdout: string; stderr: string; said: string };
  ended: Promise<Ended>;
  /** Sends the signal, SIGKILL if none is named, and waits for the end. */
  kill: (signal?: NodeJS.Signals) => Promise<void>;
  /** SIGTERM, and SIGKILL if it does not end. */
  stop: () => Promise<void>;
};

/** Starts any program. Its output is kept, unless `stdio` says otherwise. */
export const launch = (program: string, args: string[], options: SpawnOptions = {}): Program => {
  const child = spawn(program, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'], ...options });
  const output = { stdout: '', stderr: '', said: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (text: string) => {
      output[name] += text;
      output.said += text;
    });
  }
  const ended = new Promise<Ended>((resolve) => {
    child.on('close', (status) => {
      alive.delete(launched);
      resolve({ stdout: output.stdout, stderr: output.stderr, status });
    });
  });
  const kill: Program['kill'] = async (signal = 'SIGKILL') => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  };
  const stop = async (): Promise<void> => {
    const late = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS);
    await kill('SIGTERM');
    clearTimeout(late);
  };
  const launched: Program = { child, pid: child.pid ?? -1, output, ended, kill, stop };
  alive.add(launched);
  return launched;
};

/** Starts a module of ours that answers messages, as `fork` does. */
export const launchPeer = (file: URL): Program =>
  launch(process.execPath, [file.pathname], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });

export type Kind = keyof typeof MAINS;
export type RealProcess = Program & {
  kind: Kind;
  port: number;
  url: string;
  /** True once `kill` or `stop` was called. */
  isTold: boolean;
  /** Every line that it has written, to standard output or error. */
  said: readonly string[];
  /** The last of these lines and the exit status, for the message of a failed wait. */
  describe: () => string;
};

export type ProcessOptions = {
  /** Another program that listens at PORT or WORKER_HEALTH_PORT. */
  file?: string;
  /** Default: a free port. */
  port?: number | undefined;
  nodeArgs?: string[];
  /** The name of a planted fault (planted.ts). */
  plant?: string | null;
  /** Shifts the clock of the process. */
  skewMs?: number;
  /** Settings that the environment of this process does not decide. */
  defaults?: Record<string, string>;
  stdio?: SpawnOptions['stdio'];
};

/** Starts a `main.ts` as an operator does. Does not wait until it is ready, because its stores may be down. */
export const spawnProcess = async (
  kind: Kind,
  env: Record<string, string>,
  {
    file = MAINS[kind],
    port: given,
    nodeArgs = [],
    plant = null,
    skewMs = 0,
    defaults = QUIET,
    stdio,
  }: ProcessOptions = {},
): Promise<RealProcess> => {
  const port = given ?? (await freePort());
  const ports = { PORT: String(port), WORKER_HEALTH_PORT: String(port) };
  const preloads = [
    ...(plant === null ? [] : [`plant.ts?${encodeURIComponent(plant)}`]),
    ...(skewMs === 0 ? [] : [`skewed-clock.ts?${skewMs}`]),
  ];
  const imports = preloads.flatMap((one) => ['--import', new URL(one, import.meta.url).href]);
  const program = launch(process.execPath, [...nodeArgs, ...imports, ...file.split(' ')], {
    env: { ...process.env, ...defaults, ...env, ...ports },
    ...(stdio !== undefined && { stdio }),
  });
  const { child } = program;
  const said: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    if (stream) createInterface({ input: stream }).on('line', (line) => said.push(line));
  }
  const started: RealProcess = {
    ...program,
    kind,
    port,
    url: `http://127.0.0.1:${port}`,
    isTold: false,
    said,
    describe: () => {
      const state = child.exitCode ?? child.signalCode;
      const how = `${file} at ${port} ${state === null ? 'runs' : `ended with ${state}`}`;
      return [how, ...said.slice(-LINES_SHOWN)].join('\n  ');
    },
    kill: (signal) => {
      started.isTold = true;
      return program.kill(signal);
    },
    stop: () => {
      started.isTold = true;
      return program.stop();
    },
  };
  return started;
};
const QUIET = { LOG_LEVEL: 'warn', SEMANTIC: 'off' };

export const isReady = ({ url }: Pick<RealProcess, 'url'>): Promise<boolean> =>
  fetch(`${url}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  );

/** Starts a process and waits until it is ready. */
export const startRealProcess = async (
  kind: Kind,
  env: Record<string, string>,
  options: ProcessOptions = {},
): Promise<RealProcess> => {
  const started = await spawnProcess(kind, env, options);
  const { child, describe } = started;
  const until = performance.now() + READY_WITHIN_MS;
  while (!(await isReady(started))) {
    if (child.exitCode !== null || performance.now() > until) {
      await started.kill();
      throw new Error(describe());
    }
    await sleep(20);
  }
  return started;
};
