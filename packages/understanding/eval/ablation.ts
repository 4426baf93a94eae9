import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { fitBoth, type Prediction } from './fit.ts';
import {
  BASES,
  type EvaluationModel,
  loadQuestions,
  loadUnseen,
  measureAnswers,
  openTextVectors,
  shareOf,
} from './measure.ts';
import { PART_NAMES } from './without.ts';

const THRESHOLD = 0.7;
type Figures = { right: number; offered: number; wrong: number; answered: number };
type Row = Record<'known' | 'unseen', { words: Figures; both: Figures }>;

const share = <One>(of: One[], is: (one: One) => boolean): number => of.filter(is).length / of.length;

const figuresOf = (told: Prediction[]): Figures => {
  const answerable = told.filter((one) => one.answerable);
  const isSure = ({ sure }: Prediction): boolean => sure >= THRESHOLD;
  return {
    right: share(answerable, (one) => one.right && isSure(one)),
    offered: share(answerable, (one) => one.three && !isSure(one)),
    wrong: share(answerable, (one) => !one.right && isSure(one)),
    answered: share(
      told.filter((one) => !one.answerable),
      isSure,
    ),
  };
};

const measureRow = async (model: EvaluationModel): Promise<Row> => {
  const vectors = await openTextVectors(model);
  if ('none' in vectors) throw new Error(vectors.none);
  const { unseen: domains } = await fitBoth(vectors);
  await vectors.close();
  const byWords = async (questions: ReturnType<typeof loadQuestions>): Promise<Figures> => {
    const measured = await measureAnswers(
      questions.filter(({ half }) => half === 'tune'),
      null,
    );
    const known = measured.filter(({ answerable }) => answerable);
    const unknown = measured.filter(({ answerable }) => !answerable);
    return {
      right: shareOf(known, 'right'),
      offered: shareOf(known, 'hedged', 'offered'),
      wrong: shareOf(known, 'wrong'),
      answered: shareOf(unknown, 'wrong'),
    };
  };
  const told = (isKnown: boolean) =>
    domains.flatMap(({ domain, predictions: of }) => (BASES.includes(domain) === isKnown ? of : []));
  return {
    known: { words: await byWords(loadQuestions()), both: figuresOf(told(true)) },
    unseen: { words: await byWords(loadUnseen()), both: figuresOf(told(false)) },
  };
};

/** Measures in a process of its own, which loads the engine without the part. */
const rowOf = (part: string | null): Row => {
  const [, program = ''] = process.argv;
  const args = ['--import', join(import.meta.dirname, 'without.ts'), program, 'ablation', 'row'];
  const env = { ...process.env, WITHOUT: part ?? '' };
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8', env })) as Row;
};

const cells = ({ right, offered, wrong, answered }: Figures): string =>
  [right, offered, wrong, answered].map((one) => (100 * one).toFixed(1)).join(' / ');

/**
 * Disables one part of the engine at a time, and measures the `tune` half of each question
 * set: with search by words only, and with search by words and meaning. With meaning, each domain is measured with
 * weights that were fitted to the other domains.
 */
export const reportAblation = async (model: EvaluationModel, args: readonly string[]): Promise<void> => {
  if (args[0] === 'row') {
    console.log(JSON.stringify(await measureRow(model)));
    return;
  }
  console.log('right / offered / wrong of what has an answer / answered of what has none, %\n');
  console.log('| without | known, words | known, both | unseen, words | unseen, both |\n|---|---|---|---|---|');
  for (const part of [null, ...PART_NAMES]) {
    const { known, unseen } = rowOf(part);
    const row = [part ?? '(nothing)', cells(known.words), cells(known.both), cells(unseen.words), cells(unseen.both)];
    console.log(`| ${row.join(' | ')} |`);
  }
};
