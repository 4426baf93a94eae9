import { setTimeout as sleep } from 'node:timers/promises';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { conversationModels, type StoredConversation } from '../../src/conversations/conversation.ts';
import { modelProcessesOf } from '../../test/kit/semantic.ts';
import { ascending, median, quantile } from '../../test/kit/quantiles.ts';
import { type Figure, figureOf, type Part } from '../support/figures.ts';
import {
  addAssistants,
  type Answered,
  drive,
  type Load,
  openCaller,
  untilVectorsAreMade,
} from '../support/mixed-load.ts';
import { createMixedTurns, type MixedTurn } from '../support/mixed-turns.ts';
import { type Child, openParley } from '../../test/kit/parley.ts';
import { cpuMsOf } from '../../test/kit/services.ts';
import { openSink } from '../../test/kit/sink.ts';

type Run = {
  perSecond: number;
  p50: number;
  p99: number;
  slowest: number;
  aboveASecond: number;
  /** The share of the turns whose reply says that the model gave no vector in time. */
  byWordsOnly: number;
  /** CPU of each process for a turn, in ms. */
  cpu: Record<string, number>;
  answered: Answered[];
};

const IN_FLIGHT = [1, 20, 100];
/** The number in flight at which the capacity is measured. */
const CARRIED = 20;
const WARM_UP_TURNS = 200;
const ROUNDS = 3;
const SECONDS = 5;
/** Load beyond the capacity, as a share of it. */
const BEYOND = 1.5;
/** How many turns of each load are asked again while nothing else runs. */
const COMPARED = 400;

const idOf = (load: Load): string => ('inFlight' in load ? `${load.inFlight}` : `open-${load.perSecond}`);

/**
 * The mix that a real service gets: distinct questions in several languages to seven assistants, of which half need the
 * model. Afterwards, a part of the turns is asked again while nothing else runs. A reply that differs was found by words
 * alone under the load, although the model would have found another one.
 */
export const mixed: Part = async ({ rounds, seconds: asked }, say) => {
  const seconds = asked === 1.3 ? SECONDS : asked;
  const nextTurns = createMixedTurns();
  const parley = await openParley('mixed');
  const { services } = parley;
  const sink = await openSink();
  const assistants = await addAssistants(parley, sink.url);
  const [api, deliveryWorker] = [await parley.start('API'), await parley.start('delivery worker')];
  const caller = openCaller(api.port, assistants);
  const conversations = collectionOf<StoredConversation>(conversationModels(parley.service.mongo).conversations);

  let worker: Child = await parley.start('reply worker');
  await untilVectorsAreMade(parley, assistants);

  const cpuNow = (): Record<string, number> => ({
    API: cpuMsOf(api.pid),
    'reply worker': cpuMsOf(worker.pid),
    model: modelProcessesOf(worker.pid).reduce((sum, pid) => sum + cpuMsOf(pid), 0),
    'delivery worker': cpuMsOf(deliveryWorker.pid),
    mongod: cpuMsOf(services.pids.mongod),
    redis: cpuMsOf(services.pids.redis),
  });

  const countByWordsOnly = async (since: Date): Promise<number> => {
    const replies = await conversations
      .aggregate<{ count: number }>([
        { $match: { createdAt: { $gte: since } } },
        { $project: { byNumber: { $objectToArray: '$texts' } } },
        { $unwind: '$byNumber' },
        { $unwind: '$byNumber.v' },
        { $match: { 'byNumber.v.why.by': 'words only' } },
        { $count: 'count' },
      ])
      .toArray();
    return replies[0]?.count ?? 0;
  };

  const untilDelivered = async (): Promise<void> => {
    while ((await conversations.countDocuments({ 'outbox.0': { $exists: true } })) > 0) await sleep(25);
  };

  const runOnce = async (load: Load, turns: MixedTurn[]): Promise<Run> => {
    const since = new Date();
    const before = cpuNow();
    const startedAt = performance.now();
    const answered = await drive(caller, turns, load, seconds);
    const after = cpuNow();
    const tookS = (performance.now() - startedAt) / 1000;
    const times = ascending(answered.map(({ ms }) => ms));
    const cpu = Object.fromEntries(
      Object.entries(after).map(([name, ms]) => [name, (ms - (before[name] ?? 0)) / answered.length]),
    );
    const byWordsOnly = (await countByWordsOnly(since)) / answered.length;
    await untilDelivered();
    await sink.take();
    return {
      perSecond: answered.length / tookS,
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
      slowest: times.at(-1) ?? Number.NaN,
      aboveASecond: times.filter((ms) => ms > 1000).length,
      byWordsOnly,
      cpu,
      answered,
    };
  };

  const runs = new Map<string, Run[]>();
  const measure = async (load: Load, name = idOf(load)): Promise<Run> => {
    const most =
      'inFlight' in load ? ([0, 120, 500, 800][Math.ceil(Math.log10(load.inFlight + 1))] ?? 800) : load.perSecond;
    const turns = nextTurns(Math.ceil(most * seconds * 1.1) + 100);
    const run = await runOnce(load, turns);
    runs.set(name, [...(runs.get(name) ?? []), run]);
    const { perSecond, p50, p99, byWordsOnly } = run;
    say(
      `mixed, ${name}: ${perSecond.toFixed(0)} turns/s, p50 ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms, by words for lack of the model ${(100 * byWordsOnly).toFixed(1)} %`,
    );
    return run;
  };

  for (const turn of nextTurns(WARM_UP_TURNS)) await caller.ask(turn, 'warm');
  for (let round = 0; round < Math.min(rounds, ROUNDS); round += 1) {
    for (const inFlight of IN_FLIGHT) await measure({ inFlight });
  }
  const rates = (name: string): number[] => (runs.get(name) ?? []).map(({ perSecond }) => perSecond);
  // With more in flight, words decide some turns alone. The rate is then higher, and the replies are worse.
  const capacity = median(rates(String(CARRIED)));
  for (let round = 0; round < Math.min(rounds, ROUNDS); round += 1) {
    await measure({ perSecond: Math.round(capacity / 2) }, 'half');
  }
  await measure({ perSecond: Math.round(capacity * BEYOND) }, 'beyond');

  // A new worker has no vector in its cache, so it makes each of them again.
  await worker.stop();
  worker = await parley.start('reply worker');
  for (let nth = 0; ; nth += 1) {
    // A turn that needs the model, until the model has opened.
    const [turn] = nextTurns(20).filter(({ kind }) => kind === 'meant');
    const since = new Date();
    if (turn) await caller.ask(turn, 'opening');
    if (turn && (await countByWordsOnly(since)) === 0) break;
    if (nth > 100) throw new Error('the model did not open again');
  }
  const differing = new Map<string, number>();
  for (const [name, all] of runs) {
    const answered = all.flatMap((run) => run.answered);
    const step = Math.max(1, Math.floor(answered.length / COMPARED));
    const sampled = answered.filter(({ turn }, at) => turn.kind !== 'followUp' && at % step === 0);
    let differ = 0;
    for (const { turn, reply } of sampled) {
      const again = await caller.ask(turn, `quiet-${name}`);
      if (again.reply !== reply) differ += 1;
    }
    differing.set(name, differ / sampled.length);
    say(`mixed, ${name}: ${((100 * differ) / sampled.length).toFixed(1)} % of ${sampled.length} replies differ`);
  }

  caller.close();

  const label = (name: string): string =>
    ({
      half: `mixed load at half of the capacity (${Math.round(capacity / 2)}/s)`,
      beyond: `mixed load at ${BEYOND} × the capacity`,
    })[name] ?? `mixed load, ${name} in flight`;
  const figures = [...runs].flatMap(([name, all]): Figure[] => {
    const one = (key: Exclude<keyof Run, 'cpu' | 'answered'>, what: string, unit: string, factor = 1): Figure =>
      figureOf(
        `mixed.${name}.${key}`,
        `${label(name)}${what}`,
        unit,
        all.map((run) => run[key] * factor),
      );
    return [
      one('perSecond', '', 'turns/s'),
      one('p50', ': p50', 'ms'),
      one('p99', ': p99', 'ms'),
      one('aboveASecond', ': turns above 1 s', ''),
      one('byWordsOnly', ': by words, because the model had no time', '%', 100),
      {
        id: `mixed.${name}.differ`,
        what: `${label(name)}: other replies than in a quiet run`,
        unit: '%',
        value: 100 * (differing.get(name) ?? Number.NaN),
      },
    ];
  });
  const costs = Object.fromEntries(
    [...runs].map(([name, all]) => [
      name,
      Object.fromEntries(
        Object.keys(all[0]?.cpu ?? {}).map((key) => [key, median(all.map(({ cpu }) => cpu[key] ?? 0))]),
      ),
    ]),
  );
  return { figures, detail: { costs } };
};
