import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createConnection } from 'mongoose';
import { environmentOf, ownServices, readCompose } from './compose.ts';
import { type Ended, launch, type Program } from '../kit/processes.ts';
import { openImage } from './image.ts';
import { freePort } from '../../scripts/services.ts';
import { newEnvironment } from './stack.ts';

const EXAMPLE = readFileSync(join(import.meta.dirname, '../../.env.example'), 'utf8');

export type Container = Program & { env: Record<string, string>; health: string[] };

const dropDatabase = async (url: string): Promise<void> => {
  const database = await createConnection(url).asPromise();
  await database.dropDatabase();
  await database.close();
};

/**
 * Starts the image's processes like the compose file, with `.env.example` and `settings` as `.env`, but with the Redis,
 * the MongoDB and the ports of this test run. `sh` runs commands with a fake `docker` that reaches these processes.
 */
export const startContainers = async (settings: Record<string, string>) => {
  const image = await openImage();
  const { MONGODB_URL = '', REDIS_URL = '', REDIS_PREFIX = '' } = newEnvironment();
  const own = { ...settings, REDIS_PREFIX, ENCRYPTION_KEY: randomBytes(32).toString('base64') };
  const dotEnv = [EXAMPLE, ...Object.entries(own).map(([name, value]) => `${name}=${value}\n`)].join('');

  const containers: Record<string, Container> = {};
  for (const [name, service] of ownServices(readCompose({ dotEnv }))) {
    const port = await freePort().then(String);
    const addresses = { MONGODB_URL, REDIS_URL, HOST: '127.0.0.1', PORT: port, WORKER_HEALTH_PORT: port };
    const settled = environmentOf(service, { dotEnv });
    // The image is only a folder in this test, so a path in the image is looked up below that folder.
    const SEMANTIC_DIR = join(image.stage.root, settled['SEMANTIC_DIR'] ?? '');
    const env = { ...settled, ...addresses, SEMANTIC_DIR };
    containers[name] = { ...image.start(service.command, env), env, health: service.healthcheck.test.slice(1) };
  }

  const work = join(image.folder, 'work');
  const calls = join(work, 'calls');
  const told = Object.entries(containers).map(([name, { env, health }]) => [
    name,
    { env: { ...image.env, ...env }, health },
  ]);
  const services = Object.fromEntries(told) as unknown;
  await mkdir(work);
  await writeFile(join(work, 'password.txt'), 'correct horse battery\n');
  await writeFile(
    join(work, 'docker.json'),
    JSON.stringify({ calls, app: image.stage.workdir, as: image.as, services }),
  );

  const sh = (line: string, env: Record<string, string> = {}): Promise<Ended> => {
    const all = { PATH: `${image.env['PATH']}:/usr/bin:/bin`, FAKE_DOCKER: join(work, 'docker.json'), ...env };
    return launch('sh', ['-c', line], { cwd: work, env: all }).ended;
  };
  const close = async (): Promise<void> => {
    for (const { kill } of Object.values(containers)) await kill();
    await dropDatabase(MONGODB_URL);
    await image.close();
  };
  return {
    image,
    containers,
    /** Runs a `docker` command line in a folder with a `password.txt`. */
    sh,
    /** The arguments of all calls of `docker` so far. */
    calls: async () => (await readFile(calls, 'utf8')).trim().split('\n'),
    close,
  };
};
