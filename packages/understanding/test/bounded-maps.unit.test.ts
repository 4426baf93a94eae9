import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, test, vi } from 'vitest';
import { decideLanguage } from '../src/language.ts';
import { PartReader } from '../src/retrieval/passage-parts.ts';
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

/** The memory in use, after what nothing holds was collected. */
const heapBytes = (): number => {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().heapUsed;
};

test('the words that a reader of passages remembers are few, however many languages its passages have', () => {
  const languages = Array.from({ length: 64 }, (_, at) => `x${at.toString(36)}`);
  const texts = Array.from({ length: 10 }, (_, nth) =>
    Array.from({ length: 450 }, (_, at) => `${(nth * 450 + at).toString(36)}words`).join(' '),
  );
  const reader = new PartReader();
  const read = (language: string, number: number): void => {
    for (const [nth, text] of texts.entries())
      reader.add(
        { passageId: `${language} ${nth}`, title: '', path: [], text, language, vector: null },
        language,
        number,
      );
  };
  read('en', 0); // the index has all words now
  const before = heapBytes();

  for (const [number, language] of languages.entries()) read(language, number);

  // All the words of all languages would take 30 MB. The index and 20,000 words take 4 MB.
  expect(heapBytes() - before).toBeLessThan(12_000_000);
  expect(reader.size).toBe(650);
});
