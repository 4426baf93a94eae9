import { afterEach, expect, test, vi } from 'vitest';
import { nextOpening } from '../../src/assistants/opening-hours.ts';
import { createBreaker } from '../../src/platform/process/breaker.ts';
import { otherLanguageText, TEXT_LANGUAGES } from '../../src/replies/engines/engine.ts';

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

test('the clocks of time zones that were read last are kept, however a name is spelled', () => {
  const spellings = Array.from({ length: 1_000 }, (_, nth) =>
    [...'europe/berlin'].map((letter, at) => ((nth >> at) % 2 === 0 ? letter : letter.toUpperCase())).join(''),
  );
  const week = [{ day: 1, from: '09:00', to: '17:00' }];
  const read = (timeZone = ''): unknown => nextOpening({ timeZone, week }, new Date());
  for (const spelling of new Set(spellings)) read(spelling);
  const made = vi.spyOn(Intl, 'DateTimeFormat');

  read(spellings.at(-1));
  const again = made.mock.calls.length;
  read(spellings[0]);

  expect([again, made.mock.calls.length]).toEqual([0, 1]);
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
