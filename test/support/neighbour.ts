import { ascending, quantile } from '../kit/quantiles.ts';

export type Watched = { p50: number; p99: number; longest: number; statuses: number[] };

/**
 * Sends a neighbour's requests one after the other while `work` runs, and at least `atLeast` of them. Returns how long
 * they took (ms) and the distinct statuses.
 */
export const watchNeighbour = async (
  send: () => Promise<{ status: number }>,
  work: () => Promise<unknown>,
  { atLeast = 20 } = {},
): Promise<Watched> => {
  let isWorking = true;
  const working = work().finally(() => {
    isWorking = false;
  });
  const times: number[] = [];
  const statuses = new Set<number>();
  try {
    while (isWorking || times.length < atLeast) {
      const begun = performance.now();
      statuses.add((await send()).status);
      times.push(performance.now() - begun);
    }
  } finally {
    await working;
  }
  const sorted = ascending(times);
  const [p50, p99, longest = 0] = [quantile(sorted, 0.5), quantile(sorted, 0.99), sorted.at(-1)];
  return { p50, p99, longest, statuses: [...statuses] };
};
