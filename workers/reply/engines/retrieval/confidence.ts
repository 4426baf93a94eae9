import type { LexicalEvidence } from './search.ts';

/** The features of the lexical confidence, in the order of `WEIGHTS`. The first feature is the bias. */
export const lexicalFeatures = ({
  coverage,
  wordingCoverage,
  wordingMatch,
  unknownShare,
  matchedTerms,
  lead,
}: LexicalEvidence): number[] => [
  1,
  coverage,
  wordingCoverage,
  wordingMatch,
  unknownShare,
  Math.min(3, matchedTerms),
  Math.min(0.4, lead),
  coverage * wordingMatch,
];

/** Fitted on the `--tune` half of the evaluation set by `npm run eval -- fit`. */
const WEIGHTS = [-3.18, 1.76, 0.98, 0.81, -1.31, 0.93, 3.21, 1.19];

/** The probability that an entry is the answer, judged by word matches only. */
export const lexicalConfidence = (evidence: LexicalEvidence): number => {
  const sum = lexicalFeatures(evidence).reduce((total, feature, at) => total + feature * (WEIGHTS[at] ?? 0), 0);
  return 1 / (1 + Math.exp(-sum));
};
