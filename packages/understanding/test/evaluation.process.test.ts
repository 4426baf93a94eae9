import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { countOf, LIMITS, limitsOf, type Measured, measureAnswers, shareOf } from '../eval/measure.ts';
import { loadQuestions, loadUnseen, type Question } from '../eval/sets.ts';
import { openTextVectors } from '../eval/vectors.ts';
import { localModel, openEmbedder } from '../src/embedder/embedder.ts';
import { isLocalModelFor, modelFolder } from '../../../test/support/semantic.ts';

/** Where `npm run eval` keeps vectors too. */
const KEPT = join(import.meta.dirname, '../../../.local/eval');

const reported = (questions: Question[]): Question[] => questions.filter(({ half }) => half === 'report');
const known = (measured: Measured[]): Measured[] => measured.filter(({ answerable }) => answerable);
const unknown = (measured: Measured[]): Measured[] => measured.filter(({ answerable }) => !answerable);

test('by words alone, most questions of known domains find their entry, and unknown topics stay unanswered', async () => {
  const measured = await measureAnswers(reported(loadQuestions()), null);

  expect(shareOf(known(measured), 'right', 'offered')).toBeGreaterThanOrEqual(0.85);
  expect(shareOf(unknown(measured), 'wrong')).toBeLessThanOrEqual(0.05);
});

test.runIf(isLocalModelFor)(
  'with meaning, the results on unseen domains are at least as good as the last accepted ones',
  { timeout: 240_000 }, // a first run has some 1,200 texts to embed
  async () => {
    const model = localModel(modelFolder());
    const log = { info: () => undefined, warn: () => undefined };
    const vectors = await openTextVectors({ open: () => openEmbedder(model, { log }), folder: KEPT });
    if ('none' in vectors) throw new Error(vectors.none);
    onTestFinished(vectors.close);

    const measured = await measureAnswers(reported(loadUnseen()), vectors);

    const [right, reached, wrong, answered, cross] = limitsOf(measured, LIMITS.meaning);
    expect(countOf(measured)).toBeGreaterThan(200);
    expect(right?.share).toBeGreaterThanOrEqual(0.45);
    expect(reached?.share).toBeGreaterThanOrEqual(0.8);
    expect(wrong?.share).toBeLessThanOrEqual(0.04);
    expect(answered?.share).toBeLessThanOrEqual(0.1);
    expect(cross?.share).toBeGreaterThanOrEqual(0.6);
  },
);
