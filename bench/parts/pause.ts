import { setTimeout as sleep } from 'node:timers/promises';
import { figureOf, type Part } from '../support/figures.ts';

const PIECES = 300;
const PAUSES_MS = [0, 1, 5, 20];

/** Allocates some strings and objects, as a request does. Each call does the same work. */
const work = (): object =>
  Object.fromEntries(
    Array.from({ length: 300 }, (_, index) => [
      `k${index % 50}`,
      JSON.stringify({ index, pad: 'x'.repeat(index % 20) }),
    ]),
  );

/**
 * Compares the CPU time of the same work in a loop and after pauses. The time after a pause includes the wake-up. On a
 * machine where the two times differ much, a turn costs the most CPU when the service has little load.
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
    const how = ms === 0 ? 'in a loop' : `after ${ms} ms of pause`;
    return figureOf(`pause.${ms}`, `the same work, ${how}`, 'µs', values);
  });
  return { figures, detail: {} };
};
