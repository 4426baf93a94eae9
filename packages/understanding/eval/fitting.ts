/** Solves a small symmetric system by Gaussian elimination. */
const solve = (matrix: number[][], right: number[]): number[] => {
  const rows = matrix.map((row, at) => [...row, right[at] ?? 0]);
  const size = rows.length;
  for (let at = 0; at < size; at += 1) {
    let pivot = at;
    for (let row = at + 1; row < size; row += 1) {
      if (Math.abs(rows[row]?.[at] ?? 0) > Math.abs(rows[pivot]?.[at] ?? 0)) pivot = row;
    }
    [rows[at], rows[pivot]] = [rows[pivot] as number[], rows[at] as number[]];
    const lead = rows[at] as number[];
    for (let row = 0; row < size; row += 1) {
      if (row === at) continue;
      const other = rows[row] as number[];
      const share = (other[at] as number) / (lead[at] as number);
      for (let column = at; column <= size; column += 1)
        other[column] = (other[column] as number) - share * (lead[column] as number);
    }
  }
  return rows.map((row, at) => (row[size] as number) / (row[at] as number));
};

const ROUNDS = 25;

/** Newton's method. `add` adds up the slope and the curvature of all samples at the given weights. */
const minimise = (
  size: number,
  ridge: (at: number) => number,
  add: (weights: number[], slope: number[], curve: number[][]) => void,
): number[] => {
  let weights = Array.from({ length: size }, () => 0);
  for (let round = 0; round < ROUNDS; round += 1) {
    const slope = weights.map((weight, at) => ridge(at) * weight);
    const curve = weights.map((_, at) => weights.map((__, other) => (at === other ? ridge(at) + 1e-9 : 0)));
    add(weights, slope, curve);
    const step = solve(curve, slope);
    weights = weights.map((weight, at) => weight - (step[at] ?? 0));
  }
  return weights;
};

const dot = (a: number[], b: number[]): number => a.reduce((sum, value, at) => sum + value * (b[at] ?? 0), 0);
export const probability = (weights: number[], features: number[]): number =>
  1 / (1 + Math.exp(-dot(weights, features)));

export type Sample = { features: number[]; right: boolean; weight: number };

/** Logistic regression. The ridge penalty treats features as standardised, and skips the first (the bias). */
export const fitLogistic = (samples: Sample[], ridge: number): number[] => {
  const size = samples[0]?.features.length ?? 0;
  const total = samples.reduce((sum, { weight }) => sum + weight, 0);
  const spread = Array.from({ length: size }, (_, at) => {
    const mean = samples.reduce((sum, { features, weight }) => sum + weight * (features[at] ?? 0), 0) / total;
    return samples.reduce((sum, { features, weight }) => sum + weight * ((features[at] ?? 0) - mean) ** 2, 0) / total;
  });
  return minimise(
    size,
    (at) => (at === 0 ? 0 : ridge * (spread[at] ?? 0)),
    (weights, slope, curve) => {
      for (const { features, right, weight } of samples) {
        const p = probability(weights, features);
        const [miss, bend] = [(weight / total) * (p - (right ? 1 : 0)), (weight / total) * p * (1 - p)];
        for (let at = 0; at < size; at += 1) {
          const feature = features[at] as number;
          slope[at] = (slope[at] as number) + miss * feature;
          const row = curve[at] as number[];
          for (let other = 0; other < size; other += 1)
            row[other] = (row[other] as number) + bend * feature * (features[other] as number);
        }
      }
    },
  );
};

export type Choice = { features: number[][]; right: boolean[]; weight: number };

/** Fits a softmax choice between candidates by weighted sums. It maximises the probability of the right candidates. */
export const fitChoice = (choices: Choice[], ridge: number): number[] => {
  const size = choices[0]?.features[0]?.length ?? 0;
  return minimise(
    size,
    () => ridge,
    (weights, slope, curve) => {
      for (const { features, right, weight } of choices) {
        const ranks = features.map((one) => dot(weights, one));
        const top = Math.max(...ranks);
        const chances = ranks.map((rank) => Math.exp(rank - top));
        const all = chances.reduce((a, b) => a + b, 0);
        const ofRight = chances.reduce((sum, chance, at) => sum + (right[at] ? chance : 0), 0);
        const mean = weights.map((_, at) =>
          features.reduce((sum, one, nth) => sum + ((chances[nth] ?? 0) / all) * (one[at] ?? 0), 0),
        );
        for (const [nth, one] of features.entries()) {
          const chance = (chances[nth] ?? 0) / all;
          const wanted = right[nth] ? (chances[nth] ?? 0) / ofRight : 0;
          for (let at = 0; at < size; at += 1) {
            slope[at] = (slope[at] as number) + ((chance - wanted) * (one[at] ?? 0) * weight) / choices.length;
            const row = curve[at] as number[];
            for (let other = 0; other < size; other += 1) {
              const bend = chance * ((one[at] ?? 0) - (mean[at] ?? 0)) * ((one[other] ?? 0) - (mean[other] ?? 0));
              row[other] = (row[other] as number) + (weight * bend) / choices.length;
            }
          }
        }
      }
    },
  );
};
