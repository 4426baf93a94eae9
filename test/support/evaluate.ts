import { expect } from 'vitest';
import type { Asked } from '../../src/evaluation/evaluations.ts';
import type { evaluationOperations } from '../../src/evaluation/http/evaluations.ts';
import { eventually } from './eventually.ts';
import type { anOperator } from './operator-client.ts';
import type { AnswerOf } from '../kit/operations.ts';

type Run = AnswerOf<typeof evaluationOperations.read>;
export type Results = AnswerOf<typeof evaluationOperations.results>;

/** A question of an evaluation, of no set and no conversation. */
export const askedOf = (question = 'Where?', more: Partial<Asked> = {}): Asked => ({
  question,
  language: 'en',
  expected: null,
  caseId: null,
  conversationId: null,
  conversationIds: [],
  before: null,
  ...more,
});

/** Begins an evaluation below the path of an assistant, and waits until it has this state. */
export const evaluateWith =
  (owner: Awaited<ReturnType<typeof anOperator>>, own: string) =>
  async (wanted: object, state = 'done') => {
    const begun = await owner.post<Run>(`${own}/evaluations`, wanted);
    expect(begun.status).toBe(201);
    const at = `${own}/evaluations/${begun.body.evaluationId}`;
    return eventually(async () => {
      const run = (await owner.get<Run>(at)).body;
      expect(run.state).toBe(state);
      return { ...run, results: (await owner.get<Results>(`${at}/results`)).body.results };
    });
  };
