/** What ranks candidates and tells how likely the first one is, for entries and passages alike: weighted sums of features. */
export const weighted = (features: readonly number[], weights: readonly number[]): number =>
  features.reduce((sum, feature, at) => sum + feature * (weights[at] ?? 0), 0);

export const probability = (features: readonly number[], weights: readonly number[]): number =>
  1 / (1 + Math.exp(-weighted(features, weights)));

/** The candidates with their scores, the best first. */
export const rankByScore = <One extends { scoreFeatures: readonly number[] }>(
  candidates: readonly One[],
  weights: readonly number[],
): (One & { score: number })[] =>
  candidates
    .map((one) => ({ ...one, score: weighted(one.scoreFeatures, weights) }))
    .toSorted((one, other) => other.score - one.score);

/** How far the candidate at `position` leads its best rival, and the logarithm of its share among all candidates. */
export const standingIn = (
  ranked: readonly { score: number }[],
  position: number,
): { lead: number | null; share: number } => {
  const { score: own = 0 } = ranked[position] ?? {};
  const rival = ranked[position === 0 ? 1 : 0];
  const all = ranked.reduce((sum, { score }) => sum + Math.exp(score - own), 0);
  return { lead: rival ? own - rival.score : null, share: -Math.log(all) };
};
