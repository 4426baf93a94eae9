import { afterEach, expect, test, vi } from 'vitest';
import { decideLanguage } from '@parley/understanding/text';
import { createBreaker } from '../../src/process/breaker.ts';
import { readTerms, stemmingOf } from '@parley/understanding';
import { otherLanguageText, TEXT_LANGUAGES } from '../../workers/reply/engines/texts.ts';

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

test('word segmenters and language names are created only for the few languages that need them', () => {
  const segmenter = vi.spyOn(Intl, 'Segmenter');
  const names = vi.spyOn(Intl, 'DisplayNames');

  for (const tag of strangeTags(500)) {
    readTerms('请问几点开门', tag);
    otherLanguageText(tag, 'de');
    otherLanguageText(`zh-${tag}`, tag);
    decideLanguage({ message: 'hello', previous: tag, allowed: [tag] });
  }

  expect(segmenter.mock.calls.length).toBeLessThan(10);
  expect(names.mock.calls.length).toBeLessThanOrEqual(TEXT_LANGUAGES.length);
});

test('a circuit breaker remembers only the keys that failed last', () => {
  const breaker = createBreaker();
  const fail = (address: string): void => {
    for (let failures = 0; failures < 5; failures += 1) breaker.failed(address);
  };
  fail('https://first.example');
  expect(breaker.tryAcquire('https://first.example')).toBe(false);

  for (let at = 0; at < 10_000; at += 1) fail(`https://${at}.example`);

  expect(breaker.tryAcquire('https://first.example')).toBe(true);
  expect(breaker.tryAcquire('https://9999.example')).toBe(false);
  expect(breaker.suspended()).toHaveLength(10_000);
});
