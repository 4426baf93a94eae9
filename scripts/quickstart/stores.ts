import { mkdirSync } from 'node:fs';
import { type Service, startServices } from '../services.ts';

const CHECK_EVERY_MS = 500;

export type Stores = { mongodbUrl: string; redisUrl: string; stop: () => Promise<void> };
type Options = { dataDir: string; env: NodeJS.ProcessEnv; say: (line: string) => void };

/** Restarts a service whenever it ends unexpectedly. Port and data stay the same. */
const keepAlive = (name: string, service: Service, say: (line: string) => void): (() => Promise<void>) => {
  let lastPid = service.pid;
  let restarting: Promise<void> | undefined;
  const restart = async (): Promise<void> => {
    try {
      await service.restart();
      say(`${name} (pid ${lastPid}) ended; started again as pid ${service.pid}`);
      lastPid = service.pid;
    } catch (cause) {
      say(`${name} (pid ${lastPid}) ended and could not be started again: ${(cause as Error).message}`);
    }
    restarting = undefined;
  };
  const check = setInterval(() => {
    if (service.pid === undefined) restarting ??= restart();
  }, CHECK_EVERY_MS);
  return async () => {
    clearInterval(check);
    await restarting;
    await service.dispose();
  };
};

/** Opens MongoDB and Redis with persistent data: those of MONGODB_URL and REDIS_URL, or new processes on free ports. */
export const openStores = async ({ dataDir, env, say }: Options): Promise<Stores> => {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 }); // the data has visitors' messages
  const { mongodbUrl, redisUrl, started } = await startServices({ dataDir, env });
  const stops = started.map(([name, service]) => keepAlive(name, service, say));
  return { mongodbUrl, redisUrl, stop: async () => void (await Promise.all(stops.map((end) => end()))) };
};
