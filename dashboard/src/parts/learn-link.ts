import { withQuery } from '../api.ts';

const MAX = 1_000;

/** The address where an owner makes a knowledge entry of a question and, if there is one, an answer. */
export const learnLink = (assistantId: string, { question, answer = '' }: { question: string; answer?: string }) =>
  withQuery(`/assistants/${assistantId}/learn`, { question: question.slice(0, MAX), answer: answer.slice(0, MAX) });
