import { fitBoth, type Prediction } from './fit-both.ts';
import { fitWords } from './fit-words.ts';
import { type EvaluationModel, openTextVectors } from './vectors.ts';

const rounded = (weights: number[]): string => `[${weights.map((weight) => Number(weight.toFixed(2))).join(', ')}]`;
const percent = (of: Prediction[], is: (one: Prediction) => boolean): string =>
  `${((100 * of.filter(is).length) / of.length).toFixed(1)} %`.padStart(8);
const logLoss = (told: Prediction[]): number =>
  -told.reduce((sum, { right, sure }) => sum + Math.log(right ? sure : 1 - sure), 0) / told.length;

/**
 * Fits the engine's confidence to the `tune` half of each question set. It prints the weights for
 * `candidate.ts` (search by words only) and `hybrid-search.ts` (search by words and meaning), and how well such weights
 * work for questions that they were not fitted to.
 */
export const reportFit = async (model: EvaluationModel): Promise<void> => {
  const words = fitWords();
  console.log(
    `words alone: ${words.samples} questions, log loss ${words.logLoss.toFixed(3)}, in five folds ${words.unseen.toFixed(3)}`,
  );
  console.log(`  weights ${rounded(words.weights)} (those in use were fitted before, and do as well)\n`);

  const vectors = await openTextVectors(model);
  if ('none' in vectors) {
    console.log(`no model (${vectors.none}): words and meaning cannot be fitted`);
    process.exitCode = 1;
    return;
  }
  const { examples, calibration, unseen } = await fitBoth(vectors);
  await vectors.close();
  console.log(`words and meaning by ${vectors.model}: ${examples} questions`);
  for (const [name, weights] of Object.entries(calibration)) console.log(`  ${name}: ${rounded(weights)},`);

  console.log('\neach domain by a fit to the other six:');
  for (const { domain, predictions } of unseen) {
    const known = predictions.filter(({ answerable }) => answerable);
    const first = percent(known, ({ right }) => right);
    const three = percent(known, (one) => one.three);
    console.log(
      `  ${domain.padEnd(9)} log loss ${logLoss(predictions).toFixed(3)}  first right ${first}  among three ${three}`,
    );
  }
  const all = unseen.flatMap(({ predictions }) => predictions);
  const [known, unknown] = [all.filter(({ answerable }) => answerable), all.filter(({ answerable }) => !answerable)];
  console.log(
    `  all       log loss ${logLoss(all).toFixed(3)}\n\nthreshold  answered right  answered wrong  unanswerable answered`,
  );
  for (const threshold of [0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9]) {
    const right = percent(known, (one) => one.right && one.sure >= threshold);
    const wrong = percent(known, (one) => !one.right && one.sure >= threshold);
    console.log(
      `${String(threshold).padEnd(15)} ${right}        ${wrong}            ${percent(unknown, ({ sure }) => sure >= threshold)}`,
    );
  }
};
