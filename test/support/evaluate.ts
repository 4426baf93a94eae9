import { expect } from 'vitest';
import type { evaluationOperations } from '../../src/evaluation/http/evaluations.ts';
import { eventually } from './eventually.ts';
import type { anOperator } from './operator-client.ts';
import type { AnswerOf } from '../kit/operations.ts';

type Run = AnswerOf<typeof evaluationOperations.read>;
export type Results = AnswerOf<typeof evaluationOperations.results>;

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
