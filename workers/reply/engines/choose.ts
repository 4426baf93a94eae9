import type { Dispatcher } from 'undici';
import { createBreaker } from '../../../src/platform/breaker.ts';
import type { Vault } from '../../../src/platform/vault.ts';
import type { AssistantEngine } from './engine.ts';
import { createOpenAiEngine } from './openai/engine.ts';
import { createRetrievalEngine } from './retrieval/engine.ts';
import type { IndexOptions } from './retrieval/indexes.ts';

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
