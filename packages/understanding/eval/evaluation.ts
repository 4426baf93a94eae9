import { parseArgs } from 'node:util';
import { baseLanguage } from '../src/fold.ts';
import type { Answering } from '../src/understanding.ts';
import { reportAblation } from './ablation.ts';
import { LOCAL_PROJECTION } from '../src/embedder/token-vectors.ts';
import { openSession } from '../src/embedder/model-files.ts';
import { calibrate } from './calibrate.ts';
import { fitDocuments, openAll, type ReadDocument, reportDocuments } from './documents.ts';
import { reportFit } from './fit.ts';
import {
  countOf,
  type EvaluationModel,
  type Half,
  LIMITS,
  limitsOf,
  loadChatMessages,
  loadFollowUps,
  loadQuestions,
  loadUnseen,
  measureAnswers,
  type Measured,
  measureLanguage,
  openTextVectors,
  type Outcome,
  type Question,
  shareOf,
  type TextVectors,
} from './measure.ts';
import { fitProjection, reportPassages } from './passages.ts';
import { reportUnrelated } from './unrelated.ts';

export {
  BASES,
  loadBase,
  loadChatMessages,
  loadFollowUps,
  loadQuestions,
  loadUnseen,
  UNSEEN_BASES,
} from './measure.ts';
export type { EvaluationModel } from './measure.ts';
export { writeLocalWeights } from './calibrate.ts';

type Options = { half: Half; isWordsOnly: boolean; answering: Answering; threshold: number | null };

const percent = (share: number): string => (Number.isNaN(share) ? '–' : `${(100 * share).toFixed(1)} %`);
const limit = (holds: boolean, words: string): void => {
  console.log(`${holds ? 'met   ' : 'MISSED'} ${words}`);
  if (!holds) process.exitCode = 1;
};

const COLUMNS: readonly [Outcome, string][] = [
  ['right', 'right'],
  ['hedged', 'hedged'],
  ['offered', 'offered'],
  ['wrong', 'wrong'],
  ['hedgedWrong', 'hedged wrong'],
  ['othersOffered', 'others offered'],
  ['refused', 'refused'],
];
const line = (name: string, measured: Measured[]): void => {
  if (measured.length === 0) return;
  const cells = COLUMNS.map(([outcome, title]) =>
    percent(shareOf(measured, outcome)).padStart(Math.max(8, title.length)),
  );
  console.log([name.padEnd(24), String(measured.length).padStart(5), ...cells].join('  '));
};
const head = (title: string): void => {
  const titles = COLUMNS.map(([, name]) => name.padStart(Math.max(8, name.length)));
  console.log(['', ''].join('\n') + [title.padEnd(24), '    n', ...titles].join('  '));
};

const byGroup = (measured: Measured[], groupOf: (question: Question) => string): void => {
  const groups = [...Map.groupBy(measured, ({ question }) => groupOf(question))].toSorted(([a], [b]) =>
    a.localeCompare(b),
  );
  for (const [group, of] of groups) line(`  ${group}`, of);
};

const report = (title: string, measured: Measured[]): void => {
  const answerable = measured.filter((one) => one.answerable);
  head(`${title}, to be answered`);
  line('all', answerable);
  byGroup(answerable, ({ base }) => base);
  if (new Set(answerable.map(({ question }) => question.kind)).size > 1)
    byGroup(answerable, ({ kind }) => `kind ${kind}`);
  byGroup(answerable, ({ language }) => `in ${language}`);
  line(
    'not to be answered',
    measured.filter((one) => !one.answerable),
  );
};

const openVectors = async (model: EvaluationModel): Promise<TextVectors | null> => {
  const opened = await openTextVectors(model);
  if (!('none' in opened)) return opened;
  console.log(`no model (${opened.none}): words alone are measured`);
  return null;
};

const reportAnswers = async (
  model: EvaluationModel,
  { half, isWordsOnly, answering, threshold }: Options,
): Promise<void> => {
  const vectors = isWordsOnly ? null : await openVectors(model);
  const measure = (questions: Question[]) =>
    measureAnswers(
      questions.filter((one) => one.half === half),
      vectors,
      { answering, threshold },
    );
  const [known, unseen, followUps] = [
    await measure(loadQuestions()),
    await measure(loadUnseen()),
    await measure(loadFollowUps()),
  ];
  await vectors?.close();
  // Misses of the report half are not shown, because tuning on them would make its figures worthless.
  if (half === 'tune') {
    const misses = [...known, ...unseen, ...followUps].filter(
      ({ answerable, outcome }) => outcome !== (answerable ? 'right' : 'refused'),
    );
    for (const { outcome, explanation } of misses) console.log(`${outcome} ${explanation}`);
  }
  console.log(`counted: the ${half} half, ${vectors ? `words and meaning by ${vectors.model}` : 'words alone'}`);
  report('known domains', known);
  report('unseen domains', unseen);
  report('follow-ups', followUps);
  const decided = Map.groupBy(unseen, ({ by }) => by);
  console.log(`\nunseen domains, decided by: ${[...decided].map(([by, of]) => `${by} ${countOf(of)}`).join(', ')}\n`);
  const all = [...known, ...unseen, ...followUps];
  head('all sets together');
  line(
    'to be answered',
    all.filter((one) => one.answerable),
  );
  line(
    'not to be answered',
    all.filter((one) => !one.answerable),
  );
  console.log('');
  for (const { name, share, least, holds } of limitsOf(all, vectors ? LIMITS.meaning : LIMITS.words)) {
    limit(holds, `${name}: ${percent(share)} (${least})`);
  }
};

const reportLanguage = ({ half }: Options): void => {
  const all = loadChatMessages();
  const messages = all.filter((each) => each.half === half);
  const startedAt = performance.now();
  const measured = measureLanguage(messages);
  const milliseconds = (performance.now() - startedAt) / messages.length;
  const languages = new Set(all.map(({ expected }) => baseLanguage(expected)));
  const right = measured.filter((each) => each.right).length;
  if (half === 'tune') for (const { explanation } of measured.filter((each) => !each.right)) console.log(explanation);
  console.log(`${all.length} chat messages in ${languages.size} languages; counted: the ${half} half`);
  console.log(
    `right ${right} of ${messages.length} (${percent(right / messages.length)}), ${milliseconds.toFixed(3)} ms a message`,
  );
  limit(right / messages.length >= LIMITS.language, `language right in at least ${LIMITS.language * 100} %`);
};

const fitEntries = async (model: EvaluationModel): Promise<void> => {
  const vectors = await openVectors(model);
  if (!vectors) throw new Error('words and meaning are fitted with the model');
  await reportFit(vectors);
  await vectors.close();
};

const fitPages = async (model: EvaluationModel, readDocument: ReadDocument): Promise<void> => {
  const { tokens, close } = await openAll(model, false);
  if (!tokens) throw new Error('passages are fitted with the model');
  await fitDocuments(tokens, readDocument);
  await close();
};

/** The folders of the local model, and of the one that `SEMANTIC_MODEL` chooses. */
type Folders = { localFolder: string; chosenFolder: string | undefined };

/**
 * Measures answers, or with `language` language detection, on the labelled sets of this folder. Each set has two halves.
 * The figures come from the report half. `--tune` uses the other half and shows every miss, for work on the engine.
 * `--words` runs without the model. `documents` and `small` measure answers from documents, and `documents fit` fits their weights.
 * `unrelated` measures what something unrelated changes that is added, on the tune halves. `passages` measures the ranking of documents by their tokens, and `projection` fits it. `fit` fits the weights, `calibrate` fits all weights to the model of `SEMANTIC_MODEL`, and `ablation` measures without one word list at a time.
 */
export const evaluate = async (
  args: string[],
  model: EvaluationModel,
  { localFolder, chosenFolder, readDocument }: Folders & { readDocument: ReadDocument },
): Promise<void> => {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      tune: { type: 'boolean', default: false },
      words: { type: 'boolean', default: false },
      answering: { type: 'string', default: 'balanced' },
      threshold: { type: 'string' },
    },
  });
  const options: Options = {
    half: values.tune ? 'tune' : 'report',
    isWordsOnly: values.words,
    answering: values.answering as Answering,
    threshold: values.threshold ? Number(values.threshold) : null,
  };
  const [what, ...rest] = positionals;
  if (what === 'language') reportLanguage(options);
  else if (what === 'fit') await fitEntries(model);
  else if (what === 'calibrate') {
    if (chosenFolder === undefined) throw new Error('SEMANTIC_MODEL names no folder to fit the decision to');
    await calibrate(model, readDocument, chosenFolder);
  } else if (what === 'ablation') await reportAblation(model, rest);
  else if (what === 'documents' && rest[0] === 'fit') await fitPages(model, readDocument);
  else if (what === 'documents' || what === 'small')
    await reportDocuments(model, readDocument, { folder: what, ...options });
  else if (what === 'unrelated') await reportUnrelated(model, readDocument, values.tune);
  else if (what === 'passages') await reportPassages(localFolder);
  else if (what === 'projection') await fitProjection(await openSession(localFolder), LOCAL_PROJECTION);
  else await reportAnswers(model, options);
};
