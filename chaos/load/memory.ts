import { median } from '../../test/kit/quantiles.ts';

/** What a process may grow from the second to the last quarter of a run. A heap grows in steps, so a little is allowed. */
const GROWTH_MAX = { share: 0.1, mb: 20 };

/** The medians of the second and the last quarter of a series. The first quarter is the warm-up. */
export const quartersOf = (series: number[]): { second: number; last: number } => {
  const part = (from: number, to: number): number =>
    median(series.slice(Math.floor(series.length * from), Math.ceil(series.length * to)));
  return { second: part(0.25, 0.5), last: part(0.75, 1) };
};

export const isFlat = (series: number[], { share, mb } = GROWTH_MAX): boolean => {
  const { second, last } = quartersOf(series);
  return last <= second * (1 + share) + mb;
};
