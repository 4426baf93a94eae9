import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisClient } from '../../src/platform/redis/redis.ts';
import type { Random } from '../../test/kit/random.ts';
import type { RealProcess } from '../../test/kit/processes.ts';

/** A worker is killed at a random moment within this time after it is ready. */
const LIFE_MS = 2_000;
const BETWEEN_WIPES_MS = 1_500;
const TOLD_EVERY = 25;

type Field = { random: Random; start: () => Promise<RealProcess>; workers: number };

export type FaultReport = {
  kills: number;
  wipes: number;
  seconds: number;
  stop: () => Promise<void>;
};

const startAll = (start: () => Promise<RealProcess>, count: number): Promise<RealProcess[]> =>
  Promise.all(Array.from({ length: count }, start));

/**
 * Keeps a fixed number of workers running. Each worker is killed at a random moment and replaced, until the planned
 * number of kills is reached.
 */
export const killWorkers = async ({
  kills,
  random,
  start,
  workers,
  onKills,
}: Field & { kills: number; onKills?: (done: number, seconds: number) => void }): Promise<FaultReport> => {
  const startedAt = performance.now();
  let done = 0;
  let begun = 0;
  const replaceUntilDone = async (first: RealProcess): Promise<RealProcess> => {
    let victim = first;
    while (begun < kills) {
      begun += 1;
      await sleep(random.next() * LIFE_MS);
      await victim.kill();
      done += 1;
      if (done % TOLD_EVERY === 0) onKills?.(done, Math.round((performance.now() - startedAt) / 1000));
      victim = await start();
    }
    return victim;
  };
  const last = await Promise.all((await startAll(start, workers)).map(replaceUntilDone));
  return {
    kills: done,
    wipes: 0,
    seconds: (performance.now() - startedAt) / 1000,
    stop: async () => void (await Promise.all(last.map((victim) => victim.kill()))),
  };
};

/** Wipes Redis at random moments: jobs, locks and BullMQ's own keys. */
export const wipeRedis = async (field: Field & { wipes: number; redis: RedisClient }): Promise<FaultReport> => {
  const { wipes, redis, random, start, workers } = field;
  const startedAt = performance.now();
  const victims = await startAll(start, workers);
  for (let wipe = 0; wipe < wipes; wipe += 1) {
    await sleep(BETWEEN_WIPES_MS * (0.2 + random.next()));
    await redis.flushall();
  }
  return {
    kills: 0,
    wipes,
    seconds: (performance.now() - startedAt) / 1000,
    stop: async () => void (await Promise.all(victims.map((victim) => victim.kill()))),
  };
};
