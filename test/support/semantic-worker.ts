/** A reply worker in a separate process, with a slow fake embedder. A test kills it. */
import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openReplyWorker } from '../../workers/reply/worker.ts';
import { anEmbedder } from './embedder.ts';

const logger = createLogger({ name: 'semantic-worker', level: 'warn' }, process.stderr);
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
lifecycle.listenToProcess();
await openReplyWorker({ config: readConfig(process.env), logger, lifecycle, embedder: anEmbedder({ msEach: 10 }) });
process.stdout.write('ready\n');
