import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startGuard } from './guard.ts';
import { freePort, temporaryFolder } from './resources.ts';
import type { StartCommand } from './program.ts';

export type ServiceOptions = {
  /**
   * The folder of persistent data. Without it, a temporary folder is used, in memory if there is enough memory.
   * `dispose`, or the death of this process, removes that temporary folder. Measurements need a folder on disk.
   */
  dataDir?: string;
  /** The port; by default a free port. It stays the same after a restart. */
  port?: number;
};

/** A Redis or MongoDB that this process started. It always ends together with this process. */
export type Service = {
  readonly url: string;
  readonly port: number;
  /** The current process id. Undefined while the service is stopped. */
  readonly pid: number | undefined;
  /** Stops the service with SIGTERM. Port and data are kept. */
  stop: () => Promise<void>;
  /** Stops the service with SIGKILL, like a crash. Port and data are kept. */
  kill: () => Promise<void>;
  /** Restarts the service on the same port with the same data. */
  restart: () => Promise<void>;
  /** Stops the service permanently and removes temporary data. */
  dispose: () => Promise<void>;
};

export type ServiceKind = {
  name: string;
  url: (port: number) => string;
  start: (where: { port: number; dataDir: string }) => StartCommand;
  /** Resolves once the service is usable, and rejects if it cannot be used. */
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

/** Starts a service and waits until it is usable. A kind of service defines its command and its readiness check. */
export const startService = async (kind: ServiceKind, options: ServiceOptions): Promise<Service> => {
  const dataDir = options.dataDir ?? (await temporaryFolder(kind.name));
  mkdirSync(dataDir, { recursive: true });
  const port = options.port ?? (await freePort());
  const temporary = options.dataDir === undefined;
  const { command, kill } = kind.start({ port, dataDir });
  // A program with temporary data can be killed immediately. A container needs SIGTERM first, because only SIGTERM also
  // removes the container.
  const seconds = temporary && !kill ? 0 : STOP_MS / 1000;
  const guard = startGuard({ seconds, ...(temporary ? { folder: dataDir } : {}) });
  const log = join(dataDir, kind.logFile);
  let current: { child: ChildProcess; ended: Promise<void>; kill: () => void } | undefined;

  const launch = async (): Promise<void> => {
    const [program = '', ...args] = command;
    // The service runs in its own session. Ctrl-C therefore does not reach it, and the processes that use it can finish
    // their work first.
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
