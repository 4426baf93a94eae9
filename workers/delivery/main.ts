import { runProcess } from '../../src/platform/process/lifecycle.ts';

await runProcess('parley-delivery-worker', async (opening) => {
  const { openDeliveryWorker } = await import('./worker.ts');
  const { healthPort } = await openDeliveryWorker(opening);
  opening.logger.info({ healthPort }, 'delivering events');
});
