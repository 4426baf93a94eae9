import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { mkdtemp, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ROOT } from './found.ts';
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
const ROOMY = 4 * 1024 ** 3;

export const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer().unref();
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        typeof address === 'object' && address ? resolve(address.port) : reject(new Error('no port')),
      );
    });
  });

/** In memory where there is plenty: a test run then need not wait for the disk at each commit. */
const temporaryFolder = async (name: string): Promise<string> => {
  const memory = await statfs('/dev/shm').catch(() => undefined);
  const base = memory && memory.bavail * memory.bsize > ROOMY ? '/dev/shm' : tmpdir();
  return mkdtemp(join(base, `parley-${name}-`));
};

const startGuard = (folder: string | undefined): ChildProcess => {
  const script = join(ROOT, 'scripts/setup/guard.sh');
  const guard = spawn('sh', [script, String(STOP_MS / 1000), ...(folder === undefined ? [] : [folder])], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  guard.on('error', () => undefined);
  guard.stdin?.on('error', () => undefined);
  guard.unref();
  return guard;
};

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
  const guard = startGuard(options.dataDir === undefined ? dataDir : undefined);
  const log = join(dataDir, kind.logFile);
  let current: { child: ChildProcess; ended: Promise<void>; kill: () => void } | undefined;

  const launch = async (): Promise<void> => {
    const { command, kill } = kind.start({ port, dataDir });
    const [program = '', ...args] = command;
    // In a session of its own: Ctrl-C is for the processes that use it, which want to end their work first.
    const child = spawn(program, args, { detached: true, stdio: 'ignore' });
    child.unref();
    let over = false;
    const ended = new Promise<void>((resolve) => {
      const end = (): void => {
        over = true;
        if (current?.child === child) {
          current = undefined;
          guard.stdin?.write('-\n');
        }
        resolve();
      };
      child.on('exit', end).on('error', end);
    });
    current = { child, ended, kill: kill ?? (() => child.kill('SIGKILL')) };
    guard.stdin?.write(`${child.pid ?? '-'}\n`);
    const deadline = Date.now() + START_MS;
    while (true) {
      if (over) throw new Error(`${kind.name} ended while starting:\n${tailOf(log)}`);
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
    const temporary = options.dataDir === undefined;
    await end(temporary ? 'SIGKILL' : 'SIGTERM'); // nothing to put in order where all of it goes
    guard.stdin?.end('done\n');
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
