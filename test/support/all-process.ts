import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openAll } from '../../workers/all/all.ts';
import { QUICK } from './quick.ts';

// The process that does everything, as one that a test kills: what it leaves behind is soon taken over by the next one.
const config = readConfig(process.env, QUICK);
const logger = createLogger({ name: 'test', level: 'warn' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
lifecycle.listenToProcess();
await openAll({ config, logger, lifecycle });
