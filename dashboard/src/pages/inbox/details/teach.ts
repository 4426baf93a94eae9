import type { Message } from '../thread/thread.ts';

/** What an operator answered last, with the visitor's message before it. Null if no operator has answered. */
export const findLastAnswer = (messages: readonly Message[]): { question: string; answer: string } | null => {
  const at = messages.findLastIndex(({ role }) => role === 'operator');
  const answer = messages[at];
  if (!answer) return null;
  const question = messages.slice(0, at).findLast(({ role }) => role === 'user');
  return { question: question?.content ?? '', answer: answer.content };
};
