import { runProcess } from '../../src/platform/process/lifecycle.ts';

// The reader and the model have the low priority too, so no crawl delays a turn.
await runProcess(
  'parley-sources-worker',
  async (opening) => {
    const { openSourcesWorker } = await import('./worker.ts');
    const { healthPort } = await openSourcesWorker(opening);
    opening.logger.info({ healthPort }, 'reading sources');
  },
  { isModest: true },
);
