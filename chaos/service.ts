import { requireNode } from '../src/platform/process/lifecycle.ts';
import { mastersOf } from '../src/platform/redis/redis.ts';
import type { CastOptions } from './service/cast.ts';
import { collect } from './service/evidence.ts';
import { injectFaults } from './service/faults.ts';
import { openField } from './service/field.ts';
import { finishErasures, operate, type OperatorsOptions } from './service/operators.ts';
import { report } from './service/report.ts';
import { readArguments } from './support/arguments.ts';
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
 *   npm run chaos -- --quick-messages          messages of a session that come quickly are answered together
 *   npm run chaos -- --plant 'claim off' --minutes 2      must fail
 */
requireNode();
const FAULT_EVERY_MS = 3_000;
const PROVIDER_MS = 1_200;
const QUICK_MESSAGE_SECONDS = 0.5;

const options = readArguments(
  { minutes: [12, 0.01, 60, 'fraction'], seed: [1, -1e9, 1e9], visitors: [30, 1, 1_000], answers: [0, 0, 1e9] },
  { flags: ['one-process', 'quick-messages'], texts: ['topology', 'plant'] },
);
const { minutes, seed, visitors, answers, plant = null } = options;
const each = options['one-process'] ? 'all' : 2;
const topology = TOPOLOGIES.find((one) => one === (options.topology ?? 'one'));
if (!topology) throw new Error(`--topology: there are ${TOPOLOGIES.join(', ')}`);

const run = async (): Promise<boolean> => {
  const quickMessageSeconds = options['quick-messages'] ? QUICK_MESSAGE_SECONDS : null;
  const cast: CastOptions = { providerMs: PROVIDER_MS, second: 'hostile', quickMessageSeconds };
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

process.exitCode = (await run()) ? 0 : 1;
