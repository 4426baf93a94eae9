import { parseArgs } from 'node:util';
import { requireNode } from '../src/process/lifecycle.ts';
import { mastersOf } from '../src/redis/redis.ts';
import { FAULTS } from '../test/kit/planted.ts';
import type { CastOptions } from './service/cast.ts';
import { collect } from './service/evidence.ts';
import { injectFaults } from './service/faults.ts';
import { openField } from './service/field.ts';
import { finishErasures, operate, type OperatorsOptions } from './service/operators.ts';
import { report } from './service/report.ts';
import { TOPOLOGIES } from './service/stores.ts';
import { refreshSources, SOURCE_RULE } from './service/sources.ts';
import { runVisitors, visitTogether } from './service/visitors.ts';

/**
 * Runs the whole service under random faults and checks that nothing is lost, doubled or reordered.
 *
 *   npm run chaos                              12 minutes
 *   npm run chaos -- --minutes 30 --seed 7
 *   npm run chaos -- --minutes 1 --answers 100   goes on until so many messages are answered, on a slow machine too
 *   npm run chaos -- --topology replica-set    three members of MongoDB, the primary is killed or cut off from its peers
 *   npm run chaos -- --topology sentinel       a Redis with a replica and sentinels, the master is killed or cut off from them
 *   npm run chaos -- --topology cluster        a Redis Cluster, a master is killed or cut off from its peers
 *   npm run chaos -- --one-process             one process that does everything, which is killed again and again
 *   npm run chaos -- --plant 'claim off' --minutes 2      must fail
 */
requireNode();
const FAULT_EVERY_MS = 3_000;
const PROVIDER_MS = 1_200;

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '12' },
      seed: { type: 'string', default: '1' },
      topology: { type: 'string', default: 'one' },
      plant: { type: 'string' },
      visitors: { type: 'string', default: '30' },
      answers: { type: 'string', default: '0' },
      'one-process': { type: 'boolean', default: false },
    },
  });
  const minutes = Number(values.minutes);
  const seed = Number(values.seed);
  const visitors = Number(values.visitors);
  const answers = Number(values.answers);
  if (!(minutes > 0 && minutes <= 60)) throw new Error('--minutes must be a number up to 60');
  if (!Number.isInteger(seed)) throw new Error('--seed must be a whole number');
  if (!(visitors >= 1 && visitors <= 1000)) throw new Error('--visitors must be a number from 1 to 1000');
  if (!(answers >= 0)) throw new Error('--answers must be a number');
  const { plant = null } = values;
  const topology = TOPOLOGIES.find((one) => one === values.topology);
  if (!topology) throw new Error(`--topology: there are ${TOPOLOGIES.join(', ')}`);
  if (plant !== null && !FAULTS[plant]) throw new Error(`--plant: there are ${Object.keys(FAULTS).join(', ')}`);
  return { minutes, seed, plant, topology, visitors, answers, each: values['one-process'] ? ('all' as const) : 2 };
};

const run = async ({
  minutes,
  seed,
  plant,
  topology,
  visitors,
  answers,
  each,
}: ReturnType<typeof readArguments>): Promise<boolean> => {
  const cast: CastOptions = { providerMs: PROVIDER_MS, second: 'hostile' };
  const field = await openField({ topology, plant, seed, cast, each });
  const { service, crew, random, histories, api } = field;
  const { token, keyOf, removeHostile } = field.cast;
  const until = performance.now() + minutes * 60_000;
  const isOver = (): boolean =>
    performance.now() > until && histories.sent.filter(({ told }) => told).length >= answers;
  try {
    const operators: OperatorsOptions = { api, token, keyOf, random, histories, isOver };
    const reading = refreshSources(service, { assistantId: field.cast.quick.assistantId, isOver });
    const load = [...runVisitors({ visitors, cast: field.cast, histories, random, isOver }, api), operate(operators)];
    const faults = await injectFaults(
      {
        ...field,
        refused: (at) => {
          const name = `crowd-${histories.refusedAt.push(at)}`;
          load.push(visitTogether({ name, assistant: field.cast.quick, api, random, histories }));
        },
        // A master of a cluster that has just become a replica refuses.
        flushRedis: async () => {
          await Promise.allSettled(mastersOf(service.redis).map((master) => master.flushall()));
        },
        report: (what) => field.blame('processes end only when they are told to', what),
      },
      { everyMs: FAULT_EVERY_MS, isOver, say: (line) => console.log(line) },
    );
    const calmSince = performance.now();
    await Promise.all([...load, removeHostile()]);
    const { wrong, runs } = await reading;
    for (const what of wrong) field.blame(SOURCE_RULE, what);
    console.log(`\nruns of a source: ${runs}`);
    await crew.untilReady();
    await finishErasures(operators);
    const evidence = await collect(service, { api: api(), keyOf, histories, calmSince });
    return report({ seed, minutes, faults, histories, evidence, violations: field.judge(evidence) });
  } finally {
    await field.close();
  }
};

process.exitCode = (await run(readArguments())) ? 0 : 1;
