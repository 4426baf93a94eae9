import { runProcess } from '../../src/platform/process/lifecycle.ts';

await runProcess('parley-reply-worker', async (opening) => {
  const { openReplyWorker } = await import('./worker.ts');
  const { healthPort } = await openReplyWorker(opening);
  opening.logger.info({ healthPort }, 'answering turns');
});
