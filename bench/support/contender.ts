import { type Counters, perItem, type Reading } from './counters.ts';
import { median } from '../../test/kit/quantiles.ts';
import { figureOf, type Figure, type Options } from './figures.ts';
import { type LoadResult, type LoadSettings, runLoad } from './load-settings.ts';

/** A system under measurement. All contenders get the same load. */
export type Contender = {
  name: string;
  target: Pick<LoadSettings, 'kind' | 'port' | 'apiKey' | 'sessionPrefix'> & { sessions?: number };
  /** The ids of the processes whose CPU is counted. */
  pids: Record<string, number>;
  /**
   * Waits until the work caused by the load is done, so that it does not slow down the next contender. Returns how many
   * items were left.
   */
  drain?: (turns: number) => Promise<Record<string, number>>;
};

export type Round = LoadResult & { used: Reading; after: Record<string, number> };

const SESSIONS = 2000;

type Run = { contender: Contender; messages: string[]; counters: Counters; inFlight: number; rate?: number };

export const runRound = async (
  { contender, messages, counters, inFlight, rate }: Run,
  { seconds, warmUpSeconds }: Pick<Options, 'seconds' | 'warmUpSeconds'>,
): Promise<Round> => {
  const { target, pids, drain } = contender;
  const before = await counters.read(pids);
  const timed = { sessions: SESSIONS, inFlight, seconds, warmUpSeconds, messages, ...(rate !== undefined && { rate }) };
  const result = await runLoad({ ...timed, ...target });
  const after = (await drain?.(result.total)) ?? {};
  const used = perItem(before, await counters.read(pids), result.total);
  used.cpu['load generator'] = (result.cpuMs * 1000) / result.total;
  return { ...result, used, after };
};

/** Runs the contenders in turn (A B C A B C …), so that other load on the machine affects all of them. */
export const alternate = async (
  contenders: Contender[],
  run: (contender: Contender) => Promise<Round>,
  rounds: number,
): Promise<Map<string, Round[]>> => {
  const results = new Map(contenders.map(({ name }) => [name, [] as Round[]]));
  for (let round = 0; round < rounds; round += 1) {
    for (const contender of contenders) results.get(contender.name)?.push(await run(contender));
  }
  return results;
};

export const loadFigures = (id: string, what: string, rounds: Round[]): Figure[] =>
  (
    [
      ['', '', 'turns/s', 'perSecond'],
      ['-p50', ': p50', 'ms', 'p50'],
      ['-p99', ': p99', 'ms', 'p99'],
    ] as const
  ).map(([end, of, unit, name]) =>
    figureOf(
      id + end,
      what + of,
      unit,
      rounds.map((round) => round[name]),
    ),
  );

export const medians = (all: Record<string, number>[]): Record<string, number> =>
  Object.fromEntries(Object.keys(all[0] ?? {}).map((name) => [name, median(all.map((one) => one[name] ?? 0))]));

export const medianReading = (readings: Reading[]): Reading => ({
  cpu: medians(readings.map(({ cpu }) => cpu)),
  counts: medians(readings.map(({ counts }) => counts)),
});

/** The cost of a turn: CPU in µs by process, and the operation counts of the stores. */
export const costOf = (rounds: Round[]) => ({
  ...medianReading(rounds.map(({ used }) => used)),
  after: medians(rounds.map(({ after }) => after)),
});
