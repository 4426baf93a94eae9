import { row, type Verdict } from '../support/table.ts';
import type { LoadResult } from './settings.ts';
import { type Differences, TURN_RULES } from './verify.ts';

export const ms = (value: number | null): string => (value === null || Number.isNaN(value) ? '–' : value.toFixed(0));

export const quantileText = ({ p50, p99, max }: LoadResult['answered']): string =>
  `${ms(p50)} / ${ms(p99)} / ${ms(max)}`;

export const countOf = ({ statuses }: LoadResult, ...some: number[]): number =>
  some.reduce((sum, status) => sum + (statuses[status] ?? 0), 0);

export const perSecond = (result: LoadResult, count: number): number =>
  (count * 1000) / (result.endedAt - result.startedAt);

export const none = (rule: string, found: number): Verdict => ({ rule, found, kept: found === 0 });

export const turnVerdicts = ({ wrong }: Differences): Verdict[] =>
  TURN_RULES.map((rule) => none(rule, wrong.get(rule)?.length ?? 0));

/** Prints a few examples of each violated rule. */
export const printExamples = ({ wrong }: Differences): void => {
  for (const [rule, examples] of wrong) console.log(`\n${rule}:\n  ${examples.slice(0, 5).join('\n  ')}`);
};

export const printQuantiles = (what: string, quantiles: LoadResult['answered']): void =>
  console.log(row(`${what}, ms: p50 / p99 / max`, quantileText(quantiles)));
