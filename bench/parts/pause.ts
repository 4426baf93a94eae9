import { setTimeout as sleep } from 'node:timers/promises';
import { figureOf, type Part } from '../support/figures.ts';

const PIECES = 300;
const PAUSES_MS = [0, 1, 5, 20];

/** Some strings and objects made, as any request makes them; the same each time. */
const work = (): object =>
  Object.fromEntries(
    Array.from({ length: 300 }, (_, index) => [
      `k${index % 50}`,
      JSON.stringify({ index, pad: 'x'.repeat(index % 20) }),
    ]),
  );

/**
 * What this machine takes for the same piece of work, done over and over and done after a pause: the CPU of its process, the
 * waking up included. Where the two are far apart, a service costs most when it has least to do.
 */
export const pause: Part = async ({ rounds }, say) => {
  say('pause: the same work after pauses');
  for (let piece = 0; piece < 20 * PIECES; piece += 1) work();
  const spent = new Map(PAUSES_MS.map((ms) => [ms, [] as number[]]));
  for (let round = 0; round < rounds; round += 1) {
    for (const ms of PAUSES_MS) {
      const pieces = ms > 5 ? PIECES / 5 : PIECES;
      const before = process.cpuUsage();
      for (let piece = 0; piece < pieces; piece += 1) {
        work();
        if (ms > 0) await sleep(ms);
      }
      const { user, system } = process.cpuUsage(before);
      spent.get(ms)?.push((user + system) / pieces);
    }
  }
  const figures = [...spent].map(([ms, values]) => {
    const how = ms === 0 ? 'over and over' : `after ${ms} ms of rest each time`;
    return figureOf(`pause.${ms}`, `the same piece of work, ${how}`, 'µs', values);
  });
  return { figures, detail: {} };
};
