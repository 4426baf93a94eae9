import { median } from '../../test/kit/quantiles.ts';
import { openCounters, perItem } from '../support/counters.ts';
import { figureOf, type Part } from '../support/figures.ts';
import { type LoadResult, type LoadSettings, runLoad } from '../support/load-settings.ts';
import { type BenchAssistant, openParley, QUESTIONS } from '../../test/kit/parley.ts';

const NEIGHBOURS = 9;
/**
 * Each neighbour sends this share of what the greedy assistant is carried when it attacks alone. The generator of the
 * attack and the refusals take their part of the same processors, so less is carried then, and a tenth of it is each one's.
 */
const SHARE = 0.05;
/** The greedy assistant has this many times what it is carried alone due, on so many connections. */
const GREEDY = { factor: 10, connections: 2_000 };
const IN_FLIGHT = 200;
const ROUNDS_MAX = 3;
const TIMED = { seconds: 5, warmUpSeconds: 2 };

type Phase = 'one' | 'alone' | 'beside' | 'fair';
type Round = { one: LoadResult; alone: LoadResult; beside: LoadResult; greedy: LoadResult; fair: LoadResult } & {
  /** By process, µs of CPU for each answered turn. The load generators are one of them. */
  cpu: Record<Phase, Record<string, number>>;
};

const turnIn =
  (phase: Phase) =>
  ({ cpu }: Round): number =>
    Object.values(cpu[phase]).reduce((sum, us) => sum + us, 0);

const FIGURES: [id: string, what: string, unit: string, value: (round: Round) => number][] = [
  ['turn-one', 'CPU of a turn of one assistant alone, with its load generator', 'µs', turnIn('one')],
  ['turn-fair', '… of twenty assistants, as many as beside the greedy one', 'µs', turnIn('fair')],
  ['turn-beside', '… beside the greedy one, with its refusals', 'µs', turnIn('beside')],
  ['alone', 'p99 of nine assistants, alone', 'ms', ({ alone }) => alone.p99],
  ['fair', '… beside as many turns of others like them', 'ms', (round) => round.fair.p99],
  ['beside', '… beside one that sends ten times what is carried', 'ms', ({ beside }) => beside.p99],
  ['ratio', 'beside it, beside fair ones', '×', (round) => round.beside.p99 / round.fair.p99],
  ['above-alone', 'beside it, above alone', 'ms', ({ beside, alone }) => beside.p99 - alone.p99],
  ['refused', 'turns of the nine refused or lost', '', ({ beside }) => beside.failed],
  ['greedy', 'the greedy one gets', 'turns/s', (round) => round.greedy.perSecond],
  [
    'total',
    'all together, beside one assistant alone',
    '×',
    ({ one, beside, greedy }) => (beside.perSecond + greedy.perSecond) / one.perSecond,
  ],
];

/**
 * Measures what nine assistants with little to say notice of one that sends ten times what the service carries: their
 * p99 alone, beside it, and beside as many turns of assistants like themselves. One process of each kind.
 */
export const fair: Part = async ({ rounds }, say) => {
  const parley = await openParley('fair');
  const { services } = parley;
  const api = await parley.start('API');
  const children = [api, await parley.start('reply worker'), await parley.start('delivery worker')];
  const add = (count: number): Promise<BenchAssistant[]> =>
    Promise.all(Array.from({ length: count }, () => parley.addAssistant()));
  const [greedy] = (await add(1)) as [BenchAssistant];
  const neighbours = await add(NEIGHBOURS);
  const others = await add(Math.ceil(1 / SHARE) - NEIGHBOURS);

  const load = (assistants: BenchAssistant[], more: Partial<LoadSettings>): Promise<LoadResult> => {
    const [first, ...rest] = assistants as [BenchAssistant, ...BenchAssistant[]];
    return runLoad({
      kind: 'chat',
      port: api.port,
      apiKey: first.apiKey,
      moreKeys: rest.map(({ apiKey }) => apiKey),
      sessionPrefix: first.sessionPrefix,
      sessions: 2_000,
      messages: QUESTIONS,
      inFlight: IN_FLIGHT,
      mayFail: true,
      ...TIMED,
      ...more,
    });
  };

  const counters = await openCounters(services);
  const pids = { ...services.pids, ...Object.fromEntries(children.map(({ name, pid }) => [name, pid])) };
  /** Runs loads beside each other, and measures what their answered turns cost. */
  const measure = async (loads: () => Promise<LoadResult>[]) => {
    const before = await counters.read(pids);
    const all = await Promise.all(loads());
    const turns = all.reduce((sum, { total, failed }) => sum + total - failed, 0);
    const { cpu } = perItem(before, await counters.read(pids), turns);
    cpu['load generators'] = all.reduce((sum, { cpuMs }) => sum + (cpuMs * 1000) / turns, 0);
    return { all, cpu };
  };

  await load([greedy], { inFlight: 20 });
  say('fair: warm');
  const results: Round[] = [];
  for (let round = 0; round < Math.min(ROUNDS_MAX, rounds); round += 1) {
    const lone = await measure(() => [load([greedy], {})]);
    const [one] = lone.all as [LoadResult];
    const attack = { rate: GREEDY.factor * one.perSecond, connections: GREEDY.connections };
    const { perSecond: carried } = await load([greedy], attack);
    const rate = Math.round(NEIGHBOURS * SHARE * carried);
    say(`fair: alone ${one.perSecond.toFixed(0)} turns/s, attacking ${carried.toFixed(0)}; nine send ${rate}`);
    const few = await measure(() => [load(neighbours, { rate })]);
    const [alone] = few.all as [LoadResult];
    const attacked = await measure(() => [load(neighbours, { rate }), load([greedy], attack)]);
    const [beside, got] = attacked.all as [LoadResult, LoadResult];
    say(`fair: beside the greedy one, which got ${got.perSecond.toFixed(0)} turns/s`);
    const equal = await measure(() => [
      load(neighbours, { rate }),
      load(others, { rate: Math.max(1, Math.round(got.perSecond)) }),
    ]);
    const [fairly] = equal.all as [LoadResult, LoadResult];
    const cpu = { one: lone.cpu, alone: few.cpu, beside: attacked.cpu, fair: equal.cpu };
    results.push({ one, alone, beside, greedy: got, fair: fairly, cpu });
    say(`fair: p99 ${[alone, beside, fairly].map(({ p99 }) => p99.toFixed(0)).join(' / ')} ms`);
  }

  const figures = FIGURES.map(([id, what, unit, value]) => figureOf(`fair.${id}`, what, unit, results.map(value)));
  return { figures, detail: { rounds: results, neighbours: median(results.map(({ beside }) => beside.perSecond)) } };
};
