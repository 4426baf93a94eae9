import { figureOf, type Part } from '../support/figures.ts';
import { openParley } from '../../test/kit/parley.ts';

/** Measures the time from the start of a process to its first "ready", while MongoDB and Redis are running. */
export const start: Part = async ({ rounds }, say) => {
  say('start: the API');
  const parley = await openParley('start');
  const times: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const startedAt = performance.now();
    const api = await parley.start('API');
    times.push(performance.now() - startedAt);
    await api.stop();
  }
  return { figures: [figureOf('start.api', 'API ready after its services', 'ms', times)], detail: {} };
};
