import { runProcess } from '../../src/platform/process/lifecycle.ts';

await runProcess('parley', async (opening) => {
  const [{ openAll }, { decideLanguage }] = await Promise.all([
    import('./all.ts'),
    import('@parley/understanding/text'),
  ]);
  const { port } = await openAll(opening);
  opening.logger.info({ port, host: opening.config.HOST }, 'listening, and doing the work of all workers');
  decideLanguage({ message: 'Hello' }); // reads its tables, for which the first visitor would wait 30 ms
});
