import { runProcess } from '../../src/platform/process/lifecycle.ts';

await runProcess('parley', async (opening) => {
  const [{ openAll }, { passageEngine }, { loadLanguages }] = await Promise.all([
    import('./all.ts'),
    import('@parley/understanding'),
    import('@parley/understanding/text'),
  ]);
  // So that the first turn that needs them does not wait for it: each holds the loop for some 50 ms.
  loadLanguages();
  passageEngine();
  const { port } = await openAll(opening);
  opening.logger.info({ port, host: opening.config.HOST }, 'listening, and doing the work of all workers');
});
