import { learnLink } from '../../../parts/learn-link.ts';
import type { Message } from '../thread/thread.ts';

/**
 * The address where an owner makes a knowledge entry from an operator's answer: the last one, with the visitor's
 * message before it. Null if no operator has answered.
 */
export const teachLink = (assistantId: string, messages: readonly Message[]): string | null => {
  const at = messages.findLastIndex(({ role }) => role === 'operator');
  const answer = messages[at];
  if (!answer) return null;
  const question = messages.slice(0, at).findLast(({ role }) => role === 'user');
  return learnLink(assistantId, { question: question?.content ?? '', answer: answer.content });
};
