import { Worker } from 'bullmq';
import type { Config } from '../../src/platform/config.ts';
import { createDeliverySweep } from '../../src/conversations/sweep.ts';
import { createReadiness, openHealthServer } from '../../src/platform/health.ts';
import type { Lifecycle } from '../../src/platform/lifecycle.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { closeRedis, openRedis } from '../../src/platform/redis.ts';
import { startSweeper } from '../../src/platform/sweeper.ts';
import { openService } from '../../src/service.ts';
import { TURNS_QUEUE, TurnsJob } from '../../src/turns/queue.ts';
import { publishReply } from '../../src/turns/replies.ts';
import { createTurnSweep } from '../../src/turns/sweep.ts';
import { createAnswerTurn } from './answer-turn.ts';
import type { AssistantEngine } from './engines/engine.ts';
import { createRetrievalEngine } from './engines/retrieval/engine.ts';

const SWEEP_STUCK_MS = 30_000;

type Options = { config: Config; logger: Logger; lifecycle: Lifecycle; engine?: AssistantEngine };

/** The reply worker, assembled and running; tests start it as `main.ts` does, perhaps with an engine of their own. */
export const openReplyWorker = async ({ config, logger, lifecycle, engine = createRetrievalEngine() }: Options) => {
  const service = await openService({ config, logger, lifecycle, redisRole: 'worker' });
  const { conversations, assistants, endpoints, deliveries, hints, turnQueue, deliveryQueue, redis } = service;

  const answerTurn = createAnswerTurn({
    conversations,
    assistants,
    endpoints,
    hints,
    engine,
    turnQueue,
    deliveryQueue,
    publish: (channels, published) => publishReply(redis, channels, published),
    draining: lifecycle.draining,
    logger,
  });

  for (const prefix of service.partitions.tags) {
    const connection = await openRedis({ url: config.REDIS_URL, role: 'worker' }, logger);
    lifecycle.add('redis of the worker', connection, closeRedis);
    const worker = new Worker<unknown>(
      TURNS_QUEUE,
      // A poisoned job fails here, before anything is done.
      async (job) => void (await Promise.all(TurnsJob.parse(job.data).turns.map(answerTurn))),
      { connection, prefix, concurrency: config.REPLY_CONCURRENCY, metrics: { maxDataPoints: 60 } },
    );
    worker.on('error', (cause) => logger.warn({ err: cause }, 'worker connection failed'));
    worker.on('failed', (job, cause) => logger.error({ err: cause, jobId: job?.id }, 'a job failed'));
    lifecycle.add('turns worker', worker, (opened) => opened.close());
  }

  const turnSweep = createTurnSweep({ conversations, hints, turnQueue });
  const deliverySweep = createDeliverySweep({
    conversations,
    deliveries,
    endpoints,
    deliveryQueue,
    eventMaxAgeMs: config.EVENT_MAX_AGE_S * 1000,
  });
  const sweeps = [startSweeper('turns', turnSweep, { logger }), startSweeper('deliveries', deliverySweep, { logger })];
  lifecycle.add('sweeps', sweeps, (opened) => Promise.all(opened.map((sweep) => sweep.stop())));

  const stuck = () =>
    sweeps.some((sweep) => performance.now() - sweep.lastEndedAt() > SWEEP_STUCK_MS) ? 'sweep is stuck' : null;
  const readiness = createReadiness({ mongo: service.mongo, redis, draining: lifecycle.draining, stuck });
  const health = await openHealthServer({ host: config.HOST, port: config.WORKER_HEALTH_PORT, readiness });
  lifecycle.add('health server', health.server, (server) => void server.close());
  return { ...service, healthPort: health.port };
};
