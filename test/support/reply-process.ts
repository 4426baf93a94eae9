import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openReplyWorker } from '../../workers/reply/worker.ts';
import { QUICK } from './quick.ts';

// A reply worker as a process that a test kills.
const config = readConfig(process.env, QUICK);
const logger = createLogger({ name: 'test', level: 'warn' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
lifecycle.listenToProcess();
await openReplyWorker({ config, logger, lifecycle });
