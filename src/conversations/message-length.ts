import type { Message } from './conversation.ts';

/** UTF-16 units of the long parts of the messages. Batches use it to bound their size. */
export const lengthOfMessages = (messages: readonly Message[]): number =>
  messages.reduce((sum, { content, why, suggestedActions }) => {
    const beside = why || suggestedActions ? JSON.stringify([why, suggestedActions]).length : 0;
    return sum + content.length + beside;
  }, 0);
