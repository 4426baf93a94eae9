import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import * as z from 'zod';
import { freePort } from '../services.ts';
import { ROOT } from '../services/installed.ts';

/** An error for the person at the terminal, printed without a stack. */
export class StartError extends Error {}

const DEFAULT_PORT = 3000;
const ANY_ADDRESS = new Set(['0.0.0.0', '::']);

const processCount = z.coerce.number().int().min(1).max(64).default(1);
const OwnSettings = z.object({
  API_PROCESSES: processCount,
  REPLY_WORKERS: processCount,
  DELIVERY_WORKERS: processCount,
  SOURCES_WORKERS: processCount,
  LOCAL_DIR: z.string().default('.local'),
});

export type Counts = { api: number; replyWorker: number; deliveryWorker: number; sourcesWorker: number };
/** `counts` is null if one process does everything. */
export type Settings = { counts: Counts | null; dir: string };

/** Reads the settings of the quickstart itself. All other settings are passed on to the processes that it starts. */
export const readSettings = (env: NodeJS.ProcessEnv, { isOneProcess }: { isOneProcess: boolean }): Settings => {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const parsed = OwnSettings.safeParse(given);
  if (!parsed.success) {
    throw new StartError(parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('\n'));
  }
  const { API_PROCESSES, REPLY_WORKERS, DELIVERY_WORKERS, SOURCES_WORKERS, LOCAL_DIR } = parsed.data;
  const counts = {
    api: API_PROCESSES,
    replyWorker: REPLY_WORKERS,
    deliveryWorker: DELIVERY_WORKERS,
    sourcesWorker: SOURCES_WORKERS,
  };
  if (isOneProcess && Object.values(counts).some((count) => count > 1))
    throw new StartError('--one-process has one of each: unset API_PROCESSES and the numbers of workers');
  return { counts: isOneProcess ? null : counts, dir: resolve(ROOT, LOCAL_DIR) };
};

/** The address at which this machine reaches a process that listens on `host`. */
export const reachableHost = (host: string): string => {
  if (ANY_ADDRESS.has(host)) return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
};

const isFree = (port: number, host: string): Promise<boolean> =>
  new Promise((done) => {
    const server = createServer();
    server.on('error', () => done(false));
    server.listen(port, host, () => server.close(() => done(true)));
  });

/**
 * Chooses the API's port: PORT if it is set, otherwise 3000 if that is free, otherwise another free port, which `say`
 * announces. A PORT that is set is never replaced.
 */
export const choosePort = async (env: NodeJS.ProcessEnv, host: string, say: (line: string) => void) => {
  const wanted = env['PORT'] ? Number(env['PORT']) : undefined;
  if (wanted === 0) return freePort();
  if (await isFree(wanted ?? DEFAULT_PORT, host)) return wanted ?? DEFAULT_PORT;
  if (wanted !== undefined) {
    throw new StartError(
      `PORT=${wanted}: another program listens on ${host}:${wanted}. Stop it, or give another PORT.`,
    );
  }
  const port = await freePort();
  say(`port ${DEFAULT_PORT} is taken by another program, using ${port} (PORT chooses)`);
  return port;
};

/** Distinct free ports. */
export const freePorts = async (count: number): Promise<number[]> => {
  const ports = new Set<number>();
  while (ports.size < count) ports.add(await freePort());
  return [...ports];
};

export const filesIn = (dir: string) => ({
  lock: join(dir, 'quickstart.lock'),
  state: join(dir, 'quickstart.json'),
  secrets: join(dir, 'env'),
  data: join(dir, 'data'),
  demo: join(dir, 'data/demo.json'),
  capacity: join(dir, 'data/capacity.json'),
  logs: join(dir, 'logs'),
});
