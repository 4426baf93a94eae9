import type { AssistantEngine } from '../../workers/reply/engines/engine.ts';

/** An engine that holds the answers to messages beginning with `held`, until `letGo` is called. */
export const aHeldEngine = () => {
  const gate = Promise.withResolvers<void>();
  const asked: string[] = [];
  const engine: AssistantEngine = {
    name: 'held',
    reply: async ({ message, language, onDelta }) => {
      asked.push(message);
      onDelta?.('You ');
      if (message.startsWith('held')) await gate.promise;
      const text = `You said: ${message}`;
      return { text, suggestedActions: [], confidence: 1, low: false, language, why: {} };
    },
  };
  return { engine, asked, letGo: gate.resolve };
};
