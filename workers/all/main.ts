import { runProcess } from '../../src/platform/process/lifecycle.ts';

await runProcess('parley', async (opening) => {
  const { openAll } = await import('./all.ts');
  const { port } = await openAll(opening);
  opening.logger.info({ port, host: opening.config.HOST }, 'listening, and doing the work of all workers');
});
