import * as z from 'zod';

/** The weights of the decision between entries, by words and meaning. `hybrid-search.ts` says of what. */
export type Calibration = { score: number[]; confidence: number[]; counterEvidence: number[] };
/** The weights of the decision between passages. `passage-search.ts` says of what. */
export type PassageCalibration = { score: number[]; confidence: number[] };

/** Fitted to multilingual-e5-small on the tune half of each evaluation set: entries by `npm run eval -- fit`. */
export const ENTRY_WEIGHTS: Calibration = {
  score: [1.95, 2.47, 2.16, 1.83, 0.03],
  confidence: [
    -0.25, 0.28, 0.92, 0.07, 0.15, -0.08, 0.08, 0.99, 1.48, 1.44, -0.51, -1.04, -0.36, 0.15, -0.04, -0.68, 1.07, -3.13,
    -0.51,
  ],
  counterEvidence: [0.26, 0.94, -1.85, -0.13],
};

/** Passages by `npm run eval -- documents fit`, by what was compared. */
export const PASSAGE_WEIGHTS: Record<'words' | 'vectors' | 'tokens', PassageCalibration> = {
  words: { score: [3.1, 2.28, 0.77, 0.12], confidence: [-0.85, 0.7, 0.48, -1.72, 2.01, 1.25, 0.42] },
  vectors: {
    score: [1.83, 1.5, 0.33, -0.13, 3.02],
    confidence: [-3.02, 0.76, 0.52, -1.18, 1.16, 0.42, 0.5, 0.61, 0.5],
  },
  tokens: {
    score: [0.78, 0.59, 0.21, -0.53, 1.14, 0.78, 1.36],
    confidence: [-2.31, 0.57, 0.96, -1.28, 0.96, 0.42, 0.77, 0.65, 0.26, 0.27],
  },
};

/** The cosines of a question to the questions of an assistant: their mean, and how much they differ. */
export type TypicalCosines = { mean: number; deviation: number };

/** Those of multilingual-e5-small, by `typicalCosines` of the evaluation. */
export const TYPICAL: TypicalCosines = { mean: 0.797, deviation: 0.021 };

/** A cosine as multilingual-e5-small would give it, because all limits and weights are in its units. */
export const localCosine = (cosine: number, { mean, deviation }: TypicalCosines = TYPICAL): number =>
  TYPICAL.mean + (cosine - mean) * (TYPICAL.deviation / deviation);
/** The same for a difference of cosines. */
export const localDifference = (difference: number, { deviation }: TypicalCosines = TYPICAL): number =>
  difference * (TYPICAL.deviation / deviation);

const as = (weights: number[]) => z.array(z.number()).length(weights.length);
const asPassages = ({ score, confidence }: PassageCalibration) =>
  z.strictObject({ score: as(score), confidence: as(confidence) });

/**
 * What fits the decision to a model that an operator has chosen: `npm run eval -- calibrate` writes it beside the model,
 * and `model` names the files that it was fitted to.
 */
export const ModelCalibration = z.strictObject({
  model: z.string(),
  cosines: z.strictObject({ mean: z.number(), deviation: z.number().positive() }),
  entries: z.strictObject({
    score: as(ENTRY_WEIGHTS.score),
    confidence: as(ENTRY_WEIGHTS.confidence),
    counterEvidence: as(ENTRY_WEIGHTS.counterEvidence),
  }),
  passages: z.strictObject({
    vectors: asPassages(PASSAGE_WEIGHTS.vectors),
    tokens: asPassages(PASSAGE_WEIGHTS.tokens),
  }),
});
export type ModelCalibration = z.infer<typeof ModelCalibration>;

/** The file of a folder with a model. */
export const CALIBRATION_NAME = 'parley.json';
