import type { Embedder } from '@parley/understanding';
import { createPace } from '../../src/alerts/worker-signs.ts';
import { createChannelCalls } from '../../src/assistants/channel.ts';
import { KNOWLEDGE_QUEUE } from '../../src/assistants/knowledge/semantic-state.ts';
import { startVectorUpdates } from '../../src/assistants/knowledge/update-vectors.ts';
import { beginEmbedder, type OpeningEmbedder } from '../../src/embedder.ts';
import { ASKING_MAX, openEvaluator } from '../../src/evaluation/evaluator.ts';
import { DAY_MS, serverNow } from '../../src/platform/process/clock.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import type { SharedMemory } from '../../src/platform/process/lru.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { startSweeper } from '../../src/platform/process/sweeper.ts';
import { type AnsweringOptions, openAnswering } from '../../src/replies/answering.ts';
import { countBudgetUsedUp, countDeliveries, countEmbeddings, countTurns } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { TURNS_QUEUE } from '../../src/turns/queue.ts';
import { openQueueWorkers, openWorkerDuties, openWorkerHealth } from '../../src/worker-process.ts';

/**
 * A round erases at most this many old conversations of one assistant. So a million take about a day, and do not delay
 * those of other assistants.
 */
const ERASED_OF_ONE = 200;

/**
 * Purges erased conversations again after a minute and after a day, erases conversations whose days are over, and
 * settles quotas. Every reply worker has its own timers: a schedule in Redis is lost with Redis, and a process with a
 * wrong clock can postpone it. Deliveries and idempotency keys need no purge: they expire through MongoDB's TTL
 * indexes.
 */
const openMaintenance = ({ service, config, logger, lifecycle }: Module): void => {
  const { allowances, assistants, conversations } = service.aside;
  const purge = async (): Promise<void> => {
    let [purged, some] = [0, 1];
    while (some > 0 && !lifecycle.draining.aborted) {
      some = await conversations.purgeAgain();
      purged += some;
    }
    if (purged > 0) logger.info({ purged }, 'erased conversations were purged again');
  };
  const settle = async (): Promise<void> => {
    const settled = await allowances.settleLost(async ({ turnId, messageId }) => {
      const found = await conversations.findTurn(turnId);
      return found?.turn.messageId === messageId;
    });
    if (settled > 0) logger.info({ settled }, 'turns that a gone process had reserved were settled');
  };
  const channelCalls = createChannelCalls(service.redis, config.REDIS_PREFIX);
  const eraseOld = async (): Promise<void> => {
    for (const { assistantId, keepDays } of await assistants.listKeepDays()) {
      const old = { assistantId, since: new Date(serverNow() - keepDays * DAY_MS), most: ERASED_OF_ONE };
      const forget = ({ sessionId }: { sessionId: string }): void => channelCalls.forget(assistantId, sessionId);
      try {
        const erased = await conversations.eraseUnchanged(old, forget);
        if (erased > 0) logger.info({ assistantId, keepDays, erased }, 'conversations were erased after their days');
      } catch (cause) {
        // A failure for one assistant must not delay the conversations of others.
        logger.warn({ err: cause, assistantId }, 'a conversation was not erased after its days');
      }
    }
  };
  const options = { everyMs: config.timing.maintenanceEveryMs, logger };
  const sweepers = [
    startSweeper('purge', purge, options),
    startSweeper('quotas', settle, options),
    startSweeper('old conversations', eraseOld, options),
  ];
  lifecycle.add('maintenance', sweepers, (all) => Promise.all(all.map((one) => one.stop())));
};

const PROJECT_EVERY_MS = 2_000;
const COUNT_EVERY_MS = 10_000;

/** Runs the projection: search words, figures and misses. All reply workers try, and one of them is the leader. */
const openProjection = (embedder: Embedder, { service, logger, lifecycle }: Module): void => {
  const { insights, assistants, conversations, deliveries } = service.aside;
  const projection = insights.openProjection({
    token: newToken(),
    changed: conversations.changed,
    listAssistantIds: assistants.listAssistantIds,
    embedding: {
      // Embedded like a visitor's question, but after the questions of turns.
      embed: (texts, holder) => embedder.embed(texts, 'query', { holder, priority: 'background' }),
      model: embedder.model,
    },
    draining: lifecycle.draining,
    logger,
  });
  // The lease expires by itself, so an unavailable MongoDB must not fail the stop.
  lifecycle.add('lead of the projection', projection, ({ release }) => release().catch(() => undefined));
  let countedAt = Number.NEGATIVE_INFINITY;
  let isLeader = false;
  const round = async (): Promise<void> => {
    isLeader = await projection.round();
    if (!isLeader || performance.now() - countedAt < COUNT_EVERY_MS) return;
    const ids = await assistants.listAssistantIds();
    const isComplete = await insights.deliveryFigures.countEnded(ids, deliveries.countHourlyOutcomes, {
      draining: lifecycle.draining,
      logger,
    });
    if (isComplete) countedAt = performance.now();
  };
  const group = async (): Promise<void> => (isLeader ? projection.groupMisses() : undefined);
  const sweepers = [
    startSweeper('projection', round, { everyMs: PROJECT_EVERY_MS, logger }),
    startSweeper('misses', group, { everyMs: PROJECT_EVERY_MS, logger }),
  ];
  lifecycle.add('projection', sweepers, (all) => Promise.all(all.map((one) => one.stop())));
};

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
  const sweeps = openWorkerDuties(module, { countDelivery: countDeliveries(metrics) });
  return { ...service, ...own, healthPort: await openWorkerHealth(module, sweeps) };
};

/** The module that answers turns, with the work in the background that has no process of its own. */
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
  const store = service.aside.assistants;
  const updateVectors = await startVectorUpdates({ store, embedder, timing: config.timing, logger, lifecycle });
  await openQueueWorkers({ queue: KNOWLEDGE_QUEUE, concurrency: 1, process: updateVectors }, module);
  openProjection(embedder, module);
  const { evaluations } = service.aside;
  openEvaluator({ evaluations, versions: store.versions, askEngine, embedder, lifecycle, logger });
  openMaintenance(module);
  return { embedder, vectorsOf };
};
