import { runProcess } from './platform/process/lifecycle.ts';

await runProcess('parley-api', async (opening) => {
  const [{ openApi }, { decideLanguage }] = await Promise.all([
    import('./api.ts'),
    import('@parley/understanding/text'),
  ]);
  const { port } = await openApi(opening);
  opening.logger.info({ port, host: opening.config.HOST }, 'listening');
  decideLanguage({ message: 'Hello' }); // reads its tables, for which the first visitor would wait 30 ms
});
