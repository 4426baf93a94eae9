import { createPace } from '../../src/alerts/worker-signs.ts';
import { DELIVERIES_QUEUE } from '../../src/events/queue.ts';
import { openSending, type SendingOptions } from '../../src/events/sending/sending.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { countDeliveries, reportEventWaits } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { type Delivering, openQueueWorkers, openWorkerDuties, openWorkerHealth } from '../../src/worker-process.ts';

/** Assembles and starts the delivery worker, for `main.ts` and for tests. */
export const openDeliveryWorker = async (given: Opening & SendingOptions) => {
  const service = await openService({
    ...given,
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
    tracesAs: 'parley-delivery-worker',
  });
  const module = { ...given, service, metrics: createMetrics({ token: given.config.METRICS_TOKEN }) };
  const sweeps = openWorkerDuties(module, await deliverEvents(module, given));
  return { ...service, healthPort: await openWorkerHealth(module, sweeps) };
};

/** The module that delivers events. Returns what the sweeps need to know of its deliveries. */
export const deliverEvents = async (module: Module, options: SendingOptions = {}): Promise<Delivering> => {
  const { metrics } = module;
  const countDelivery = countDeliveries(metrics);
  const reportEventWait = reportEventWaits(metrics);
  const pace = createPace();
  const { process, suspended } = openSending(module, {
    ...options,
    countDelivery,
    reportEventWait: (seconds) => {
      reportEventWait(seconds);
      pace.note(seconds);
    },
  });
  await openQueueWorkers({ queue: DELIVERIES_QUEUE, concurrency: 8, maxStalledCount: 0, pace, process }, module);
  return { countDelivery, suspended };
};
