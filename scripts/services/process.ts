import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startGuard } from './guard.ts';
import { freePort, temporaryFolder } from './resources.ts';
import type { StartCommand } from './program.ts';

export type ServiceOptions = {
  /**
   * The folder of persistent data. If omitted, a temporary folder is used, in memory if there is room, and removed by
   * `dispose` or when this process dies. Measurements need a folder on disk.
   */
  dataDir?: string;
  /** A free port if omitted. It stays the same for the life of the handle. */
  port?: number;
};

/** A started Redis or MongoDB. It always ends with the process that started it. */
export type Service = {
  readonly url: string;
  readonly port: number;
  /** The current process id; undefined while it is stopped. */
  readonly pid: number | undefined;
  /** Stops it with SIGTERM; port and data stay. */
  stop: () => Promise<void>;
  /** Stops it with SIGKILL, like a crash; port and data stay. */
  kill: () => Promise<void>;
  /** Restarts it on the same port with the same data. */
  restart: () => Promise<void>;
  /** Stops it permanently and removes temporary data. */
  dispose: () => Promise<void>;
};

export type ServiceKind = {
  name: string;
  url: (port: number) => string;
  start: (where: { port: number; dataDir: string }) => StartCommand;
  /** Resolves if the service is usable; rejects otherwise. */
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

/** Starts a service and waits until it is usable. Kinds differ only in command and readiness check. */
export const startService = async (kind: ServiceKind, options: ServiceOptions): Promise<Service> => {
  const dataDir = options.dataDir ?? (await temporaryFolder(kind.name));
  mkdirSync(dataDir, { recursive: true });
  const port = options.port ?? (await freePort());
  const temporary = options.dataDir === undefined;
  const { command, kill } = kind.start({ port, dataDir });
  // A program with temporary data can be killed at once; a container needs SIGTERM to be removed.
  const seconds = temporary && !kill ? 0 : STOP_MS / 1000;
  const guard = startGuard({ seconds, ...(temporary ? { folder: dataDir } : {}) });
  const log = join(dataDir, kind.logFile);
  let current: { child: ChildProcess; ended: Promise<void>; kill: () => void } | undefined;

  const launch = async (): Promise<void> => {
    const [program = '', ...args] = command;
    // In its own session, so that Ctrl-C reaches only its users, which finish their work first.
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
    child.ref(); // the caller waits for its end
    await ended;
    clearTimeout(tooLong);
  };

  const dispose = async (): Promise<void> => {
    await end(temporary ? 'SIGKILL' : 'SIGTERM'); // temporary data needs no clean stop
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
