import { killAll, startProcess } from '../../chaos/support/process.ts';
import { startServices } from '../../scripts/services.ts';
import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openService, type Service } from '../../src/service.ts';

/** Starts separate services and delivery workers for the time of `run`, and returns its result. */
export const withDeliveryWorkers = async (
  count: number,
  run: (service: Service) => Promise<boolean>,
): Promise<boolean> => {
  const services = await startServices({ env: {} });
  const env = {
    NODE_ENV: 'test',
    REDIS_URL: services.redisUrl,
    MONGODB_URL: services.mongodbUrl,
    WEBHOOK_ALLOW_PRIVATE: 'true',
  };
  const logger = createLogger({ name: 'bench', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  try {
    const service = await openService({ config: readConfig(env), logger, lifecycle, redisRole: 'worker' });
    await Promise.all(Array.from({ length: count }, () => startProcess({ kind: 'delivery', env })));
    return await run(service);
  } finally {
    killAll();
    await lifecycle.close();
    await services.stop();
  }
};
