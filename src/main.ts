import { runProcess } from './platform/process/lifecycle.ts';

await runProcess('parley-api', async (opening) => {
  const { openApi } = await import('./api.ts');
  const { port } = await openApi(opening);
  opening.logger.info({ port, host: opening.config.HOST }, 'listening');
});
