import { runProcess } from './platform/process/lifecycle.ts';

await runProcess('parley-api', async (opening) => {
  const [{ openApi }, { loadLanguages }] = await Promise.all([
    import('./api.ts'),
    import('@parley/understanding/text'),
  ]);
  loadLanguages(); // so that the first visitor does not wait for it
  const { port } = await openApi(opening);
  opening.logger.info({ port, host: opening.config.HOST }, 'listening');
});
