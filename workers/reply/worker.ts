import type { Config } from '../../src/platform/config.ts';
import type { Lifecycle } from '../../src/platform/lifecycle.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { createMetrics } from '../../src/platform/metrics.ts';
import { openMaintenance } from '../../src/maintenance.ts';
import { BACKGROUND_POOL_SIZE, openService } from '../../src/service.ts';
import { countDeliveries, countEmbeddings, countTurns } from '../../src/service-metrics.ts';
import { TURNS_QUEUE, TurnsJob } from '../../src/turns/queue.ts';
import { createPublisher } from '../../src/turns/replies.ts';
import { openQueueWorkers, openWorkerDuties } from '../../src/worker-process.ts';
import { createAnswerTurn } from './answer-turn.ts';
import { createAskEngine } from './ask-engine.ts';
import { type Embedder, openEmbedder } from './embedder/embedder.ts';
import type { AssistantEngine } from './engines/engine.ts';
import { createEngines } from './engines/choose.ts';
import { openProviderAgent } from './engines/openai/connection.ts';
import { createInFlight } from './in-flight.ts';
import { openProjection } from './insights.ts';
import { openVectorUpdater } from './vectors/updater.ts';
import { createSemanticSearch } from './vectors/semantic-search.ts';
import { createVectorReader } from './vectors/reader.ts';

/**
 * Slots for provider calls. A single assistant gets at most half of the slots, so twice as many slots as jobs let it
 * use every job.
 */
const SLOTS_PER_JOB = 2;

type Options = {
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
  engine?: AssistantEngine;
  embedder?: Embedder;
};

/** Assembles and starts the reply worker. Tests may pass their own engine or embedder. */
export const openReplyWorker = async ({ config, logger, lifecycle, engine, ...given }: Options) => {
  const metrics = createMetrics({ token: config.METRICS_TOKEN });
  // The model is opened in parallel with the stores, because both take about the same time.
  const opening = given.embedder
    ? Promise.resolve(given.embedder)
    : openEmbedder({ config, logger, count: countEmbeddings(metrics) });
  void lifecycle.add('embedder', opening, async (opened) => (await opened).close());
  const service = await openService({
    config,
    logger,
    lifecycle,
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
  });
  const { conversations, assistants, leases, turnQueue, redis, vault } = service;
  const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
  const turnsInFlight = SLOTS_PER_JOB * config.REPLY_CONCURRENCY;
  const dispatcher = openProviderAgent({ allowPrivate, connections: turnsInFlight });
  lifecycle.add('connections to providers', dispatcher, (agent) => agent.destroy());
  const embedder = await opening;
  const report = (assistantId: string, written: Promise<void>): void =>
    void written.catch((cause: unknown) =>
      logger.warn({ err: cause, assistantId }, 'what exceeds the memory was not reported'),
    );
  const vectorsOf = createVectorReader(assistants.vectors, {
    logger,
    onRead: (assistantId, dropped) => report(assistantId, assistants.reportVectorsLeftOut(assistantId, dropped)),
  });

  const onLargeBuilt = ({ assistantId }: { assistantId: string }, leftOut: number): void => {
    if (leftOut > 0) logger.warn({ assistantId, leftOut }, 'knowledge has too many texts to index them all');
    report(assistantId, assistants.reportLeftOut(assistantId, leftOut));
  };
  const outlets = { publish: createPublisher(redis), draining: lifecycle.draining, logger };
  const askEngine = createAskEngine({
    conversations,
    assistants,
    engine: engine ?? createEngines({ vault, dispatcher, allowPrivate, indexes: { onLargeBuilt } }),
    semanticSearchOf: createSemanticSearch(embedder, vectorsOf, logger),
    ...outlets,
  });
  const opened = createInFlight({ total: turnsInFlight, logger });
  const inFlight = lifecycle.add('turns in flight', opened, ({ close }) => close());
  const answerTurn = createAnswerTurn({
    conversations,
    leases,
    askEngine,
    inFlight,
    turnQueue,
    countTurn: countTurns(metrics),
    ...outlets,
  });

  const shared = { service, config, logger, lifecycle };
  const process = async (data: unknown): Promise<void> => {
    await Promise.all(TurnsJob.parse(data).turns.map(answerTurn));
  };
  await openQueueWorkers({ queue: TURNS_QUEUE, concurrency: config.REPLY_CONCURRENCY, process }, shared);
  await openVectorUpdater(embedder, shared);
  openProjection(embedder, shared);
  openMaintenance(shared);
  const healthPort = await openWorkerDuties(shared, { metrics, countDelivery: countDeliveries(metrics) });
  return { ...service, healthPort, embedder, vectorsOf };
};
