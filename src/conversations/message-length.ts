import type { Message } from './conversation.ts';

/** UTF-16 units of all that a message stores and that can be long, for those who batch writes. */
export const lengthOfMessages = (messages: readonly Message[]): number =>
  messages.reduce((sum, { content, why, suggestedActions }) => {
    const beside = why || suggestedActions ? JSON.stringify([why, suggestedActions]).length : 0;
    return sum + content.length + beside;
  }, 0);
