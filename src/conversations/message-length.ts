import type { Message } from './conversation.ts';

/** The length of the long texts in these messages, in UTF-16 units. Batches use this length to limit their size. */
export const lengthOfMessages = (messages: readonly Message[]): number =>
  messages.reduce((sum, { content, why, suggestedActions }) => {
    const beside = why || suggestedActions ? JSON.stringify([why, suggestedActions]).length : 0;
    return sum + content.length + beside;
  }, 0);
