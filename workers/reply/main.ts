import { runProcess } from '../../src/platform/process/lifecycle.ts';

await runProcess('parley-reply-worker', async (opening) => {
  const [{ openReplyWorker }, { passageEngine }, { loadLanguages }] = await Promise.all([
    import('./worker.ts'),
    import('@parley/understanding'),
    import('@parley/understanding/text'),
  ]);
  // So that the first turn that needs them does not wait for it: each holds the loop for some 50 ms.
  loadLanguages();
  passageEngine();
  const { healthPort } = await openReplyWorker(opening);
  opening.logger.info({ healthPort }, 'answering turns');
});
