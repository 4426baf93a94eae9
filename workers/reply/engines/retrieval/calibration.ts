import type { Seen } from './features.ts';

/** Fitted by `test/eval/fit.ts` to the tune halves of the evaluation sets. */
export type Calibration = { rank: number[]; confidence: number[]; doubt: number[] };

const FITTED: Calibration = {
  rank: [2.13, 2.84, 2.19, 2.37, 0.02],
  confidence: [
    -0.73, 0.3, 1.25, 0.51, 0.19, -0.8, 0.26, 0.56, 0.93, 1.58, -1.32, -1.49, -0.41, 0.4, -0.15, -0.96, 0.99,
  ],
  doubt: [-0.3, 0.88, -0.82, -0.64],
};

export type Ranked = Seen & { rank: number; confidence: number };

const weighted = (features: number[], weights: number[]): number =>
  features.reduce((sum, feature, at) => sum + feature * (weights[at] ?? 0), 0);

/** The likeliest first. */
export const rankSeen = (seen: Seen[], { rank }: Calibration = FITTED): (Seen & { rank: number })[] =>
  seen.map((one) => ({ ...one, rank: weighted(one.forRank, rank) })).toSorted((a, b) => b.rank - a.rank);

/** A lone entry leads by this much. */
const LONE_LEAD = 3;

/** Of each in a ranking: bias, how it stands among the others, and its own evidence. */
export const standingOf = (ranked: (Seen & { rank: number })[], place: number): number[] => {
  const own = ranked[place];
  if (!own) return [];
  const rival = ranked[place === 0 ? 1 : 0];
  const all = ranked.reduce((sum, { rank }) => sum + Math.exp(rank - own.rank), 0);
  return [1, rival ? own.rank - rival.rank : LONE_LEAD, -Math.log(all), ...own.forConfidence];
};

const sigmoid = (value: number): number => 1 / (1 + Math.exp(-value));

/** What is left of a confidence once the doubts are known. */
export const doubted = (confidence: number, doubts: number[], { doubt }: Calibration = FITTED): number =>
  sigmoid(weighted([1, Math.log(confidence / (1 - confidence)), ...doubts], doubt));

/** The likeliest entries by words and meaning together, and how likely each is the answer. */
export const calibrated = (seen: Seen[], calibration: Calibration = FITTED): Ranked[] => {
  const ranked = rankSeen(seen, calibration);
  return ranked.map((one, place) => ({
    ...one,
    confidence: sigmoid(weighted(standingOf(ranked, place), calibration.confidence)),
  }));
};
