import { Worker } from 'bullmq';
import { createDeliverySweep } from '../../src/conversations/sweep.ts';
import { DELIVERIES_QUEUE, WakeUpJob } from '../../src/events/queue.ts';
import type { Config } from '../../src/platform/config.ts';
import { createReadiness, openHealthServer } from '../../src/platform/health.ts';
import type { Lifecycle } from '../../src/platform/lifecycle.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { closeRedis, openRedis } from '../../src/platform/redis.ts';
import { startSweeper } from '../../src/platform/sweeper.ts';
import { VERSION } from '../../src/platform/version.ts';
import { openService } from '../../src/service.ts';
import { createTurnSweep } from '../../src/turns/sweep.ts';
import { createBreaker } from './breaker.ts';
import { createDeliver } from './deliver.ts';
import { createLines } from './lines.ts';
import { createSender, type SenderOptions } from './send.ts';
import { createSlots } from './slots.ts';

const SWEEP_STUCK_MS = 30_000;

type Options = {
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
  /** A resolver or a certificate authority of the test's own. */
  sending?: Partial<SenderOptions>;
};

/** The delivery worker, assembled and running; tests start it as `main.ts` does. */
export const openDeliveryWorker = async ({ config, logger, lifecycle, sending = {} }: Options) => {
  const service = await openService({ config, logger, lifecycle, redisRole: 'worker' });
  const { conversations, endpoints, deliveries, deliveryQueue, turnQueue, hints, redis } = service;
  const eventMaxAgeMs = config.EVENT_MAX_AGE_S * 1000;

  const sender = createSender({
    userAgent: `Parley-Webhooks/${VERSION}`,
    allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
    perEndpointConnections: config.ENDPOINT_CONCURRENCY,
    maxSockets: config.DELIVERY_CONCURRENCY,
    ...sending,
  });
  lifecycle.add('sender', sender, (opened) => opened.close());
  const slots = createSlots({ perEndpoint: config.ENDPOINT_CONCURRENCY, total: config.DELIVERY_CONCURRENCY });
  const breaker = createBreaker();
  const deliver = createDeliver({
    conversations,
    endpoints,
    deliveries,
    sender,
    breaker,
    slots,
    eventMaxAgeMs,
    logger,
  });
  const lines = lifecycle.add('lines', createLines({ conversations, deliver, logger }), (opened) => {
    slots.close();
    return opened.close();
  });

  const process = async (data: unknown): Promise<void> => {
    const { conversations: keys, deliveries: ids } = WakeUpJob.parse(data);
    for (const deliveryId of ids) lines.wakeDelivery(deliveryId);
    await lines.wake(keys);
  };
  for (const prefix of service.partitions.tags) {
    const connection = await openRedis({ url: config.REDIS_URL, role: 'worker' }, logger);
    lifecycle.add('redis of the worker', connection, closeRedis);
    const worker = new Worker<unknown>(DELIVERIES_QUEUE, (job) => process(job.data), {
      connection,
      prefix,
      concurrency: 8,
      maxStalledCount: 0,
      metrics: { maxDataPoints: 60 },
    });
    worker.on('error', (cause) => logger.warn({ err: cause }, 'worker connection failed'));
    worker.on('failed', (job, cause) => logger.error({ err: cause, jobId: job?.id }, 'a wake-up failed'));
    lifecycle.add('deliveries worker', worker, (opened) => opened.close());
  }

  const turnSweep = createTurnSweep({ conversations, hints, turnQueue });
  const deliverySweep = createDeliverySweep({ conversations, deliveries, endpoints, deliveryQueue, eventMaxAgeMs });
  const sweeps = [startSweeper('turns', turnSweep, { logger }), startSweeper('deliveries', deliverySweep, { logger })];
  lifecycle.add('sweeps', sweeps, (opened) => Promise.all(opened.map((sweep) => sweep.stop())));

  const stuck = () =>
    sweeps.some((sweep) => performance.now() - sweep.lastEndedAt() > SWEEP_STUCK_MS) ? 'sweep is stuck' : null;
  const readiness = createReadiness({ mongo: service.mongo, redis, draining: lifecycle.draining, stuck });
  const health = await openHealthServer({ host: config.HOST, port: config.WORKER_HEALTH_PORT, readiness });
  lifecycle.add('health server', health.server, (server) => void server.close());
  return { ...service, healthPort: health.port };
};
