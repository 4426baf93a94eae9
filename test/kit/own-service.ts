import { startServices } from '../../scripts/services.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openService, type Service } from '../../src/service.ts';
import { killAll, startRealProcess } from './processes.ts';

/**
 * Opens the service on a Redis and a MongoDB of its own for the time of `run`, and returns its result. URLs in the
 * environment are ignored, because runs wipe their stores. `env` is for processes that `run` starts; they end with it.
 */
export const withOwnService = async (
  run: (service: Service, env: Record<string, string>) => Promise<boolean>,
): Promise<boolean> => {
  const services = await startServices({ env: {} });
  const logger = createLogger({ name: 'own service', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  const env = {
    NODE_ENV: 'test',
    REDIS_URL: services.redisUrl,
    MONGODB_URL: services.mongodbUrl,
    WEBHOOK_ALLOW_PRIVATE: 'true',
  };
  try {
    const service = await openService({ config: readConfig(env), logger, lifecycle, redisRole: 'worker' });
    return await run(service, env);
  } finally {
    await killAll();
    await lifecycle.close();
    await services.stop();
  }
};

/** The same with so many delivery workers. */
export const withDeliveryWorkers = (count: number, run: (service: Service) => Promise<boolean>): Promise<boolean> =>
  withOwnService(async (service, env) => {
    await Promise.all(Array.from({ length: count }, () => startRealProcess('delivery', env)));
    return run(service);
  });
