import type { Candidate } from './candidate.ts';

/** Weights, fitted on the `--tune` half of each evaluation set by `npm run eval -- fit`. */
export type Calibration = { score: number[]; confidence: number[]; counterEvidence: number[] };

const FITTED: Calibration = {
  score: [2.13, 2.84, 2.19, 2.37, 0.02],
  confidence: [
    -0.73, 0.3, 1.25, 0.51, 0.19, -0.8, 0.26, 0.56, 0.93, 1.58, -1.32, -1.49, -0.41, 0.4, -0.15, -0.96, 0.99,
  ],
  counterEvidence: [-0.3, 0.88, -0.82, -0.64],
};

export type RankedCandidate = Candidate & { score: number; confidence: number };

const weighted = (features: number[], weights: number[]): number =>
  features.reduce((sum, feature, at) => sum + feature * (weights[at] ?? 0), 0);

/** Scores the candidates and sorts them, the best first. */
export const rankCandidates = (
  candidates: Candidate[],
  { score }: Calibration = FITTED,
): (Candidate & { score: number })[] =>
  candidates
    .map((one) => ({ ...one, score: weighted(one.scoreFeatures, score) }))
    .toSorted((a, b) => b.score - a.score);

/** The lead that a candidate gets if there is no other candidate. */
const LONE_LEAD = 3;

/**
 * The features from which the confidence of the candidate at `position` is computed: a constant 1 for the bias, the
 * lead over the best rival, the share among all candidates, and the candidate's own features.
 */
export const featuresInRanking = (ranked: (Candidate & { score: number })[], position: number): number[] => {
  const own = ranked[position];
  if (!own) return [];
  const rival = ranked[position === 0 ? 1 : 0];
  const all = ranked.reduce((sum, { score }) => sum + Math.exp(score - own.score), 0);
  return [1, rival ? own.score - rival.score : LONE_LEAD, -Math.log(all), ...own.confidenceFeatures];
};

const sigmoid = (value: number): number => 1 / (1 + Math.exp(-value));

/** Adjusts a confidence by the features of `counterEvidenceOf`. The result can be higher or lower than before. */
export const adjustConfidence = (confidence: number, features: number[], calibration: Calibration = FITTED): number =>
  sigmoid(weighted([1, Math.log(confidence / (1 - confidence)), ...features], calibration.counterEvidence));

/** Ranks the candidates by words and vectors together. The confidence is the probability that the entry is the answer. */
export const rankWithConfidence = (candidates: Candidate[], calibration: Calibration = FITTED): RankedCandidate[] => {
  const ranked = rankCandidates(candidates, calibration);
  return ranked.map((one, position) => ({
    ...one,
    confidence: sigmoid(weighted(featuresInRanking(ranked, position), calibration.confidence)),
  }));
};
