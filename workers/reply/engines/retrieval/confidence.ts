import type { Evidence } from './search.ts';

/** What the fit looks at; the first stands for the bias. */
export const featuresOf = ({ covered, asked, wording, strange, matched, lead }: Evidence): number[] => [
  1,
  covered,
  asked,
  wording,
  strange,
  Math.min(3, matched),
  Math.min(0.4, lead),
  covered * wording,
];

/** Fitted by `test/eval/fit.ts` to the tune half of the evaluation set. */
const WEIGHTS = [-3.18, 1.76, 0.98, 0.81, -1.31, 0.93, 3.21, 1.19];

/** How likely an entry is the answer, given what speaks for it. */
export const confidenceOf = (evidence: Evidence): number => {
  const sum = featuresOf(evidence).reduce((total, feature, at) => total + feature * (WEIGHTS[at] ?? 0), 0);
  return 1 / (1 + Math.exp(-sum));
};
