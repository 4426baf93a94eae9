export const ascending = (numbers: number[]): number[] => numbers.toSorted((a, b) => a - b);

/** The quantile: the value below which this share of the numbers lies. `sorted` must be in ascending order. */
export const quantile = (sorted: number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;

export const median = (numbers: number[]): number => {
  const sorted = ascending(numbers);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2;
};

/** Not sorted yet. */
export const p99Of = (numbers: number[]): number => quantile(ascending(numbers), 0.99);
