import { type Embedder, shareLoop } from '@parley/understanding';
import type { Dispatcher } from 'undici';
import {
  createDraftVectors,
  createSemanticSearch,
  createVectorReader,
  type VectorsOf,
} from '../assistants/knowledge/semantic-search.ts';
import { openGuardedAgent } from '../platform/http/address-guard.ts';
import { createBreaker } from '../platform/process/breaker.ts';
import { createSlices } from '../platform/process/slices.ts';
import type { Vault } from '../platform/process/vault.ts';
import type { Module } from '../service.ts';
import { createPassages } from '../sources/passage-index.ts';
import { createReserveCall, type ReserveCall } from '../turns/allowances.ts';
import { TurnsJob } from '../turns/queue.ts';
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
      turn.assistant.engine?.kind !== 'openai' && (retrieval.answersImmediately?.(turn) ?? false),
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

/** What a process may decide. Tests pass their own engine. */
export type AnsweringOptions = {
  engine?: AssistantEngine;
  /** Since when the whole process stops, if this module stops later. */
  stopping?: AbortSignal;
};

type GivenAnswering = AnsweringOptions & {
  embedder: Embedder;
  countTurn: CountTurn;
  onBudgetUsedUp: CountBudgetUsedUp;
  /** Connections to providers in addition to those of turns, for what asks them beside. */
  connectionsBeside: number;
};

type TurnAnswering = {
  /** Answers the turns that a job names. */
  process: (data: unknown) => Promise<void>;
  askEngine: AskEngine;
  vectorsOf: VectorsOf;
};

/** Answers turns, with the engine that each assistant has chosen. The lifecycle closes what this opens. */
export const openAnswering = (
  { service, config, logger, lifecycle }: Module,
  { engine, stopping = lifecycle.draining, connectionsBeside, ...given }: GivenAnswering,
): TurnAnswering => {
  const { conversations, assistants, passages, aside, allowances, publisher, memory, vault } = service;
  const { embedder, onBudgetUsedUp } = given;
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
  const outlets = { publish: publisher.publish, draining: lifecycle.draining, logger };
  const draftVectors = createDraftVectors({ vectors: aside.assistants.vectors, vectorsOf, embedder });
  const logUnsettled = (cause: unknown): void =>
    logger.warn({ err: cause }, 'the cost of a call was not settled: it counts as reserved');
  const providers = {
    vault,
    dispatcher,
    allowPrivate,
    reserveCall: createReserveCall(allowances, logUnsettled),
    onBudgetUsedUp,
    stopAfterMs: config.timing.providerStopAfterMs,
  };
  const ofPassages = {
    store: passages,
    background: aside.passages,
    embedder,
    reportLeftOut: aside.assistants.reportPassagesLeftOut,
    logger,
    memory,
  };
  const askEngine = createAskEngine({
    conversations,
    assistants,
    engine: engine ?? createEngines({ ...providers, indexes: { memory, onLargeBuilt } }),
    semanticSearchOf: createSemanticSearch(embedder, vectorsOf, logger),
    draftEngine: engine ?? createEngines({ ...providers, indexes: { memory, isForDrafts: true } }),
    draftVectors,
    draftSearchOf: (draft) => createSemanticSearch(embedder, draftVectors.vectorsOf(draft), logger),
    passages: createPassages(ofPassages),
    draftPassages: createPassages({ ...ofPassages, isForDrafts: true }),
    stopping,
    ...outlets,
  });
  const opened = createInFlight({ total: turnsInFlight, logger });
  const inFlight = lifecycle.add('turns in flight', opened, ({ close }) => close());
  const answerTurn = createAnswerTurn({ ...service, ...outlets, askEngine, inFlight, countTurn: given.countTurn });
  return {
    process: async (data) => {
      await Promise.all(TurnsJob.parse(data).turns.map(answerTurn));
    },
    askEngine,
    vectorsOf,
  };
};
