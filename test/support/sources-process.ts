import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openSourcesWorker } from '../../workers/sources/worker.ts';
import { anEmbedderOfTokens } from './embedder.ts';
import { QUICK } from './source-reading.ts';

// A sources worker as a process that a test kills, with the short limits of tests and their embedder.
const config = readConfig(process.env, QUICK);
const logger = createLogger({ name: 'test', level: 'warn' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
lifecycle.listenToProcess();
await openSourcesWorker({ config, logger, lifecycle, embedder: anEmbedderOfTokens({ msEach: 2 }) });
