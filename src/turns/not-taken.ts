import type { Assistant } from '../assistants/assistant.ts';
import { notTakenText } from '../assistants/away-texts.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { TakeByEnd } from '../conversations/transitions.ts';
import type { Logger } from '../platform/logger.ts';

const ENDED_PER_SWEEP = 200;

type Dependencies = {
  conversations: ConversationStore;
  findAssistant: (assistantId: string) => Promise<Assistant | null>;
  logger: Logger;
};

/** A time limit that was switched off meanwhile ends nothing. */
const endOf = (assistant: Assistant | null, language: string): TakeByEnd => {
  if (!assistant || assistant.takeWithinMinutes === null) return { how: 'stay' };
  const { ifNotTaken: how } = assistant;
  return how === 'hand_back' ? { how, said: notTakenText(language) } : { how };
};

/** Ends the take-by time of escalations that nobody took: a reminder, a hand-back, or nothing (docs/design.md, Sweeps). */
export const createNotTakenSweep =
  ({ conversations, findAssistant, logger }: Dependencies) =>
  async (): Promise<void> => {
    for (const { conversationId, assistantId, language } of await conversations.findNotTaken(ENDED_PER_SWEEP)) {
      const end = endOf(await findAssistant(assistantId), language);
      try {
        const { changed } = await conversations.transitions.endTakeBy({ conversationId }, end);
        if (changed) logger.info({ conversationId, assistantId, how: end.how }, 'an escalation was not taken in time');
      } catch (cause) {
        // One conversation that was erased or changes too fast must not delay the others.
        logger.warn({ err: cause, conversationId }, 'the take-by time of an escalation was not ended');
      }
    }
  };
