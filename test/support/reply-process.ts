import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openReplyWorker } from '../../workers/reply/worker.ts';

// A reply worker as a process that a test kills, with a fifth of the limits after which others take over its work.
const config = readConfig(process.env, {
  turnLeaseMs: 2_000,
  turnLeaseRenewMs: 600,
  jobLockMs: 2_000,
  jobStalledEveryMs: 1_000,
});
const logger = createLogger({ name: 'test', level: 'warn' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
lifecycle.listenToProcess();
await openReplyWorker({ config, logger, lifecycle });
