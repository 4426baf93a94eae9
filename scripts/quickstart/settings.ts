import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import * as z from 'zod';
import { freePort } from '../services.ts';
import { ROOT } from '../services/found.ts';

/** A failure whose words are for the person at the keyboard: printed without a stack. */
export class StartError extends Error {}

const USUAL_PORT = 3000;
const EVERYWHERE = new Set(['0.0.0.0', '::']);

const howMany = z.coerce.number().int().min(1).max(64).default(1);
const Own = z.object({
  API_PROCESSES: howMany,
  REPLY_WORKERS: howMany,
  DELIVERY_WORKERS: howMany,
  LOCAL_DIR: z.string().default('.local'),
});

export type Counts = { api: number; replyWorker: number; deliveryWorker: number };
export type Settings = { counts: Counts; dir: string };

/** What the quickstart itself is told; every other setting is passed on to the processes it starts. */
export const readSettings = (env: NodeJS.ProcessEnv): Settings => {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const parsed = Own.safeParse(given);
  if (!parsed.success) {
    throw new StartError(parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('\n'));
  }
  const { API_PROCESSES, REPLY_WORKERS, DELIVERY_WORKERS, LOCAL_DIR } = parsed.data;
  return {
    counts: { api: API_PROCESSES, replyWorker: REPLY_WORKERS, deliveryWorker: DELIVERY_WORKERS },
    dir: resolve(ROOT, LOCAL_DIR),
  };
};

/** Where a process that listens on `host` is reached from this machine. */
export const hostToReach = (host: string): string => {
  if (EVERYWHERE.has(host)) return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
};

const isFree = (port: number, host: string): Promise<boolean> =>
  new Promise((done) => {
    const server = createServer();
    server.on('error', () => done(false));
    server.listen(port, host, () => server.close(() => done(true)));
  });

/** The API's port: PORT, else 3000, else a free one, about which `say` tells. A PORT that was asked for is not swapped. */
export const choosePort = async (env: NodeJS.ProcessEnv, host: string, say: (line: string) => void) => {
  const asked = env['PORT'] ? Number(env['PORT']) : undefined;
  if (asked === 0) return freePort();
  if (await isFree(asked ?? USUAL_PORT, host)) return asked ?? USUAL_PORT;
  if (asked !== undefined) {
    throw new StartError(`PORT=${asked}: another program listens on ${host}:${asked}. Stop it, or give another PORT.`);
  }
  const port = await freePort();
  say(`port ${USUAL_PORT} is taken by another program, using ${port} (PORT chooses)`);
  return port;
};

/** Free ports, each another one. */
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
  logs: join(dir, 'logs'),
});
