import { afterEach, expect, test, vi } from 'vitest';
import { createBreaker } from '../../src/process/breaker.ts';
import { otherLanguageText, TEXT_LANGUAGES } from '../../workers/reply/engines/texts.ts';

afterEach(() => void vi.restoreAllMocks());

test('language names are created only for the languages that have texts, however many tags are sent', () => {
  const names = vi.spyOn(Intl, 'DisplayNames');

  for (let at = 0; at < 500; at += 1) {
    const tag = `x${at.toString(36)}`;
    otherLanguageText(tag, 'de');
    otherLanguageText(`zh-${tag}`, tag);
  }

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
