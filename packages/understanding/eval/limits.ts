import type { Measured, Outcome } from './measure.ts';

type Limit = { answered: number; reached: number; wrong: number; unanswerable: number; cross: number };

/**
 * Limits for unseen domains, as shares of the questions. `answered`: answered right. `reached`: the right answer is
 * given or offered. `wrong`: answered wrong. `unanswerable`: answered, although there is no answer. `cross`: answered
 * right across languages.
 */
export const LIMITS: { meaning: Limit; words: Limit; language: number } = {
  meaning: { answered: 0.82, reached: 0.93, wrong: 0.04, unanswerable: 0.04, cross: 0.75 },
  words: { answered: 0.15, reached: 0.3, wrong: 0.04, unanswerable: 0.1, cross: 0 },
  language: 0.95,
};

export const countOf = (measured: Measured[], ...outcomes: Outcome[]): number =>
  outcomes.length === 0 ? measured.length : measured.filter(({ outcome }) => outcomes.includes(outcome)).length;

export const shareOf = (measured: Measured[], ...outcomes: Outcome[]): number =>
  countOf(measured, ...outcomes) / measured.length;

/** Compares the measured shares with the limits. */
export const limitsOf = (measured: Measured[], limit: Limit) => {
  const answerable = measured.filter((one) => one.answerable);
  const unanswerable = measured.filter((one) => !one.answerable);
  const cross = answerable.filter(({ question }) => question.kind === 'cross');
  const atLeast = (name: string, share: number, least: number) => ({
    name,
    share,
    least: `at least ${least * 100} %`,
    holds: share >= least,
  });
  const atMost = (name: string, share: number, most: number) => ({
    name,
    share,
    least: `at most ${most * 100} %`,
    holds: share <= most,
  });
  return [
    atLeast('answered right', shareOf(answerable, 'right'), limit.answered),
    atLeast('right or offered', shareOf(answerable, 'right', 'offered'), limit.reached),
    atMost('answered wrong', shareOf(answerable, 'wrong'), limit.wrong),
    atMost('unanswerable answered', shareOf(unanswerable, 'wrong'), limit.unanswerable),
    atLeast('answered right across languages', shareOf(cross, 'right'), limit.cross),
  ];
};
