import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { type Guard, startGuard } from '../services/guard.ts';

export type ChildSpec = {
  /** A unique name, such as `api-1`. It is also the name of the log file. */
  name: string;
  /** The group to which the process belongs in `pids`, such as `api`. */
  kind: string;
  /** The arguments for Node, such as `['src/main.ts']`. */
  args: string[];
  env?: Record<string, string>;
  /**
   * Called repeatedly after each start until it returns true. Without this function, the process counts as ready
   * immediately.
   */
  isReady?: () => Promise<boolean>;
  /** If true, the standard output of the process goes to the terminal, not to its log. */
  inheritStdout?: boolean;
};

export type SupervisorOptions = {
  cwd: string;
  env: NodeJS.ProcessEnv;
  logDir: string;
  /** Prints one line for the person at the terminal. */
  say: (line: string) => void;
  /** Called when process ids change. The quickstart then updates `.local/quickstart.json`. */
  onChange: (pids: Record<string, number[]>) => void;
  /** The time between SIGTERM and SIGKILL. */
  stopMs?: number;
  readyMs?: number;
  /** If given, it receives the output of all processes, and no log files are written. */
  show?: (output: Readable) => void;
};

export type Supervisor = {
  /** Starts a process and resolves when it is ready. The process is restarted whenever it ends. */
  start: (spec: ChildSpec) => Promise<void>;
  pids: () => Record<string, number[]>;
  /** Ends all processes in parallel. Resolves with true if all of them ended in time. */
  stop: () => Promise<boolean>;
  /** Kills all processes that are still running. It is meant for a stop that takes too long. */
  kill: () => void;
};

type Child = { spec: ChildSpec; process?: ChildProcess; guard: Guard; startedAt: number; delayMs: number };

const FIRST_DELAY_MS = 200;
const LONGEST_DELAY_MS = 5000;
const STEADY_MS = 10_000;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const isRunning = (child: Child): boolean =>
  child.process !== undefined && child.process.exitCode === null && child.process.signalCode === null;

/**
 * Keeps processes running until the supervisor is stopped. Each process has its own session, so that Ctrl-C reaches
 * only the supervisor, which then stops the processes in order. If the supervisor is killed, a guard process ends them.
 */
export const createSupervisor = (options: SupervisorOptions): Supervisor => {
  const { cwd, env, logDir, say, onChange, show, stopMs = 20_000, readyMs = 30_000 } = options;
  const children = new Map<string, Child>();
  let stopping = false;
  let stopped: Promise<boolean> | undefined;

  const pids = (): Record<string, number[]> => {
    const byKind: Record<string, number[]> = {};
    for (const { spec, process } of children.values()) {
      const list = (byKind[spec.kind] ??= []);
      if (process?.pid !== undefined) list.push(process.pid);
    }
    return byKind;
  };

  const launch = (child: Child): void => {
    const { spec } = child;
    const log = openSync(join(logDir, `${spec.name}.log`), 'a');
    const started = spawn(process.execPath, spec.args, {
      cwd,
      env: { ...env, ...spec.env },
      stdio: ['ignore', spec.inheritStdout ? 'inherit' : show ? 'pipe' : log, show ? 'pipe' : log],
      detached: true,
    });
    closeSync(log);
    for (const output of [started.stdout, started.stderr]) if (output) show?.(output);
    child.process = started;
    child.startedAt = Date.now();
    child.guard.watch(started.pid);
    started.on('error', (cause) => say(`${spec.name} could not be started: ${cause.message}`));
    started.on('exit', (code, signal) => {
      child.guard.watch(undefined);
      if (stopping) return;
      delete child.process;
      onChange(pids());
      void restart(child, `${spec.name} (pid ${started.pid}) ended by ${signal ?? `itself with status ${code}`}`);
    });
    onChange(pids());
  };

  const restart = async (child: Child, what: string): Promise<void> => {
    // A process that ends soon after its start is restarted with a growing delay, so that it cannot use all CPU.
    const steady = Date.now() - child.startedAt > STEADY_MS;
    child.delayMs = steady ? FIRST_DELAY_MS : Math.min(child.delayMs * 2, LONGEST_DELAY_MS);
    await pause(child.delayMs);
    if (stopping) return;
    launch(child);
    say(`${what}; started again as pid ${child.process?.pid}`);
  };

  const untilReady = async (child: Child): Promise<void> => {
    const { spec } = child;
    const deadline = Date.now() + readyMs;
    while (spec.isReady && !(await spec.isReady().catch(() => false))) {
      const log = join(logDir, `${spec.name}.log`);
      if (stopping) throw new Error('stopped before everything was started');
      if (!isRunning(child)) throw new Error(`${spec.name} ended while starting: see ${log}`);
      if (Date.now() > deadline) throw new Error(`${spec.name} was not ready within ${readyMs / 1000} s: see ${log}`);
      await pause(50);
    }
  };

  const stopOne = async (child: Child): Promise<boolean> => {
    const { process: running, guard, spec } = child;
    let inTime = true;
    if (running && isRunning(child)) {
      const ended = new Promise<void>((resolve) => running.once('exit', () => resolve()));
      const timer = setTimeout(() => {
        inTime = false;
        say(`${spec.name} (pid ${running.pid}) did not end within ${stopMs / 1000} s: killed`);
        running.kill('SIGKILL');
      }, stopMs);
      running.kill('SIGTERM');
      await ended;
      clearTimeout(timer);
    }
    guard.done();
    return inTime;
  };

  return {
    pids,
    start: async (spec) => {
      if (stopping) throw new Error('stopped before everything was started');
      mkdirSync(logDir, { recursive: true });
      const guard = startGuard({ seconds: Math.ceil(stopMs / 1000) });
      const child: Child = { spec, guard, startedAt: 0, delayMs: FIRST_DELAY_MS / 2 };
      children.set(spec.name, child);
      launch(child);
      await untilReady(child);
    },
    stop: () => {
      stopping = true;
      stopped ??= Promise.all([...children.values()].map(stopOne)).then((inTime) => inTime.every(Boolean));
      return stopped;
    },
    kill: () => {
      stopping = true;
      for (const { process } of children.values()) process?.kill('SIGKILL');
    },
  };
};
