import { setTimeout as sleep } from 'node:timers/promises';
import { conversationModels, type StoredConversation } from '../../src/conversations/conversation.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { modelProcessesOf } from '../../test/kit/semantic.ts';
import { medians } from '../support/contender.ts';
import { type Counters, openCounters, perItem, type Reading } from '../support/counters.ts';
import { ascending, median, quantile } from '../../test/kit/quantiles.ts';
import { type Figure, figureOf, type Part, ratioOf } from '../support/figures.ts';
import { runLoad } from '../support/load-settings.ts';
import { addAssistants, type Assistants, drive, openCaller, untilVectorsAreMade } from '../support/mixed-load.ts';
import { createMixedTurns } from '../support/mixed-turns.ts';
import { type Child, openParley, type Parley, QUESTIONS } from '../../test/kit/parley.ts';
import { memoryMbOf, openServices, type Services } from '../../test/kit/services.ts';
import { openSink, type Sink } from '../../test/kit/sink.ts';

const SHAPES = {
  four: ['API', 'reply worker', 'delivery worker', 'sources worker'],
  one: ['everything'],
} as const;
type Shape = keyof typeof SHAPES;

/** Turns a second. */
const RATES = { sure: [5, 20, 50, 100, 200], mixed: [5, 20] } as const;
type Load = { kind: keyof typeof RATES; rate: number };
const LOADS = Object.entries(RATES).flatMap(([kind, rates]) =>
  rates.map((rate): Load => ({ kind: kind as Load['kind'], rate })),
);
const ROUNDS = 3;
const SECONDS = 6;
const WARM_UP = { rate: 50, seconds: 4 };
/** The processes are left alone for so long after a load, so that what it left is done. */
const REST_MS = 1_000;
const REST_AFTER_START_MS = 5_000;

/** What a turn costs, or at rest a second. CPU in ms. */
type Cost = { ours: Record<string, number>; stores: Record<string, number>; mongodb: number; redis: number };
type Run = Cost & { p50: number; p99: number };

const nameOf = ({ kind, rate }: Load): string => `${kind} ${rate}`;
const sumOf = (parts: Record<string, number>): number => Object.values(parts).reduce((sum, one) => sum + one, 0);

const toCost = ({ cpu, counts }: Reading): Cost => {
  const {
    mongod = 0,
    redis = 0,
    ...ours
  } = Object.fromEntries(Object.entries(cpu).map(([name, us]) => [name, us / 1000]));
  return {
    ours,
    stores: { mongod, redis },
    mongodb: counts['MongoDB commands'] ?? Number.NaN,
    redis: counts['Redis commands'] ?? Number.NaN,
  };
};

type Bench = { services: Services; counters: Counters; sink: Sink; say: (line: string) => void };

/** One shape on its own database, with everything that its load needs. Its processes run only while it is measured. */
const openShape = async (shape: Shape, { services, counters, sink, say }: Bench) => {
  const parley: Parley = await openParley(`ordinary-${shape}`, services);
  const assistants: Assistants = await addAssistants(parley, sink.url);
  const sure = await parley.addAssistant([sink.url]);
  const conversations = collectionOf<StoredConversation>(conversationModels(parley.service.mongo).conversations);
  const nextTurns = createMixedTurns();

  const untilDelivered = async (): Promise<void> => {
    while ((await conversations.countDocuments({ 'outbox.0': { $exists: true } })) > 0) await sleep(25);
    await sink.take();
  };

  const pidsOf = (children: Child[]): Record<string, number> =>
    Object.fromEntries(
      children.flatMap(({ name, pid }) => [
        [name, pid],
        ...modelProcessesOf(pid).map((model, nth) => [`model of ${name}${nth > 0 ? ` ${nth + 1}` : ''}`, model]),
      ]),
    ) as Record<string, number>;

  const drivers = {
    sure: async (port: number, rate: number, seconds: number) => {
      const load = { inFlight: 0, rate, seconds, warmUpSeconds: 0, sessions: 2_000, messages: QUESTIONS };
      // A machine that does other work too may carry less than the highest rate.
      const { total, failed, p50, p99 } = await runLoad({ ...load, ...sure, kind: 'chat', port, mayFail: true });
      if (failed > 0) say(`ordinary, ${shape}, ${rate}/s: ${failed} of ${total} turns were refused`);
      return { total, p50, p99 };
    },
    mixed: async (port: number, rate: number, seconds: number) => {
      const caller = openCaller(port, assistants);
      const turns = nextTurns(Math.ceil(rate * seconds) + 10);
      const answered = await drive(caller, turns, { perSecond: rate }, seconds).finally(caller.close);
      const times = ascending(answered.map(({ ms }) => ms));
      return { total: answered.length, p50: quantile(times, 0.5), p99: quantile(times, 0.99) };
    },
  };

  return {
    /** Starts the processes, and gives their cost at rest, for each load, and their memory after all of it. */
    measure: async (seconds: number) => {
      const children: Child[] = [];
      for (const name of SHAPES[shape]) children.push(await parley.start(name));
      const port = children[0]?.port ?? 0;
      await untilVectorsAreMade(parley, new Map([...assistants, ['sure', sure]]));
      const pids = pidsOf(children);
      const all = { ...pids, ...services.pids };
      const costOf = async (work: () => Promise<number>): Promise<Cost> => {
        const before = await counters.read(all);
        const items = await work();
        return toCost(perItem(before, await counters.read(all), items));
      };
      for (const kind of ['sure', 'mixed'] as const) await drivers[kind](port, WARM_UP.rate, WARM_UP.seconds);
      await untilDelivered();
      await sleep(REST_AFTER_START_MS);
      const rest = await costOf(async () => {
        await sleep(seconds * 1000);
        return seconds;
      });
      const runs: Record<string, Run> = {};
      for (const load of LOADS) {
        let times = { p50: Number.NaN, p99: Number.NaN };
        const cost = await costOf(async () => {
          const { total, ...took } = await drivers[load.kind](port, load.rate, seconds);
          times = took;
          await untilDelivered();
          return total;
        });
        runs[nameOf(load)] = { ...cost, ...times };
        say(
          `ordinary, ${shape}, ${nameOf(load)}/s: ${sumOf(cost.ours).toFixed(2)} ms of CPU a turn, p99 ${times.p99.toFixed(0)} ms`,
        );
        await sleep(REST_MS);
      }
      const memory = Object.fromEntries(Object.entries(pids).map(([name, pid]) => [name, memoryMbOf(pid)]));
      for (const child of children) await child.stop();
      return { rest, runs, memory };
    },
  };
};

type Measured = Awaited<ReturnType<Awaited<ReturnType<typeof openShape>>['measure']>>;

const medianCost = (all: Cost[]): Cost => ({
  ours: medians(all.map(({ ours }) => ours)),
  stores: medians(all.map(({ stores }) => stores)),
  mongodb: median(all.map(({ mongodb }) => mongodb)),
  redis: median(all.map(({ redis }) => redis)),
});

/**
 * Compares four processes with the one that does everything, at the rates of an ordinary service: what a turn with its
 * event costs, and how much memory they take. The shapes alternate, and only one of them runs at a time.
 */
export const ordinary: Part = async ({ rounds, seconds: asked }, say) => {
  const seconds = asked === 1.3 ? SECONDS : asked;
  const services = await openServices('ordinary');
  const sink = await openSink();
  const counters = await openCounters(services);
  const bench = { services, counters, sink, say };
  const measured: Record<Shape, Measured[]> = { four: [], one: [] };
  const shapes = {
    four: await openShape('four', bench),
    one: await openShape('one', bench),
  };
  for (let round = 0; round < Math.min(rounds, ROUNDS); round += 1) {
    for (const shape of ['four', 'one'] as const) measured[shape].push(await shapes[shape].measure(seconds));
  }

  const of = (shape: Shape, read: (one: Measured) => number): number[] => measured[shape].map(read);
  const pair = (id: string, what: string, unit: string, read: (one: Measured) => number): Figure[] => [
    figureOf(`ordinary.${id}.four`, `${what}: four processes`, unit, of('four', read)),
    figureOf(`ordinary.${id}.one`, `${what}: one process`, unit, of('one', read)),
    ratioOf(`ordinary.${id}.ratio`, `${what}: one ÷ four`, of('one', read), of('four', read)),
  ];
  const figures = [
    ...LOADS.flatMap((load): Figure[] => {
      const runOf = (one: Measured): Run | undefined => one.runs[nameOf(load)];
      const id = nameOf(load).replace(' ', '.');
      return [
        ...pair(id, `${load.rate} ${load.kind} turns/s, CPU of a turn`, 'ms', (one) => sumOf(runOf(one)?.ours ?? {})),
        ...pair(`${id}.p99`, `${load.rate} ${load.kind} turns/s, p99`, 'ms', (one) => runOf(one)?.p99 ?? Number.NaN),
      ];
    }),
    ...pair('rest', 'at rest, CPU of a second', 'ms', ({ rest }) => sumOf(rest.ours)),
    ...pair('memory', 'memory', 'MB', ({ memory }) => sumOf(memory)),
  ];
  const detailOf = (all: Measured[]) => ({
    rest: medianCost(all.map(({ rest }) => rest)),
    memory: medians(all.map(({ memory }) => memory)),
    runs: Object.fromEntries(
      LOADS.map((load) => [nameOf(load), medianCost(all.flatMap(({ runs }) => runs[nameOf(load)] ?? []))]),
    ),
  });
  return { figures, detail: { four: detailOf(measured.four), one: detailOf(measured.one) } };
};
