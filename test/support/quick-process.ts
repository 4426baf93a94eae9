import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { anEmbedder, anEmbedderOfTokens } from './embedder.ts';
import { QUICK } from './quick.ts';
import { QUICK as QUICK_READING } from './source-reading.ts';

// A process that a test kills, with short limits, so that what it leaves behind is soon taken over, and with the tests'
// embedder. The argument says which.
const logger = createLogger({ name: 'test', level: 'warn' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
const configured = (timing: Parameters<typeof readConfig>[1] = {}) => ({
  config: readConfig(process.env, timing),
  logger,
  lifecycle,
});
const { openReplyWorker } = await import('../../workers/reply/worker.ts');
const open: Record<string, () => Promise<unknown>> = {
  all: async () => (await import('../../workers/all/all.ts')).openAll(configured(QUICK)),
  reply: () => openReplyWorker(configured(QUICK)),
  semantic: () => openReplyWorker({ ...configured(), embedder: anEmbedder({ msEach: 10 }) }),
  sources: async () => {
    const { openSourcesWorker } = await import('../../workers/sources/worker.ts');
    return openSourcesWorker({ ...configured(QUICK_READING), embedder: anEmbedderOfTokens({ msEach: 2 }) });
  },
};
lifecycle.listenToProcess();
await open[process.argv[2] ?? '']?.();
