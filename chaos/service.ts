import { parseArgs } from 'node:util';
import { readConfig } from '../src/platform/config.ts';
import { createLifecycle, requireNode } from '../src/platform/lifecycle.ts';
import { createLogger } from '../src/platform/logger.ts';
import { openService } from '../src/service.ts';
import { FAULTS } from '../test/support/planted.ts';
import { type Cast, openCast } from './service/cast.ts';
import { openCrew } from './service/crew.ts';
import { collect } from './service/evidence.ts';
import { injectFaults } from './service/faults.ts';
import { type Histories, newHistories, type Violation } from './service/history.ts';
import { finishErasures, operate, type OperatorsOptions } from './service/operators.ts';
import { OTHER_RULES, report } from './service/report.ts';
import { judgeRefusals } from './service/rule-of-refusals.ts';
import { judgeEvents } from './service/rules-of-events.ts';
import { judgeTurns } from './service/rules-of-turns.ts';
import { openStores, TOPOLOGIES } from './service/stores.ts';
import { visit, visitTogether, wayOf } from './service/visitors.ts';
import { killAll } from './support/process.ts';
import { createRandom, type Random } from './support/random.ts';

/**
 * Runs the whole service under random faults and checks that nothing is lost, doubled or reordered.
 *
 *   npm run chaos                              12 minutes
 *   npm run chaos -- --minutes 30 --seed 7
 *   npm run chaos -- --topology replica-set    three members of MongoDB, the primary is killed
 *   npm run chaos -- --topology sentinel       a Redis with a replica and sentinels, the master is killed
 *   npm run chaos -- --plant 'claim off' --minutes 2      must fail
 */
requireNode();
const FAULT_EVERY_MS = 3_000;

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '12' },
      seed: { type: 'string', default: '1' },
      topology: { type: 'string', default: 'one' },
      plant: { type: 'string' },
      visitors: { type: 'string', default: '30' },
    },
  });
  const minutes = Number(values.minutes);
  const seed = Number(values.seed);
  const visitors = Number(values.visitors);
  if (!(minutes > 0 && minutes <= 60)) throw new Error('--minutes must be a number up to 60');
  if (!Number.isInteger(seed)) throw new Error('--seed must be a whole number');
  if (!(visitors >= 1 && visitors <= 1000)) throw new Error('--visitors must be a number from 1 to 1000');
  const { plant = null } = values;
  const topology = TOPOLOGIES.find((one) => one === values.topology);
  if (!topology) throw new Error(`--topology: there are ${TOPOLOGIES.join(', ')}`);
  if (plant !== null && !FAULTS[plant]) throw new Error(`--plant: there are ${Object.keys(FAULTS).join(', ')}`);
  return { minutes, seed, plant, topology, visitors };
};

type Load = { visitors: number; cast: Cast; histories: Histories; random: Random; isOver: () => boolean };

/** Visitors on all ways in, one session after the other, two thirds of them with the assistant that answers at once. */
const runVisitors = ({ visitors, cast, histories, random, isOver }: Load, api: () => string): Promise<void>[] =>
  Array.from({ length: visitors }, async (_, number) => {
    const way = wayOf(number);
    const assistant = number % 3 === 2 ? cast.slow : cast.quick;
    for (let nth = 0; !isOver(); nth += 1) {
      const name = `s${number}-${nth}`;
      const hurry = way === 'key' ? 3 : 1;
      await visit({ name, way, assistant, hurry, api, random, histories, isOver });
    }
  });

const run = async ({
  minutes,
  seed,
  plant,
  topology,
  visitors,
}: ReturnType<typeof readArguments>): Promise<boolean> => {
  const stores = await openStores(topology);
  const base = { NODE_ENV: 'test', WEBHOOK_ALLOW_PRIVATE: 'true', SEMANTIC: 'off' };
  const env = { ...base, REDIS_URL: stores.redis.url, MONGODB_URL: stores.mongodb.url };
  const direct = { ...base, REDIS_URL: stores.redis.directUrl, MONGODB_URL: stores.mongodb.directUrl };
  const logger = createLogger({ name: 'chaos', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  const service = await openService({ config: readConfig(direct), logger, lifecycle, redisRole: 'worker' });
  const random = createRandom(seed);
  const cast = await openCast(service, createRandom(seed + 1));
  const crew = await openCrew(env, plant);
  const histories = newHistories();
  const until = performance.now() + minutes * 60_000;
  const isOver = (): boolean => performance.now() > until;
  const api = (): string => crew.apis()[random.below(2)] as string;
  const wrong: Violation[] = [];
  const blame = (rule: (typeof OTHER_RULES)[number], what: string, session = ''): void =>
    void wrong.push({ rule, session, what });
  try {
    const operators: OperatorsOptions = { api, token: cast.token, keyOf: cast.keyOf, random, histories, isOver };
    const load = [...runVisitors({ visitors, cast, histories, random, isOver }, api), operate(operators)];
    const faults = await injectFaults(
      {
        crew,
        ...stores,
        random,
        refused: (at) => {
          const name = `crowd-${histories.refusedAt.push(at)}`;
          load.push(visitTogether({ name, assistant: cast.quick, api, random, histories }));
        },
        flushRedis: async () => void (await service.redis.flushall()),
        report: (what) => blame('processes end only when they are told to', what),
      },
      { everyMs: FAULT_EVERY_MS, isOver, say: (line) => console.log(line) },
    );
    await Promise.all([...load, cast.removeHostile()]);
    await crew.untilReady();
    await finishErasures(operators);
    const evidence = await collect(service, { api: api(), keyOf: cast.keyOf, histories });
    for (const what of evidence.unfinished) blame('everything converges within a minute', what);
    for (const { session, where } of evidence.leftOfErased)
      blame('nothing of an erased conversation is left', `in ${where}`, session);
    for (const what of crew.crashes) blame('processes end only when they are told to', what);
    if (cast.forged() > 0) blame('signatures are valid', `${cast.forged()} requests had a wrong signature`);
    const { endpoints } = cast;
    const violations = [
      ...judgeTurns(histories, evidence.stored),
      ...judgeEvents({ ...evidence, endpoints, histories }),
      ...judgeRefusals(histories),
      ...wrong,
    ];
    return report({ seed, minutes, faults, histories, evidence, violations });
  } finally {
    await crew.close();
    killAll();
    await cast.close();
    await lifecycle.close();
    await Promise.all([stores.redis.dispose(), stores.mongodb.dispose()]);
  }
};

process.exitCode = (await run(readArguments())) ? 0 : 1;
