import { loadLanguages } from '@parley/understanding/text';
import { describeConfig, readConfig } from './process/config.ts';
import { secretsIn } from './process/credentials.ts';
import { createLifecycle, requireNode, startProcess, watchStalls } from './process/lifecycle.ts';
import { createLogger } from './process/logger.ts';

requireNode();
await startProcess(async () => {
  const config = readConfig(process.env);
  const logger = createLogger({ name: 'parley-api', level: config.LOG_LEVEL, secrets: secretsIn(process.env) });
  logger.info({ config: describeConfig(config) }, 'starting');
  const lifecycle = createLifecycle(logger, { deadlineMs: config.SHUTDOWN_DEADLINE_MS });
  lifecycle.listenToProcess();
  watchStalls(logger);
  // Loaded only now, so that a wrong setting is reported without loading everything first.
  const { openApi } = await import('./api.ts');
  loadLanguages(); // so that the first visitor does not wait for it
  const { port } = await openApi({ config, logger, lifecycle });
  logger.info({ port, host: config.HOST }, 'listening');
});
