import { expect, test } from 'vitest';
import { measureAnswers, type Outcome } from './eval/measure.ts';

test('on the report half most questions find their entry and what is unknown stays unanswered', async () => {
  const measured = await measureAnswers('report', null);
  const share = (known: boolean, ...outcomes: Outcome[]): number => {
    const of = measured.filter(({ question }) => (question.expected !== null) === known);
    return of.filter(({ outcome }) => outcomes.includes(outcome)).length / of.length;
  };

  const right = share(true, 'answeredRight', 'askedBack');
  const wrong = share(false, 'answeredWrong');

  expect(right).toBeGreaterThanOrEqual(0.85);
  expect(wrong).toBeLessThanOrEqual(0.05);
});
