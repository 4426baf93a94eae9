import { Worker } from 'bullmq';
import { createDeliverySweeps } from './conversations/sweep.ts';
import type { Config } from './platform/config.ts';
import { createReadiness, openHealthServer } from './platform/health.ts';
import type { Lifecycle } from './platform/lifecycle.ts';
import type { Logger } from './platform/logger.ts';
import type { Metrics } from './platform/metrics.ts';
import { closeRedis, openRedis } from './platform/redis.ts';
import { startSweeper } from './platform/sweeper.ts';
import type { Service } from './service.ts';
import { type CountDelivery, sampleQueues } from './service-metrics.ts';
import { createTurnSweep } from './turns/sweep.ts';

const SWEEP_STUCK_MS = 30_000;

type Options = { service: Service; config: Config; logger: Logger; lifecycle: Lifecycle };

type QueueWork = {
  queue: string;
  concurrency: number;
  maxStalledCount?: number;
  /** Gets the job's data as it came; a poisoned one is refused here, before anything is done. */
  process: (data: unknown) => Promise<void>;
};

/** Works a queue off, one BullMQ worker a partition, each on a connection of its own. */
export const openQueueWorkers = async (
  { queue, concurrency, maxStalledCount = 1, process }: QueueWork,
  { service, config, logger, lifecycle }: Options,
): Promise<void> => {
  for (const prefix of service.partitions.tags) {
    const connection = await openRedis({ url: config.REDIS_URL, role: 'worker' }, logger);
    lifecycle.add(`redis of the ${queue} worker`, connection, closeRedis);
    const worker = new Worker<unknown>(queue, (job) => process(job.data), {
      connection,
      prefix,
      concurrency,
      maxStalledCount,
      metrics: { maxDataPoints: 60 },
    });
    worker.on('error', (cause) => logger.warn({ err: cause, queue }, 'worker connection failed'));
    worker.on('failed', (job, cause) => logger.error({ err: cause, queue, jobId: job?.id }, 'a job failed'));
    lifecycle.add(`${queue} worker`, worker, (opened) => opened.close());
  }
};

/** What workers of either kind do beside their queue: both sweeps, and answers about their health. The health port. */
export const openWorkerDuties = async (
  { service, config, logger, lifecycle }: Options,
  { metrics, countDelivery, resting }: { metrics: Metrics; countDelivery: CountDelivery; resting?: () => string[] },
): Promise<number> => {
  const { conversations, deliveries, endpoints, hints, turnQueue, deliveryQueue, mongo, redis } = service;
  const deliverySweeps = createDeliverySweeps({
    conversations,
    deliveries,
    endpoints,
    deliveryQueue,
    eventMaxAgeMs: config.EVENT_MAX_AGE_S * 1000,
    onEnded: (_claim, exchange) => countDelivery(exchange),
    onLost: (count) => countDelivery({ outcome: 'unknown', errorKind: 'worker_lost' }, count),
    ...(resting && { resting }),
  });
  const sweeps = [
    startSweeper('turns', createTurnSweep({ conversations, hints, turnQueue }), { logger }),
    startSweeper('claims', deliverySweeps.claims, { logger }),
    startSweeper('deliveries', deliverySweeps.lines, { logger }),
  ];
  lifecycle.add('sweeps', sweeps, (opened) => Promise.all(opened.map((sweep) => sweep.stop())));

  const stuck = (): string | null =>
    sweeps.some((sweep) => performance.now() - sweep.lastEndedAt() > SWEEP_STUCK_MS) ? 'a sweep is stuck' : null;
  sampleQueues(metrics, { turns: turnQueue, deliveries: deliveryQueue });
  const readiness = createReadiness({ mongo, redis, draining: lifecycle.draining, stuck });
  const health = await openHealthServer({
    host: config.HOST,
    port: config.WORKER_HEALTH_PORT,
    readiness,
    metrics,
  });
  lifecycle.add('health server', health.server, (server) => void server.close());
  return health.port;
};
