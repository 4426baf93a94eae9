import type { Dispatcher } from 'undici';
import { createBreaker } from '../../../src/platform/breaker.ts';
import type { Vault } from '../../../src/platform/vault.ts';
import type { AssistantEngine } from './engine.ts';
import { createOpenAiEngine } from './openai/engine.ts';
import { createRetrievalEngine } from './retrieval/engine.ts';

type Dependencies = { vault: Vault; dispatcher: Dispatcher; allowPrivate: boolean };

/**
 * Selects the engine of each assistant: retrieval, or a provider that uses retrieval for its prompt and as fall-back.
 */
export const createEngines = ({ vault, dispatcher, allowPrivate }: Dependencies): AssistantEngine => {
  const retrieval = createRetrievalEngine();
  const askProvider = createOpenAiEngine({
    retrieval,
    dispatcher,
    breaker: createBreaker(),
    openKey: vault.open,
    allowPrivate,
  });
  return {
    name: 'chosen by the assistant',
    needsProvider: ({ engine }) => engine?.kind === 'openai',
    answersImmediately: (turn) =>
      turn.assistant.engine?.kind !== 'openai' && retrieval.answersImmediately?.(turn) === true,
    reply: (turn) => {
      const { engine } = turn.assistant;
      return engine?.kind === 'openai' ? askProvider(turn, engine) : retrieval.reply(turn);
    },
  };
};
