import type { AssistantEngine } from '../../workers/reply/engines/engine.ts';

/** An engine whose answers a test lets go: those to messages that begin with `held`, until `letGo`. */
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
