import { requireNode } from '../src/platform/process/lifecycle.ts';
import type { Service } from '../src/service.ts';
import { judge, print, readEnds } from './delivery/judge.ts';
import { killWorkers, wipeRedis } from './delivery/faults.ts';
import { startLoad } from './delivery/load.ts';
import { createRandom } from '../test/kit/random.ts';
import { openCountingReceiver } from '../test/kit/counting-receiver.ts';
import { readArguments } from './support/arguments.ts';
import { withOwnService } from '../test/kit/own-service.ts';
import { killAll, startRealProcess } from '../test/kit/processes.ts';

/**
 * Shows that no event is sent twice and none is lost, whatever happens to the delivery workers and to Redis.
 *
 *   npm run chaos:delivery                       200 SIGKILLs of a delivery worker under load
 *   npm run chaos:delivery -- --wipes 20         20 wipes of Redis under load
 *   npm run chaos:delivery -- --plant 'claim off' --kills 20     must fail: the workers do not claim
 *
 * `--seed` repeats the moments, latencies and load of a run. The timing on the machine still differs.
 */
requireNode();
const LATENCY_MS = 40;
/** A worker sends at most 20 requests at once to an endpoint, so several endpoints are needed to load it fully. */
const ENDPOINTS = 3;

const options = readArguments(
  { kills: [-1, -1, 999_999], wipes: [0, 0, 999_999], seed: [1, 0, 999_999], workers: [4, 1, 999_999] },
  { texts: ['plant'] },
);
const { wipes, seed, workers, plant = null } = options;
/** Without a number, workers are killed unless Redis is wiped. */
const kills = options.kills >= 0 ? options.kills : wipes > 0 ? 0 : 200;

const run = async (service: Service, env: Record<string, string>) => {
  const random = createRandom(seed);
  const receiver = await openCountingReceiver(createRandom(seed + 1), LATENCY_MS);
  const assistants: string[] = [];
  for (let count = 0; count < ENDPOINTS; count += 1) {
    const { assistantId } = await service.assistants.createAssistant({ name: `Chaos ${count}` });
    await service.endpoints.addEndpoint(assistantId, { url: receiver.url });
    assistants.push(assistantId);
  }
  const start = () => startRealProcess('delivery', env, { plant });
  // This reply worker is never killed, because its sweeps must run. Killed workers rarely run long enough to sweep.
  await startRealProcess('reply', env);
  const tell = (done: number, seconds: number): void =>
    console.log(`  ${done} kills after ${seconds} s, ${receiver.received} requests received`);
  const load = await startLoad(service, { assistants, random: createRandom(seed + 2) });
  try {
    const harmed = await (wipes > 0
      ? wipeRedis({ wipes, random, start, workers: 2, redis: service.redis })
      : killWorkers({ kills, random, start, workers, onKills: tell }));
    await load.stop();
    const ends = await readEnds(service, load.events);
    await harmed.stop();
    return print(judge({ ends, events: load.events, receiver, ...harmed }));
  } finally {
    await load.stop().catch(() => undefined);
    await killAll();
    await receiver.close();
  }
};

const main = async (): Promise<boolean> => {
  const what = wipes > 0 ? `${wipes} wipes of Redis, 2 workers` : `${kills} kills, ${workers} workers`;
  console.log(`${what}, seed ${seed}${plant === null ? '' : `, planted: ${plant}`}`);
  return withOwnService((service, env) => run(service, env));
};

process.exitCode = (await main()) ? 0 : 1;
