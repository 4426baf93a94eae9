import { loadLanguages } from '@parley/understanding/text';
import { describeConfig, readConfig } from '../../src/process/config.ts';
import { secretsIn } from '../../src/process/credentials.ts';
import { createLifecycle, requireNode, startProcess, watchStalls } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';

requireNode();
await startProcess(async () => {
  const config = readConfig(process.env);
  const logger = createLogger({
    name: 'parley-reply-worker',
    level: config.LOG_LEVEL,
    secrets: secretsIn(process.env),
  });
  logger.info({ config: describeConfig(config) }, 'starting');
  const lifecycle = createLifecycle(logger, { deadlineMs: config.SHUTDOWN_DEADLINE_MS });
  lifecycle.listenToProcess();
  watchStalls(logger);
  // Loaded only now, so that a wrong setting is reported without loading everything first.
  const [{ openReplyWorker }, { passageEngine }] = await Promise.all([
    import('./worker.ts'),
    import('@parley/understanding'),
  ]);
  // So that the first turn that needs them does not wait for it: each holds the loop for some 50 ms.
  loadLanguages();
  passageEngine();
  const { healthPort } = await openReplyWorker({ config, logger, lifecycle });
  logger.info({ healthPort }, 'answering turns');
});
