import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { isLocalModelFor, modelFolder } from '../../../test/kit/semantic.ts';
import { createTokenizer, filesIn, openWeights } from '../src/embedder/model-files.ts';

/**
 * Texts and their ids. They were recorded when this tokenizer gave as many tokens as the model's own engine for each of
 * 11,264 texts in 109 scripts.
 */
const recorded = readFileSync(join(import.meta.dirname, 'token-ids.tsv'), 'utf8')
  .split('\n')
  .filter(Boolean)
  .map((line) => {
    const [text = '', ids = ''] = line.split('\t');
    return { text: JSON.parse(text) as string, ids: ids.split(' ').map(Number) };
  });

const openTokenizer = () => {
  const weights = openWeights(filesIn(modelFolder()).weights);
  onTestFinished(weights.close);
  return createTokenizer(weights);
};

test.runIf(isLocalModelFor)('texts of many scripts have the recorded tokens', () => {
  const tokensOf = openTokenizer();

  expect(recorded).toHaveLength(60);
  expect(recorded.map(({ text }) => ({ text, ids: tokensOf(text) }))).toEqual(recorded);
});

test.runIf(isLocalModelFor)('a text has at most as many tokens as the model has positions, with both marks', () => {
  const ids = openTokenizer()('word '.repeat(2_000));

  expect(ids).toHaveLength(512);
  expect([ids[0], ids.at(-1)]).toEqual([0, 2]);
});
