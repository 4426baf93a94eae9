import type { Dispatcher } from 'undici';
import { createPace } from '../../src/alerts/worker-signs.ts';
import { createChannelCalls } from '../../src/assistants/channel.ts';
import { createBreaker } from '../../src/platform/process/breaker.ts';
import { serverNow } from '../../src/platform/process/clock.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import type { SharedMemory } from '../../src/platform/process/lru.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { createSlices } from '../../src/platform/process/slices.ts';
import { startSweeper } from '../../src/platform/process/sweeper.ts';
import type { Vault } from '../../src/platform/process/vault.ts';
import { countBudgetUsedUp, countDeliveries, countEmbeddings, countTurns } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { createReserveCall, type ReserveCall } from '../../src/turns/allowances.ts';
import { KNOWLEDGE_QUEUE } from '../../src/assistants/knowledge/semantic-state.ts';
import { TURNS_QUEUE, TurnsJob } from '../../src/turns/queue.ts';
import { openQueueWorkers, openWorkerDuties, openWorkerHealth } from '../../src/worker-process.ts';
import { createAnswerTurn, createInFlight } from '../../src/replies/answer-turn.ts';
import { createAskEngine } from '../../src/replies/ask-engine.ts';
import { ASKING_MAX, openEvaluator } from '../../src/evaluation/evaluator.ts';
import { type Embedder, shareLoop } from '@parley/understanding';
import { beginEmbedder, type OpeningEmbedder } from '../../src/embedder.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { openGuardedAgent } from '../../src/platform/http/address-guard.ts';
import { type CountBudgetUsedUp, createOpenAiEngine } from '../../src/replies/engines/openai/engine.ts';
import { createRetrievalEngine, type IndexOptions } from '../../src/replies/engines/retrieval.ts';
import { createPassages } from '../../src/sources/passage-index.ts';
import {
  createDraftVectors,
  createSemanticSearch,
  createVectorReader,
} from '../../src/assistants/knowledge/semantic-search.ts';
import { startVectorUpdates } from '../../src/assistants/knowledge/update-vectors.ts';

const DAY_MS = 86_400_000;
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

type Dependencies = {
  vault: Vault;
  dispatcher: Dispatcher;
  allowPrivate: boolean;
  reserveCall: ReserveCall;
  onBudgetUsedUp: CountBudgetUsedUp;
  stopAfterMs?: number;
  indexes?: IndexOptions;
};

/**
 * Selects the engine of each assistant: retrieval, or a provider that uses retrieval for its prompt and as fall-back.
 */
export const createEngines = ({ vault, indexes, ...rest }: Dependencies): AssistantEngine => {
  const retrieval = createRetrievalEngine(indexes);
  const askProvider = createOpenAiEngine({
    retrieval,
    breaker: createBreaker(),
    openKey: vault.open,
    ...rest,
  });
  return {
    name: 'chosen by the assistant',
    needsProvider: (assistant) => assistant.engine?.kind === 'openai' || retrieval.needsProvider?.(assistant) === true,
    answersImmediately: (turn) =>
      turn.assistant.engine?.kind !== 'openai' && retrieval.answersImmediately?.(turn) === true,
    atVersion: (assistant, mayWait) => retrieval.atVersion?.(assistant, mayWait) ?? assistant,
    reply: (turn) => {
      const { engine } = turn.assistant;
      return engine?.kind === 'openai' ? askProvider(turn, engine) : retrieval.reply(turn);
    },
  };
};

const EVERY_MS = 2_000;
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
    startSweeper('projection', round, { everyMs: EVERY_MS, logger }),
    startSweeper('misses', group, { everyMs: EVERY_MS, logger }),
  ];
  lifecycle.add('projection', sweepers, (all) => Promise.all(all.map((one) => one.stop())));
};

/**
 * Slots for provider calls per job. A slow assistant gets at most a quarter of all slots, so with four per job it gets
 * one for each job.
 */
const SLOTS_PER_JOB = 4;

/** Assembles and starts the reply worker. Tests may pass their own engine or embedder. */
export const openReplyWorker = async ({
  engine,
  embedder,
  memory,
  ...opening
}: Opening & { engine?: AssistantEngine; embedder?: Embedder; memory?: SharedMemory }) => {
  const metrics = createMetrics({ token: opening.config.METRICS_TOKEN });
  const beginning = beginEmbedder({ ...opening, embedder, count: countEmbeddings(metrics) });
  const service = await openService({
    ...opening,
    ...(memory && { memory }),
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
    tracesAs: 'parley-reply-worker',
  });
  const module = { service, metrics, ...opening };
  const own = await answerTurns(module, { embedder: beginning, ...(engine && { engine }) });
  const sweeps = openWorkerDuties(module, { countDelivery: countDeliveries(metrics) });
  return { ...service, ...own, healthPort: await openWorkerHealth(module, sweeps) };
};

type AnsweringOptions = {
  embedder: OpeningEmbedder;
  engine?: AssistantEngine;
  /** Since when the whole process stops, if this module stops later. */
  stopping?: AbortSignal;
};

/** The module that answers turns, with the work in the background that has no process of its own. */
export const answerTurns = async (
  module: Module,
  { embedder: beginning, engine, stopping = module.lifecycle.draining }: AnsweringOptions,
) => {
  const { service, metrics, config, logger, lifecycle } = module;
  shareLoop(createSlices);
  const { conversations, assistants, leases, memory, turnQueue, redis, vault } = service;
  beginning.share(redis, config.REDIS_PREFIX);
  const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
  const turnsInFlight = SLOTS_PER_JOB * config.REPLY_CONCURRENCY;
  // Evaluations have connections in addition, so that no turn waits for one of theirs.
  const dispatcher = openGuardedAgent({ allowPrivate, connections: turnsInFlight + ASKING_MAX });
  lifecycle.add('connections to providers', dispatcher, (agent) => agent.destroy());
  const embedder = await beginning.opened;
  const report = (assistantId: string, written: Promise<void>): void =>
    void written.catch((cause: unknown) =>
      logger.warn({ err: cause, assistantId }, 'what exceeds the memory was not reported'),
    );
  const vectorsOf = createVectorReader(assistants.vectors, {
    logger,
    memory,
    onRead: (assistantId, dropped) => report(assistantId, assistants.reportVectorsLeftOut(assistantId, dropped)),
  });

  const onLargeBuilt = ({ assistantId }: { assistantId: string }, leftOut: number): void => {
    if (leftOut > 0) logger.warn({ assistantId, leftOut }, 'knowledge has too many texts to index them all');
    report(assistantId, assistants.reportLeftOut(assistantId, leftOut));
  };
  const outlets = { publish: service.publisher.publish, draining: lifecycle.draining, logger };
  const draftVectors = createDraftVectors({ vectors: service.aside.assistants.vectors, vectorsOf, embedder });
  const logUnsettled = (cause: unknown): void =>
    logger.warn({ err: cause }, 'the cost of a call was not settled: it counts as reserved');
  const providers = {
    vault,
    dispatcher,
    allowPrivate,
    reserveCall: createReserveCall(service.allowances, logUnsettled),
    onBudgetUsedUp: countBudgetUsedUp(metrics),
    stopAfterMs: config.timing.providerStopAfterMs,
  };
  const askEngine = createAskEngine({
    conversations,
    assistants,
    engine: engine ?? createEngines({ ...providers, indexes: { memory, onLargeBuilt } }),
    semanticSearchOf: createSemanticSearch(embedder, vectorsOf, logger),
    draftEngine: engine ?? createEngines({ ...providers, indexes: { memory, isForDrafts: true } }),
    draftVectors,
    draftSearchOf: (draft) => createSemanticSearch(embedder, draftVectors.vectorsOf(draft), logger),
    passages: createPassages({
      store: service.passages,
      background: service.aside.passages,
      embedder,
      reportLeftOut: service.aside.assistants.reportPassagesLeftOut,
      logger,
      memory,
    }),
    stopping,
    ...outlets,
  });
  const opened = createInFlight({ total: turnsInFlight, logger });
  const inFlight = lifecycle.add('turns in flight', opened, ({ close }) => close());
  const countTurn = countTurns(metrics);
  const pace = createPace();
  const answerTurn = createAnswerTurn({
    conversations,
    leases,
    askEngine,
    inFlight,
    turnQueue,
    countTurn: (outcome, seconds) => {
      countTurn(outcome, seconds);
      pace.note(seconds);
    },
    tracing: service.tracing,
    ...outlets,
  });

  const process = async (data: unknown): Promise<void> => {
    await Promise.all(TurnsJob.parse(data).turns.map(answerTurn));
  };
  await openQueueWorkers({ queue: TURNS_QUEUE, concurrency: config.REPLY_CONCURRENCY, pace, process }, module);
  const store = service.aside.assistants;
  const updateVectors = await startVectorUpdates({ store, embedder, timing: config.timing, logger, lifecycle });
  await openQueueWorkers({ queue: KNOWLEDGE_QUEUE, concurrency: 1, process: updateVectors }, module);
  openProjection(embedder, module);
  openEvaluator({ evaluations: service.aside.evaluations, askEngine, embedder, lifecycle, logger });
  openMaintenance(module);
  return { embedder, vectorsOf };
};
