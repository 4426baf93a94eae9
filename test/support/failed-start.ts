import { createLifecycle, explainFailure } from '../../src/platform/process/lifecycle.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLogger, type Logger } from '../../src/platform/process/logger.ts';
import { openService } from '../../src/service.ts';

/** Opens the stores as a process does at its start. Returns what the process prints when it fails. */
export const failureOfStart = async (
  env: Record<string, string>,
  logger: Logger = createLogger({ name: 'test', level: 'silent' }),
): Promise<string> => {
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  try {
    await openService({ config: readConfig(env), logger, lifecycle, redisRole: 'api', startWithinMs: 1_000 });
    return 'started';
  } catch (cause) {
    return explainFailure(cause, env);
  } finally {
    await lifecycle.close();
  }
};
