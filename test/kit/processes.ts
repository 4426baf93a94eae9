import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { freePort } from '../../scripts/services.ts';
import { eventually } from '../support/eventually.ts';

export const MAINS = {
  api: 'src/main.ts',
  reply: 'workers/reply/main.ts',
  delivery: 'workers/delivery/main.ts',
  sources: 'workers/sources/main.ts',
  all: 'workers/all/main.ts',
  quickSources: 'test/support/sources-process.ts',
  quickReply: 'test/support/reply-process.ts',
  quickAll: 'test/support/all-process.ts',
} as const;

const LINES_SHOWN = 20;

export type Kind = keyof typeof MAINS;
export type RealProcess = {
  kind: Kind;
  child: ChildProcess;
  url: string;
  kill: (signal?: NodeJS.Signals) => Promise<void>;
  /** Every line that it has written, to standard output or error. */
  said: readonly string[];
  /** The last of these lines and the exit status, for the message of a failed wait. */
  describe: () => string;
};

/** Starts a `main.ts` as its own process, and waits for `/readyz`. */
export const startRealProcess = async (
  kind: Kind,
  env: Record<string, string>,
  port?: number,
  nodeArgs: string[] = [],
): Promise<RealProcess> => {
  const listen = port ?? (await freePort());
  const child = spawn(process.execPath, [...nodeArgs, MAINS[kind]], {
    env: {
      ...process.env,
      LOG_LEVEL: 'warn',
      SEMANTIC: 'off',
      ...env,
      PORT: String(listen),
      WORKER_HEALTH_PORT: String(listen),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => said.push(line));
  }
  const describe = (): string => {
    const state = child.exitCode ?? child.signalCode;
    return [
      `${kind} at ${listen} ${state === null ? 'runs' : `ended with ${state}`}`,
      ...said.slice(-LINES_SHOWN),
    ].join('\n  ');
  };
  const url = `http://127.0.0.1:${listen}`;
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(describe());
    if (!(await fetch(`${url}/readyz`)).ok) throw new Error(`${kind} is not ready`);
  }).catch((cause: unknown) => {
    child.kill('SIGKILL');
    throw cause;
  });
  return {
    kind,
    child,
    url,
    said,
    kill: async (signal = 'SIGKILL') => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.kill(signal);
      await ended;
    },
    describe,
  };
};
