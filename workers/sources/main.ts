import { constants, setPriority } from 'node:os';
import { describeConfig, readConfig } from '../../src/process/config.ts';
import { secretsIn } from '../../src/process/credentials.ts';
import { createLifecycle, requireNode, startProcess } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';

requireNode();
// Whatever this process starts, such as the reader and the model, has the same priority. So no crawl delays a turn.
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
  // Stalls are not watched: with its low priority, this process waits for others, and nobody waits for it.
  // Loaded only now, so that a wrong setting is reported without loading everything first.
  const [{ openSourcesWorker }, { passageEngine }] = await Promise.all([
    import('./worker.ts'),
    import('@parley/understanding'),
  ]);
  passageEngine(); // slow the first time, so called before any work waits for it
  const { healthPort } = await openSourcesWorker({ config, logger, lifecycle });
  logger.info({ healthPort }, 'reading sources');
});
