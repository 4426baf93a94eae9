import { openReader } from '@parley/reading';
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
import { measureDocuments } from '../eval/documents.ts';
import { localModel, openEmbedder } from '../src/embedder/embedder.ts';
import { isLocalModelFor, modelFolder } from '../../../test/kit/semantic.ts';
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

withModel(
  'an assistant with a small site says of most questions that no page answers that it does not know',
  async () => {
    const log = { info: () => undefined, warn: () => undefined };
    const reader = openReader();
    onTestFinished(() => reader.close());

    const { share } = await measureDocuments(
      { open: () => openEmbedder(localModel(modelFolder()), { log }), folder: KEPT },
      async (bytes, name) => {
        const page = await reader.read({ bytes, contentType: null, name, url: null });
        if ('failed' in page) throw new Error(page.message);
        return page;
      },
      { folder: 'small', half: 'report' },
    );

    expect(share(true, 'right', 'hedged')).toBeGreaterThanOrEqual(0.56);
    expect(share(true, 'wrong')).toBeLessThanOrEqual(0.03);
    expect(share(false, 'refused')).toBeGreaterThanOrEqual(0.6);
    expect(share(false, 'wrong')).toBeLessThanOrEqual(0.055);
    expect(share(false, 'hedgedWrong')).toBeLessThanOrEqual(0.15);
  },
);
