import { randomInt } from 'node:crypto';
import { mkdtemp, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ROOMY = 4 * 1024 ** 3;
const PORTS = { from: 20_000, to: 32_000 };
const TRIES = 100;

export const isFree = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer().unref();
    server.on('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });

/**
 * A free port below the range from which the system takes ports for outgoing connections. With a port from that range,
 * a client that retries a stopped service could get the service's own port, connect to itself and block the restart.
 */
export const freePort = async ({ from, to } = PORTS): Promise<number> => {
  for (let tries = 0; tries < TRIES; tries++) {
    const port = randomInt(from, to);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port between ${from} and ${to}`);
};

/** Creates a temporary folder, in memory if there is enough memory, so that tests do not wait for the disk. */
export const temporaryFolder = async (name: string): Promise<string> => {
  const memory = await statfs('/dev/shm').catch(() => undefined);
  const base = memory && memory.bavail * memory.bsize > ROOMY ? '/dev/shm' : tmpdir();
  return mkdtemp(join(base, `parley-${name}-`));
};
