import { randomUUID } from 'node:crypto';
import { PACE_BOUNDS } from '../../src/alerts/worker-signs.ts';
import type { Service } from '../../src/service.ts';

const MINUTE_MS = 60_000;

/** As if a worker of turns and one of deliveries had ended more in each of the last minutes, and stopped. */
export const addPastMinutes = async ({ service: { mongo } }: { service: Pick<Service, 'mongo'> }): Promise<void> => {
  const now = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const minutes = Array.from({ length: 40 }, (_, nth) => {
    const counts = PACE_BOUNDS.map((bound) => (bound === 0.25 ? 9 + nth : 0));
    // Every fourth minute some took up to ten seconds.
    if (nth % 4 === 0) counts[PACE_BOUNDS.indexOf(10)] = 5 + nth;
    return { at: new Date(now - (nth + 1) * MINUTE_MS), counts: [...counts, 0] };
  });
  const at = new Date();
  const worker = randomUUID();
  const signs = ['turns', 'deliveries'].map((queue) => ({
    _id: `${worker}:${queue}` as never,
    worker,
    queue,
    host: 'past',
    pid: 7,
    startedAt: new Date(now - 40 * MINUTE_MS),
    at,
    stoppedAt: at,
    minutes,
  }));
  await mongo.collection('workers').insertMany(signs);
};
