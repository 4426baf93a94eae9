import type { Dispatcher } from 'undici';
import { createBreaker } from '../../src/process/breaker.ts';
import type { Config } from '../../src/process/config.ts';
import { newToken } from '../../src/process/ids.ts';
import type { Lifecycle } from '../../src/process/lifecycle.ts';
import type { Logger } from '../../src/process/logger.ts';
import { createMetrics } from '../../src/process/metrics.ts';
import { startSweeper } from '../../src/process/sweeper.ts';
import type { Vault } from '../../src/process/vault.ts';
import { countDeliveries, countEmbeddings, countTurns } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, openService, type Service } from '../../src/service.ts';
import { TURNS_QUEUE, TurnsJob } from '../../src/turns/queue.ts';
import { createPublisher } from '../../src/turns/replies.ts';
import { openQueueWorkers, openWorkerDuties } from '../../src/worker-process.ts';
import { createAnswerTurn } from './answer-turn.ts';
import { createAskEngine } from './ask-engine.ts';
import type { Embedder, SharedVectors } from '@parley/understanding';
import { createSharedVectors, openChosenEmbedder } from '../../src/embedder.ts';
import type { AssistantEngine } from './engines/engine.ts';
import { openGuardedAgent } from '../../src/webhooks/guarded-agent.ts';
import { createOpenAiEngine } from './engines/openai/engine.ts';
import { createRetrievalEngine, type IndexOptions } from './engines/retrieval.ts';
import { createInFlight } from './in-flight.ts';
import { createPassages } from './passages.ts';
import { createVectorReader } from './vectors/reader.ts';
import { createSemanticSearch } from './vectors/semantic-search.ts';
import { openVectorUpdater } from './vectors/updater.ts';

const MAINTENANCE_EVERY_MS = 20_000;

type MaintenanceOptions = { service: Pick<Service, 'aside'>; logger: Logger; lifecycle: Lifecycle };

/**
 * Purges erased conversations again after a minute and after a day. Every reply worker has its own timer: a schedule in
 * Redis is lost with Redis, and a process with a wrong clock can postpone it. Deliveries and idempotency keys need no
 * purge: they expire through MongoDB's TTL indexes.
 */
const openMaintenance = ({ service, logger, lifecycle }: MaintenanceOptions): void => {
  const purge = async (): Promise<void> => {
    const purged = await service.aside.conversations.purgeAgain();
    if (purged > 0) logger.info({ purged }, 'erased conversations were purged again');
  };
  const sweeper = startSweeper('purge', purge, { everyMs: MAINTENANCE_EVERY_MS, logger });
  lifecycle.add('purge', sweeper, (timer) => timer.stop());
};

type Dependencies = { vault: Vault; dispatcher: Dispatcher; allowPrivate: boolean; indexes?: IndexOptions };

/**
 * Selects the engine of each assistant: retrieval, or a provider that uses retrieval for its prompt and as fall-back.
 */
export const createEngines = ({ vault, dispatcher, allowPrivate, indexes }: Dependencies): AssistantEngine => {
  const retrieval = createRetrievalEngine(indexes);
  const askProvider = createOpenAiEngine({
    retrieval,
    dispatcher,
    breaker: createBreaker(),
    openKey: vault.open,
    allowPrivate,
  });
  return {
    name: 'chosen by the assistant',
    needsProvider: (assistant) => assistant.engine?.kind === 'openai' || retrieval.needsProvider?.(assistant) === true,
    answersImmediately: (turn) =>
      turn.assistant.engine?.kind !== 'openai' && retrieval.answersImmediately?.(turn) === true,
    reply: (turn) => {
      const { engine } = turn.assistant;
      return engine?.kind === 'openai' ? askProvider(turn, engine) : retrieval.reply(turn);
    },
  };
};

const EVERY_MS = 2_000;
const COUNT_EVERY_MS = 10_000;

type InsightsOptions = { service: Service; logger: Logger; lifecycle: Lifecycle };

/** Runs the projection: search words, figures and misses. All reply workers try, and one of them is the leader. */
const openProjection = (embedder: Embedder, { service, logger, lifecycle }: InsightsOptions): void => {
  const { insights, assistants, conversations, deliveries } = service.aside;
  const projection = insights.openProjection({
    token: newToken(),
    changed: conversations.changed,
    listAssistantIds: assistants.listAssistantIds,
    embedding: {
      // Like a visitor's question, but without haste.
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
    startSweeper('projection', round, { everyMs: EVERY_MS, logger }),
    startSweeper('misses', group, { everyMs: EVERY_MS, logger }),
  ];
  lifecycle.add('projection', sweepers, (all) => Promise.all(all.map((one) => one.stop())));
};

/**
 * Slots for provider calls per job. One assistant gets at most half of all slots, so with two per job it gets one for
 * each job.
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
  let sharedVectors: SharedVectors | null = null;
  // The model is opened in parallel with the stores, because both take about the same time.
  const opening = given.embedder
    ? Promise.resolve(given.embedder)
    : openChosenEmbedder({ config, logger, count: countEmbeddings(metrics), shared: () => sharedVectors });
  void lifecycle.add('embedder', opening, async (opened) => (await opened).close());
  const service = await openService({
    config,
    logger,
    lifecycle,
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
  });
  const { conversations, assistants, leases, turnQueue, redis, vault } = service;
  sharedVectors = createSharedVectors(redis, config.REDIS_PREFIX);
  const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
  const turnsInFlight = SLOTS_PER_JOB * config.REPLY_CONCURRENCY;
  const dispatcher = openGuardedAgent({ allowPrivate, connections: turnsInFlight });
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
    passages: createPassages({
      store: service.passages,
      background: service.aside.passages,
      embedder,
      reportLeftOut: service.aside.assistants.reportPassagesLeftOut,
      logger,
    }),
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
