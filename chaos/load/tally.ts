import { ascending, quantile } from '../../test/kit/quantiles.ts';
import { type LoadResult, type Quantiles, REFUSED_WITHIN_MS } from './settings.ts';

/** Loads with more turns than this are described by their quantiles only. */
const SAMPLES_MAX = 20_000;

export const quantilesOf = (numbers: number[]): Quantiles => {
  const sorted = ascending(numbers);
  const [p50, p99] = [quantile(sorted, 0.5), quantile(sorted, 0.99)];
  return { count: sorted.length, p50, p99, max: sorted.at(-1) ?? Number.NaN };
};

/** Counts the answers of a load, and keeps how long each took. */
export const createTally = () => {
  const statuses: Record<string, number> = {};
  const answered: number[] = [];
  const refused: number[] = [];
  const samples: LoadResult['samples'] = [];
  let [lost, skipped, refusedWithoutRetryAfter, refusedInTime] = [0, 0, 0, 0];

  return {
    note: (status: number, sentAt: number): void => {
      const ms = performance.now() - sentAt;
      statuses[status] = (statuses[status] ?? 0) + 1;
      if (status === 200) answered.push(ms);
      if (status === 429 || status === 503) {
        refused.push(ms);
        if (ms <= REFUSED_WITHIN_MS) refusedInTime += 1;
      }
      if (samples.length <= SAMPLES_MAX) samples.push({ sentAt: performance.timeOrigin + sentAt, ms, status });
    },
    noteLost: (): void => void (lost += 1),
    noteSkipped: (): void => void (skipped += 1),
    noteMissingRetryAfter: (): void => void (refusedWithoutRetryAfter += 1),

    result: (measured: Pick<LoadResult, 'startedAt' | 'endedAt' | 'generatorLag'>): LoadResult => ({
      ...measured,
      sent: Object.values(statuses).reduce((sum, count) => sum + count, lost),
      statuses,
      lost,
      skipped,
      refusedWithoutRetryAfter,
      refusedInTime,
      answered: quantilesOf(answered),
      refused: quantilesOf(refused),
      samples: samples.length > SAMPLES_MAX ? [] : samples,
    }),
  };
};
