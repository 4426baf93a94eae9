import type { AssistantEngine, EngineReply, TurnContext } from '../../src/replies/engines/engine.ts';

type Script = (turn: TurnContext) => Partial<EngineReply>;

/**
 * An engine that answers with an echo, and with what the script says in other words. `hold` holds the reply to a message
 * until the returned function is called. `asked` lists the messages that have reached the engine.
 */
export const aScriptedEngine = (script: Script = () => ({}), more: Partial<AssistantEngine> = {}) => {
  const gates = new Map<string, Promise<void>>();
  const asked: string[] = [];
  const hold = (message: string): (() => void) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    gates.set(message, promise);
    return resolve;
  };
  const engine: AssistantEngine = {
    name: 'scripted',
    reply: async (turn) => {
      const { message, language } = turn;
      asked.push(message);
      const scripted = script(turn);
      await gates.get(message);
      const echo = { text: `echo: ${message}`, suggestedActions: [], confidence: 1, low: false, language, why: {} };
      return { ...echo, ...scripted };
    },
    ...more,
  };
  return { engine, hold, asked };
};
