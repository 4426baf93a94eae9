import { median } from '../../test/kit/quantiles.ts';

/** One measured value: the median of the rounds, with their `min` and `max`. */
export type Figure = { id: string; what: string; unit: string; value: number; min?: number; max?: number };

/** The result of a part: the lines of the table, and further counts for the documentation. */
export type PartResult = { figures: Figure[]; detail: Record<string, unknown> };

export type Options = {
  /** The number of rounds. In each round, all contenders run once. */
  rounds: number;
  /** The number of counted seconds in a round. A round begins with `warmUpSeconds`, which are not counted. */
  seconds: number;
  warmUpSeconds: number;
  /**
   * The amount of stored data, as a share of the full amount. Less than 1 makes a quick check. Figures are valid only
   * at 1.
   */
  scale: number;
};

export type Part = (options: Options, say: (line: string) => void) => Promise<PartResult>;

export const readOptions = (env: NodeJS.ProcessEnv): Options => {
  const number = (name: string, byDefault: number): number => {
    const value = Number(env[name] ?? byDefault);
    if (!(value > 0)) throw new Error(`${name} must be a number above 0`);
    return value;
  };
  return {
    rounds: number('BENCH_ROUNDS', 5),
    seconds: number('BENCH_SECONDS', 1.3),
    warmUpSeconds: number('BENCH_WARM_UP', 0.3),
    scale: number('BENCH_SCALE', 1),
  };
};

export const figureOf = (id: string, what: string, unit: string, rounds: number[]): Figure => ({
  id,
  what,
  unit,
  value: median(rounds),
  ...(rounds.length > 1 && { min: Math.min(...rounds), max: Math.max(...rounds) }),
});

/**
 * The ratio of two contenders. It is computed for each round, because other load on the machine affects both values of
 * a round.
 */
export const ratioOf = (id: string, what: string, ours: number[], theirs: number[]): Figure =>
  figureOf(
    id,
    what,
    '×',
    ours.map((value, round) => value / (theirs[round] ?? Number.NaN)),
  );
