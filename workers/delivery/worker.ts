import { createPace } from '../../src/alerts/worker-signs.ts';
import { DELIVERIES_QUEUE } from '../../src/events/queue.ts';
import { openSending, type SendingOptions } from '../../src/events/sending/sending.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { countDeliveries, reportEventWaits } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { type Delivering, openQueueWorkers, openWorkerDuties, openWorkerHealth } from '../../src/worker-process.ts';

/** Assembles and starts the delivery worker, for `main.ts` and for tests. */
export const openDeliveryWorker = async ({ sending, breaking, ...opening }: Opening & SendingOptions) => {
  const service = await openService({
    ...opening,
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
    tracesAs: 'parley-delivery-worker',
  });
  const module = { service, metrics: createMetrics({ token: opening.config.METRICS_TOKEN }), ...opening };
  const delivering = await deliverEvents(module, { ...(sending && { sending }), ...(breaking && { breaking }) });
  const sweeps = openWorkerDuties(module, delivering);
  return { ...service, healthPort: await openWorkerHealth(module, sweeps) };
};

/** The module that delivers events. Returns what the sweeps need to know of its deliveries. */
export const deliverEvents = async (module: Module, options: SendingOptions = {}): Promise<Delivering> => {
  const { service, metrics, config, logger, lifecycle } = module;
  const countDelivery = countDeliveries(metrics);
  const reportEventWait = reportEventWaits(metrics);
  const pace = createPace();
  const { process, suspended } = openSending(
    {
      ...service,
      countDelivery,
      reportEventWait: (seconds) => {
        reportEventWait(seconds);
        pace.note(seconds);
      },
      config,
      logger,
      lifecycle,
    },
    options,
  );
  await openQueueWorkers({ queue: DELIVERIES_QUEUE, concurrency: 8, maxStalledCount: 0, pace, process }, module);
  return { countDelivery, suspended };
};
