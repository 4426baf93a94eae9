import { createSlots, type Occupancy } from '../../src/platform/slots.ts';
import { DELIVERIES_QUEUE, WakeUpJob } from '../../src/deliveries/queue.ts';
import type { BreakerOptions } from '../../src/platform/breaker.ts';
import type { Config } from '../../src/platform/config.ts';
import type { Lifecycle } from '../../src/platform/lifecycle.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { createMetrics } from '../../src/platform/metrics.ts';
import { VERSION } from '../../src/platform/version.ts';
import { BACKGROUND_POOL_SIZE, openService } from '../../src/service.ts';
import { countDeliveries, reportEventWaits } from '../../src/service-metrics.ts';
import { openQueueWorkers, openWorkerDuties } from '../../src/worker-process.ts';
import { createDeliveryBreaker, createDispatch } from './dispatch.ts';
import { createDeliver } from './deliver.ts';
import { createStreams } from './streams.ts';
import { createSender, type SenderOptions } from './send.ts';

/**
 * Limits the sends in flight, per endpoint and in total. A slot is acquired before the claim, so that waiting events
 * stay unclaimed. Once half of all slots are in use, each endpoint is limited to its share, so that hanging endpoints
 * leave slots for others.
 */
const endpointShare =
  ({ perEndpoint, total }: { perEndpoint: number; total: number }) =>
  ({ own, inUse, holders }: Occupancy): boolean => {
    if (inUse >= total || own >= perEndpoint) return false;
    return inUse < total / 2 || own < Math.max(1, Math.floor(total / holders));
  };

type Options = {
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
  /** Tests pass their own resolver or certificate authority. */
  sending?: Partial<SenderOptions>;
  breaking?: BreakerOptions;
};

/** Assembles and starts the delivery worker, for `main.ts` and for tests. */
export const openDeliveryWorker = async ({ config, logger, lifecycle, sending = {}, breaking = {} }: Options) => {
  const service = await openService({
    config,
    logger,
    lifecycle,
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
  });
  const { endpoints, deliveries, deliveryQueue } = service;
  const eventMaxAgeMs = config.EVENT_MAX_AGE_S * 1000;
  const metrics = createMetrics({ token: config.METRICS_TOKEN });
  const countDelivery = countDeliveries(metrics);

  const sender = createSender({
    userAgent: `Parley-Webhooks/${VERSION}`,
    allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
    perEndpointConnections: config.ENDPOINT_CONCURRENCY,
    maxSockets: config.DELIVERY_CONCURRENCY,
    ...sending,
  });
  lifecycle.add('sender', sender, (opened) => opened.close());
  const slots = createSlots(
    endpointShare({ perEndpoint: config.ENDPOINT_CONCURRENCY, total: config.DELIVERY_CONCURRENCY }),
  );
  const breaker = createDeliveryBreaker(breaking);
  const dispatch = createDispatch({
    endpoints,
    deliveries,
    sender,
    breaker,
    countDelivery,
    recordingMax: config.DELIVERY_CONCURRENCY,
    logger,
  });
  const deliver = createDeliver({
    endpoints,
    deliveries,
    dispatch,
    breaker,
    slots,
    eventMaxAgeMs,
    reportEventWait: reportEventWaits(metrics),
    logger,
  });
  const streams = lifecycle.add(
    'delivery streams',
    createStreams({ deliveries, deliver, deliveryQueue, logger }),
    (opened) => {
      slots.close();
      return opened.close();
    },
  );

  const process = async (data: unknown): Promise<void> => {
    const { conversations: keys, deliveries: ids } = WakeUpJob.parse(data);
    for (const deliveryId of ids) streams.wakeDelivery(deliveryId);
    await streams.wake(keys);
  };
  const shared = { service, config, logger, lifecycle };
  await openQueueWorkers({ queue: DELIVERIES_QUEUE, concurrency: 8, maxStalledCount: 0, process }, shared);
  const suspended = (): string[] => [...breaker.suspended(), ...slots.saturated()];
  const healthPort = await openWorkerDuties(shared, { metrics, countDelivery, suspended });
  return { ...service, healthPort };
};
