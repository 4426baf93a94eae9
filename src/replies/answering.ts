import { type Embedder, shareLoop } from '@parley/understanding';
import type { Dispatcher } from 'undici';
import {
  createDraftVectors,
  createSemanticSearch,
  createVectorReader,
  type VectorsOf,
} from '../assistants/knowledge/semantic-search.ts';
import type { AssistantStore } from '../assistants/store.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { openGuardedAgent } from '../platform/http/address-guard.ts';
import { createBreaker } from '../platform/process/breaker.ts';
import type { Config } from '../platform/process/config.ts';
import type { Lifecycle } from '../platform/process/lifecycle.ts';
import type { Logger } from '../platform/process/logger.ts';
import type { SharedMemory } from '../platform/process/lru.ts';
import { createSlices } from '../platform/process/slices.ts';
import type { Tracing } from '../platform/process/tracing.ts';
import type { Vault } from '../platform/process/vault.ts';
import { createPassages } from '../sources/passage-index.ts';
import type { PassageStore } from '../sources/passages.ts';
import { type AllowanceStore, createReserveCall, type ReserveCall } from '../turns/allowances.ts';
import type { TurnLeases } from '../turns/leases.ts';
import { type TurnQueue, TurnsJob } from '../turns/queue.ts';
import type { Publisher } from '../turns/waiters.ts';
import { type CountTurn, createAnswerTurn, createInFlight } from './answer-turn.ts';
import { type AskEngine, createAskEngine } from './ask-engine.ts';
import type { AssistantEngine } from './engines/engine.ts';
import { type CountBudgetUsedUp, createOpenAiEngine } from './engines/openai/engine.ts';
import { createRetrievalEngine, type IndexOptions } from './engines/retrieval.ts';

type EnginesDependencies = {
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
export const createEngines = ({ vault, indexes, ...rest }: EnginesDependencies): AssistantEngine => {
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

/**
 * Slots for provider calls per job. A slow assistant gets at most a quarter of all slots, so with four per job it gets
 * one for each job.
 */
const SLOTS_PER_JOB = 4;

type AnsweringDependencies = {
  conversations: ConversationStore;
  assistants: AssistantStore;
  passages: PassageStore;
  /** The same stores on the second pool, for what no turn waits for. */
  aside: { assistants: AssistantStore; passages: PassageStore };
  allowances: AllowanceStore;
  leases: TurnLeases;
  turnQueue: TurnQueue;
  publisher: Pick<Publisher, 'publish'>;
  memory: SharedMemory;
  vault: Vault;
  embedder: Embedder;
  countTurn: CountTurn;
  onBudgetUsedUp: CountBudgetUsedUp;
  tracing: Tracing;
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
};

export type AnsweringOptions = {
  engine?: AssistantEngine;
  /** Connections to providers in addition to those of turns, for what asks them beside. */
  connectionsBeside: number;
  /** Since when the whole process stops, if its module stops later. */
  stopping: AbortSignal;
};

export type TurnAnswering = {
  /** Answers the turns that a job names. */
  process: (data: unknown) => Promise<void>;
  askEngine: AskEngine;
  vectorsOf: VectorsOf;
};

/** Answers turns, with the engine that each assistant has chosen. The lifecycle closes what this opens. */
export const openAnswering = (
  { conversations, assistants, aside, leases, memory, turnQueue, embedder, ...given }: AnsweringDependencies,
  { engine, connectionsBeside, stopping }: AnsweringOptions,
): TurnAnswering => {
  const { config, logger, lifecycle } = given;
  shareLoop(createSlices);
  const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
  const turnsInFlight = SLOTS_PER_JOB * config.REPLY_CONCURRENCY;
  const dispatcher = openGuardedAgent({ allowPrivate, connections: turnsInFlight + connectionsBeside });
  lifecycle.add('connections to providers', dispatcher, (agent) => agent.destroy());
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
  const outlets = { publish: given.publisher.publish, draining: lifecycle.draining, logger };
  const draftVectors = createDraftVectors({ vectors: aside.assistants.vectors, vectorsOf, embedder });
  const logUnsettled = (cause: unknown): void =>
    logger.warn({ err: cause }, 'the cost of a call was not settled: it counts as reserved');
  const providers = {
    vault: given.vault,
    dispatcher,
    allowPrivate,
    reserveCall: createReserveCall(given.allowances, logUnsettled),
    onBudgetUsedUp: given.onBudgetUsedUp,
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
      store: given.passages,
      background: aside.passages,
      embedder,
      reportLeftOut: aside.assistants.reportPassagesLeftOut,
      logger,
      memory,
    }),
    stopping,
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
    countTurn: given.countTurn,
    tracing: given.tracing,
    ...outlets,
  });
  return {
    process: async (data) => {
      await Promise.all(TurnsJob.parse(data).turns.map(answerTurn));
    },
    askEngine,
    vectorsOf,
  };
};
