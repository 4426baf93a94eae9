import { openReader } from '@parley/reading';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openAll } from '../eval/documents.ts';
import { type Addition, figuresOf, measureUnrelated } from '../eval/unrelated.ts';
import { localModel, openEmbedder } from '../src/embedder/embedder.ts';
import { isLocalModelFor, modelFolder } from '../../../test/kit/semantic.ts';

/** Where `npm run eval` keeps vectors too. */
const KEPT = join(import.meta.dirname, '../../../.local/eval');

/** The most that was measured, as eval/RESULTS.md has it, with room for one question in a hundred and 0.01. */
const MOST: [Addition, { first: number; newFirst: number; kind: number; most: number }][] = [
  ['small sites, one entry', { first: 0.016, newFirst: 0.039, kind: 0.032, most: 0.09 }],
  ['small sites, five entries', { first: 0.04, newFirst: 0.08, kind: 0.058, most: 0.14 }],
  ['small sites, one passage', { first: 0.01, newFirst: 0, kind: 0.018, most: 0.03 }],
  ['small sites, five passages', { first: 0.01, newFirst: 0, kind: 0.05, most: 0.06 }],
  ['small sites with entries, one passage', { first: 0.01, newFirst: 0, kind: 0.022, most: 0.03 }],
  ['large sites, one entry', { first: 0.01, newFirst: 0.01, kind: 0.01, most: 0.01 }],
  ['large sites, one passage', { first: 0.01, newFirst: 0, kind: 0.01, most: 0.02 }],
  ['entries, one entry', { first: 0.01, newFirst: 0.01, kind: 0.027, most: 0.02 }],
  ['entries, five entries', { first: 0.01, newFirst: 0.01, kind: 0.037, most: 0.05 }],
  ['entries, one passage', { first: 0.016, newFirst: 0.026, kind: 0.033, most: 0.03 }],
];

test.runIf(isLocalModelFor)(
  'what is added and has to do with no question changes few replies, and never gives an answer',
  async () => {
    const log = { info: () => undefined, warn: () => undefined };
    const reader = openReader();
    onTestFinished(() => reader.close());
    const { vectors, tokens, close } = await openAll(
      { open: () => openEmbedder(localModel(modelFolder()), { log }), folder: KEPT },
      false,
    );
    onTestFinished(close);
    if (!vectors || !tokens) throw new Error('there is no model');

    const measured = await measureUnrelated({ vectors, tokens }, async (bytes, name) => {
      const page = await reader.read({ bytes, contentType: null, name, url: null });
      if ('failed' in page) throw new Error(page.message);
      return page;
    });

    expect(measured.map(({ name }) => name)).toEqual(MOST.map(([name]) => name));
    for (const [nth, { name, changes }] of measured.entries()) {
      const { first, newFirst, newAnswers, kind, most } = figuresOf(changes);
      const bound = MOST[nth]?.[1];
      expect.soft(first, `${name}: another one first`).toBeLessThanOrEqual(bound?.first ?? 0);
      expect.soft(newFirst, `${name}: the new one first`).toBeLessThanOrEqual(bound?.newFirst ?? 0);
      expect.soft(kind, `${name}: another kind of reply`).toBeLessThanOrEqual(bound?.kind ?? 0);
      expect.soft(newAnswers, `${name}: the new one given for sure`).toBe(0);
      expect.soft(most, `${name}: the confidence of 95 of 100`).toBeLessThanOrEqual(bound?.most ?? 0);
    }
  },
);
