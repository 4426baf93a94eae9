import type { Embedder } from '@parley/understanding';
import { createPace } from '../../src/alerts/worker-signs.ts';
import { beginEmbedder, type OpeningEmbedder } from '../../src/embedder.ts';
import { ASKING_MAX, openEvaluator } from '../../src/evaluation/evaluator.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import type { SharedMemory } from '../../src/platform/process/lru.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { type AnsweringOptions, openAnswering } from '../../src/replies/answering.ts';
import { countBudgetUsedUp, countDeliveries, countEmbeddings, countTurns } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { TURNS_QUEUE } from '../../src/turns/queue.ts';
import { openQueueWorkers, openWorkerDuties, openWorkerHealth } from '../../src/worker-process.ts';
import { maintain } from '../maintenance/worker.ts';

type ForTests = { embedder?: Embedder; memory?: SharedMemory };

/** Assembles and starts the reply worker. Tests may pass their own engine or embedder. */
export const openReplyWorker = async (given: Opening & AnsweringOptions & ForTests) => {
  const metrics = createMetrics({ token: given.config.METRICS_TOKEN });
  const embedder = beginEmbedder({ ...given, count: countEmbeddings(metrics) });
  const service = await openService({
    ...given,
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
    tracesAs: 'parley-reply-worker',
  });
  const module = { ...given, service, metrics };
  const own = await answerTurns(module, { ...given, embedder });
  await maintain(module, { embedder });
  const sweeps = openWorkerDuties(module, { countDelivery: countDeliveries(metrics) });
  return { ...service, ...own, healthPort: await openWorkerHealth(module, sweeps) };
};

/** The module that answers turns, and asks its engine the questions of evaluations. */
export const answerTurns = async (
  module: Module,
  { embedder: beginning, ...options }: AnsweringOptions & { embedder: OpeningEmbedder },
) => {
  const { service, metrics, config, logger, lifecycle } = module;
  beginning.share(service.redis, config.REDIS_PREFIX);
  const embedder = await beginning.opened;
  const countTurn = countTurns(metrics);
  const pace = createPace();
  const { process, askEngine, vectorsOf } = openAnswering(module, {
    ...options,
    embedder,
    countTurn: (outcome, seconds) => {
      countTurn(outcome, seconds);
      pace.note(seconds);
    },
    onBudgetUsedUp: countBudgetUsedUp(metrics),
    // Evaluations have connections in addition, so that no turn waits for one of theirs.
    connectionsBeside: ASKING_MAX,
  });
  await openQueueWorkers({ queue: TURNS_QUEUE, concurrency: config.REPLY_CONCURRENCY, pace, process }, module);
  const { evaluations, assistants } = service.aside;
  openEvaluator({ evaluations, versions: assistants.versions, askEngine, embedder, lifecycle, logger });
  return { embedder, vectorsOf };
};
