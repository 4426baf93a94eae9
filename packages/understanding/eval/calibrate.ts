import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  CALIBRATION_NAME,
  ENTRY_WEIGHTS,
  type ModelCalibration,
  PASSAGE_WEIGHTS,
  TYPICAL,
  type TypicalCosines,
} from '../src/calibration.ts';
import { openModelFolder, projectionIn } from '../src/embedder/model-folder.ts';
import { calibrated, measureSimilarity } from '../src/similarity.ts';
import { fitDocuments, openAll, type ReadDocument } from './documents.ts';
import { reportFit } from './fit.ts';
import {
  BASES,
  type EvaluationModel,
  loadBase,
  loadQuestions,
  loadUnseen,
  type TextVectors,
  UNSEEN_BASES,
} from './measure.ts';
import { fitProjection } from './passages.ts';

/** What cosines of questions to entries usually are, by the tune half of all sets. */
export const typicalCosines = async (vectors: TextVectors): Promise<TypicalCosines> => {
  const questions = [...loadQuestions(), ...loadUnseen()].filter(({ half }) => half === 'tune');
  const found: TypicalCosines[] = [];
  for (const base of [...BASES, ...UNSEEN_BASES]) {
    const entries = await vectors.vectorEntries(loadBase(base).knowledge);
    for (const { message } of questions.filter((one) => one.base === base))
      found.push((await measureSimilarity(entries, await vectors.of('query', message), new Set())).question);
  }
  const meanOf = (values: number[]): number => values.reduce((sum, one) => sum + one, 0) / values.length;
  return { mean: meanOf(found.map(({ mean }) => mean)), deviation: meanOf(found.map(({ deviation }) => deviation)) };
};

/** Gives the local model in the form of a folder the weights of the local model, so that tests need not fit them. */
export const writeLocalWeights = async (folder: string): Promise<void> => {
  const { model } = await openModelFolder(folder);
  const { vectors, tokens } = PASSAGE_WEIGHTS;
  const calibration: ModelCalibration = {
    model,
    cosines: TYPICAL,
    entries: ENTRY_WEIGHTS,
    passages: { vectors, tokens },
  };
  writeFileSync(join(folder, CALIBRATION_NAME), JSON.stringify(calibration));
};

/**
 * Fits all that depends on the model to the one of a folder, and writes it there: the projection of its tokens, its
 * typical cosines, and the weights of the decision. `open` opens the model although it is not fitted.
 */
export const calibrate = async (
  { open, folder: kept }: EvaluationModel,
  readDocument: ReadDocument,
  folder: string,
): Promise<void> => {
  const hasTokens = await fitProjection(await openModelFolder(folder), projectionIn(folder));
  const { vectors, tokens, close } = await openAll({ open, folder: kept }, false);
  if (!vectors || !tokens) throw new Error('the decision is fitted with the model');
  const cosines = await typicalCosines(vectors);
  const calibration: ModelCalibration = {
    model: vectors.model,
    cosines,
    entries: ENTRY_WEIGHTS,
    passages: { vectors: PASSAGE_WEIGHTS.vectors, tokens: PASSAGE_WEIGHTS.tokens },
  };
  console.log(`cosines: mean ${cosines.mean.toFixed(3)}, deviation ${cosines.deviation.toFixed(3)}`);
  calibration.entries = await reportFit({
    ...vectors,
    semanticSearchOf: (entries) => async (text, keep, options) =>
      calibrated(await measureSimilarity(entries, await vectors.of('query', text), keep, options), calibration),
  });
  const evidences = hasTokens ? (['tokens', 'vectors'] as const) : (['vectors'] as const);
  const fitted = await fitDocuments({ ...tokens, calibration: () => calibration }, readDocument, evidences);
  calibration.passages = { ...calibration.passages, ...Object.fromEntries(fitted) };
  const rounded = JSON.stringify(calibration, (_, value) =>
    typeof value === 'number' ? Number(value.toFixed(4)) : value,
  );
  writeFileSync(join(folder, CALIBRATION_NAME), `${rounded}\n`);
  console.log(`\nwritten: ${join(folder, CALIBRATION_NAME)}`);
  await close();
};
