import { figureOf, type Part } from '../support/figures.ts';
import { openParley } from '../../test/kit/parley.ts';
import { openServices } from '../../test/kit/services.ts';

/** Measures the time from the start of a process to its first "ready", while MongoDB and Redis are running. */
export const start: Part = async ({ rounds }, say) => {
  say('start: the API');
  const services = await openServices('start');
  const parley = await openParley(services);
  const times: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const startedAt = performance.now();
    const api = await parley.start('API');
    times.push(performance.now() - startedAt);
    await api.stop();
  }
  await parley.close();
  await services.close();
  return { figures: [figureOf('start.api', 'API ready after its services', 'ms', times)], detail: {} };
};
