import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  countOf,
  LIMITS,
  limitsOf,
  loadFollowUps,
  loadQuestions,
  loadUnseen,
  measureAnswers,
  type Measured,
  openTextVectors,
  type Question,
  shareOf,
} from '../eval/measure.ts';
import { localModel, openEmbedder } from '../src/embedder/embedder.ts';
import { isLocalModelFor, modelFolder } from '../../../test/support/semantic.ts';
import { longTest } from '../../../test/support/size.ts';

/** Where `npm run eval` keeps vectors too. */
const KEPT = join(import.meta.dirname, '../../../.local/eval');

const reported = (questions: Question[]): Question[] => questions.filter(({ half }) => half === 'report');
const known = (measured: Measured[]): Measured[] => measured.filter(({ answerable }) => answerable);
const unknown = (measured: Measured[]): Measured[] => measured.filter(({ answerable }) => !answerable);

test('by words alone, most questions of known domains find their entry, and unknown topics stay unanswered', async () => {
  const measured = await measureAnswers(reported(loadQuestions()), null);

  expect(shareOf(known(measured), 'right', 'hedged', 'offered')).toBeGreaterThanOrEqual(0.85);
  expect(shareOf(unknown(measured), 'wrong')).toBeLessThanOrEqual(0.05);
});

// A first run has some 1,200 texts to embed.
const withModel = isLocalModelFor ? longTest : (): void => undefined;

withModel(
  'with meaning, all sets together keep the limits, and unseen domains are as good as the last accepted ones',
  async () => {
    const model = localModel(modelFolder());
    const log = { info: () => undefined, warn: () => undefined };
    const vectors = await openTextVectors({ open: () => openEmbedder(model, { log }), folder: KEPT });
    if ('none' in vectors) throw new Error(vectors.none);
    onTestFinished(vectors.close);

    const unseen = await measureAnswers(reported(loadUnseen()), vectors);
    const others = await measureAnswers(reported([...loadQuestions(), ...loadFollowUps()]), vectors);

    expect(countOf([...unseen, ...others])).toBeGreaterThan(500);
    expect(limitsOf([...unseen, ...others], LIMITS.meaning).filter(({ holds }) => !holds)).toEqual([]);
    expect(shareOf(known(unseen), 'right', 'hedged')).toBeGreaterThanOrEqual(0.6);
    expect(shareOf(known(unseen), 'right')).toBeGreaterThanOrEqual(0.45);
    expect(shareOf(known(unseen), 'right', 'hedged', 'offered')).toBeGreaterThanOrEqual(0.68);
    expect(shareOf(known(unseen), 'wrong')).toBeLessThanOrEqual(0.03);
  },
);
