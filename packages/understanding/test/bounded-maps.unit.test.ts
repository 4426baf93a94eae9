import { afterEach, expect, test, vi } from 'vitest';
import { decideLanguage } from '../src/language.ts';
import { readTerms, stemmingOf } from '../src/retrieval/terms.ts';

/** Invented language tags. A caller can send any number of them. */
const strangeTags = (count: number): string[] => Array.from({ length: count }, (_, at) => `x${at.toString(36)}`);

afterEach(() => void vi.restoreAllMocks());

test('all languages without a stemmer share one, however many tags are sent', () => {
  const made = new Set(strangeTags(5_000).map(stemmingOf));

  expect(made.size).toBe(1);
});

test('languages with a stemmer keep it', () => {
  expect(new Set(['en', 'de', 'pl', 'vi', 'th'].map(stemmingOf)).size).toBe(5);
  expect(stemmingOf('en').stem('deliveries')).toBe(stemmingOf('en').stem('delivery'));
  expect(stemmingOf('pl').stopWords.has('jest')).toBe(true);
});

test('word segmenters are created only for the few languages that need them', () => {
  const segmenter = vi.spyOn(Intl, 'Segmenter');

  for (const tag of strangeTags(500)) {
    readTerms('请问几点开门', tag);
    decideLanguage({ message: 'hello', previous: tag, allowed: [tag] });
  }

  expect(segmenter.mock.calls.length).toBeLessThan(10);
});
