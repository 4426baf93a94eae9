import { requireNode } from '../src/platform/process/lifecycle.ts';
import type { CastOptions } from './service/cast.ts';
import { collect } from './service/evidence.ts';
import { openField } from './service/field.ts';
import { finishErasures, operate, type OperatorsOptions } from './service/operators.ts';
import { runVisitors } from './service/visitors.ts';
import { readArguments } from './support/arguments.ts';
import { openBalancer } from './stop/balancer.ts';
import { follow } from './stop/followers.ts';
import { judgeStops, reportStops } from './stop/report.ts';
import { countRequests } from './stop/requests.ts';
import { restartAll } from './stop/stops.ts';

/**
 * Restarts all processes one after the other under load, with SIGTERM, and checks that each ends with 0 in time, that no
 * request fails with anything but 503, and that nothing is lost, doubled or reordered.
 *
 *   npm run chaos -- stop                          two processes of each kind, each is stopped 10 times
 *   npm run chaos -- stop --rounds 20 --seed 7
 *   npm run chaos -- stop --each 1                 with one process of each kind instead of two
 */
requireNode();
const FOLLOWERS = 10;
const PROVIDER_MS = 2_000;
/** The events of a conversation are sent one after the other, some for seconds. Faster visitors would outpace them. */
const THINKS_MS = 4_000;

const options = readArguments({
  rounds: [10, 1, 100],
  seed: [1, -1e9, 1e9],
  visitors: [30, 1, 1_000],
  each: [2, 1, 4],
});

const run = async ({ rounds, seed, visitors, each }: typeof options): Promise<boolean> => {
  const cast: CastOptions = { providerMs: PROVIDER_MS, second: 'slow' };
  const field = await openField({ topology: 'one', plant: null, seed, cast, each });
  const { service, crew, random, histories } = field;
  const { token, keyOf } = field.cast;
  let over = false;
  const isOver = (): boolean => over;
  const api = openBalancer({ crew, random, isOver });
  try {
    const operators: OperatorsOptions = { api, token, keyOf, random, histories, isOver };
    const load = Promise.all([
      ...runVisitors({ visitors, thinksMs: THINKS_MS, cast: field.cast, histories, random, isOver }, api),
      operate(operators),
    ]);
    const following = follow({ count: FOLLOWERS, api, keyOf, random, histories, isOver });
    const stops = await restartAll({ crew, rounds, say: (line) => console.log(line) });
    const calmSince = performance.now();
    over = true;
    await load;
    const requests = countRequests(histories, await following);
    await finishErasures(operators);
    const evidence = await collect(service, { api: api(), keyOf, histories, calmSince });
    const seen = { seed, rounds, each, stops, requests, histories, evidence };
    return reportStops({ ...seen, violations: [...judgeStops(seen), ...field.judge(evidence)] });
  } finally {
    await field.close();
  }
};

process.exitCode = (await run(options)) ? 0 : 1;
