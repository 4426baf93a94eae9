import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startGuard } from './guard.ts';
import { freePort, temporaryFolder } from './resources.ts';
import type { StartCommand } from './program.ts';

export type ServiceOptions = {
  /**
   * Where the data stays. Left out: a temporary folder, in memory where there is room (so a measurement names a folder on
   * disk), that goes with `dispose` or when this process dies.
   */
  dataDir?: string;
  /** Left out: a free one, kept for the whole life of the handle. */
  port?: number;
};

/** One started Redis or MongoDB. It never outlives the process that started it, however that ends. */
export type Service = {
  readonly url: string;
  readonly port: number;
  /** The process that runs now; undefined while it is stopped. */
  readonly pid: number | undefined;
  /** Ends it in order; port and data stay. */
  stop: () => Promise<void>;
  /** SIGKILL, as a crash would; port and data stay. */
  kill: () => Promise<void>;
  /** Starts it again (stopping it first if it runs) on the same port with the same data. */
  restart: () => Promise<void>;
  /** Stops it for good and removes temporary data. */
  dispose: () => Promise<void>;
};

export type ServiceKind = {
  name: string;
  url: (port: number) => string;
  start: (where: { port: number; dataDir: string }) => StartCommand;
  /** Resolves once the service can be used; throws or rejects while it cannot. */
  ready: (where: { port: number }) => Promise<void>;
  logFile: string;
};

const START_MS = 30_000;
const STOP_MS = 10_000;

const tailOf = (file: string): string => {
  try {
    return readFileSync(file, 'utf8').trim().split('\n').slice(-5).join('\n');
  } catch {
    return '(no log)';
  }
};

/** Starts a service and waits until it can be used. Both kinds live the same life; only command and readiness differ. */
export const startService = async (kind: ServiceKind, options: ServiceOptions): Promise<Service> => {
  const dataDir = options.dataDir ?? (await temporaryFolder(kind.name));
  mkdirSync(dataDir, { recursive: true });
  const port = options.port ?? (await freePort());
  const temporary = options.dataDir === undefined;
  const { command, kill } = kind.start({ port, dataDir });
  // A program with temporary data has nothing to put in order; a container must hear SIGTERM to go.
  const seconds = temporary && !kill ? 0 : STOP_MS / 1000;
  const guard = startGuard({ seconds, ...(temporary ? { folder: dataDir } : {}) });
  const log = join(dataDir, kind.logFile);
  let current: { child: ChildProcess; ended: Promise<void>; kill: () => void } | undefined;

  const launch = async (): Promise<void> => {
    const [program = '', ...args] = command;
    // In a session of its own: Ctrl-C is for the processes that use it, which want to end their work first.
    const child = spawn(program, args, { detached: true, stdio: 'ignore' });
    child.unref();
    let exited = false;
    const ended = new Promise<void>((resolve) => {
      const end = (): void => {
        exited = true;
        if (current?.child === child) {
          current = undefined;
          guard.watch(undefined);
        }
        resolve();
      };
      child.on('exit', end).on('error', end);
    });
    current = { child, ended, kill: kill ?? (() => child.kill('SIGKILL')) };
    guard.watch(child.pid);
    const deadline = Date.now() + START_MS;
    while (true) {
      if (exited) throw new Error(`${kind.name} ended while starting:\n${tailOf(log)}`);
      const failure = await kind.ready({ port }).then(
        () => undefined,
        (cause: unknown) => cause,
      );
      if (failure === undefined) return;
      if (Date.now() > deadline) {
        await end('SIGKILL');
        throw new Error(`${kind.name} was not ready within ${START_MS / 1000} s:\n${tailOf(log)}`, { cause: failure });
      }
      await pause(20);
    }
  };

  const end = async (signal: 'SIGTERM' | 'SIGKILL'): Promise<void> => {
    if (!current) return;
    const { child, ended, kill } = current;
    if (signal === 'SIGKILL') kill();
    else child.kill(signal);
    const tooLong = setTimeout(kill, STOP_MS);
    child.ref(); // somebody waits for this
    await ended;
    clearTimeout(tooLong);
  };

  const dispose = async (): Promise<void> => {
    await end(temporary ? 'SIGKILL' : 'SIGTERM'); // nothing to put in order where all of it goes
    guard.done();
    if (temporary) rmSync(dataDir, { recursive: true, force: true });
  };

  try {
    await launch();
  } catch (cause) {
    await dispose();
    throw cause;
  }
  return {
    url: kind.url(port),
    port,
    get pid() {
      return current?.child.pid;
    },
    stop: () => end('SIGTERM'),
    kill: () => end('SIGKILL'),
    restart: async () => {
      await end('SIGTERM');
      await launch();
    },
    dispose,
  };
};
