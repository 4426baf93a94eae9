import { constants, setPriority } from 'node:os';
import { describeConfig, readConfig } from '../../src/process/config.ts';
import { secretsIn } from '../../src/process/credentials.ts';
import { createLifecycle, requireNode } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { startProcess } from '../../src/process/process.ts';

requireNode();
// Whatever this process starts, as the reader and the model, has the same priority. So no crawl delays a turn.
setPriority(constants.priority.PRIORITY_LOW);
await startProcess(async () => {
  const config = readConfig(process.env);
  const logger = createLogger({
    name: 'parley-sources-worker',
    level: config.LOG_LEVEL,
    secrets: secretsIn(process.env),
  });
  logger.info({ config: describeConfig(config) }, 'starting');
  const lifecycle = createLifecycle(logger, { deadlineMs: config.SHUTDOWN_DEADLINE_MS });
  lifecycle.listenToProcess();
  // No watch for stalls: this process waits for others, by its priority, and nobody waits for it.
  // Loaded only now, so that a wrong setting is reported without loading everything first.
  const { openSourcesWorker } = await import('./worker.ts');
  const { healthPort } = await openSourcesWorker({ config, logger, lifecycle });
  logger.info({ healthPort }, 'reading sources');
});
