import { createRequire } from 'node:module';
import type { detectAll as DetectAll } from 'tinyld/heavy';
import { afterEach, expect, test, vi } from 'vitest';
import { hostileTexts, MESSAGE } from '../../../test/support/hostile-texts.ts';
import { loadChatMessages } from '../eval/measure.ts';
import { detectAll } from '../src/detector.ts';
import { LEXICON } from '../src/fold.ts';

const library = createRequire(import.meta.url)('tinyld/heavy') as { detectAll: typeof DetectAll };

/** Letters of Latin that few languages write. They have no accents, and a text of them has hardly any known gram. */
const RARE_LETTERS = Array.from({ length: 96 }, (_, at) => String.fromCodePoint(0x250 + at));
const EVERYDAY_LETTERS = [...'abcdefghijklmnopqrstuvwxyz '];

/** A text of 200 letters, another for each number. */
const mixed = (letters: readonly string[], nth: number): string => {
  let state = nth;
  return Array.from({ length: 200 }, () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return letters[Math.floor((state / 2 ** 32) * letters.length)];
  }).join('');
};

afterEach(() => void vi.restoreAllMocks());

test.each([
  ['all languages of chats', Object.keys(LEXICON)],
  ['the languages of one assistant', ['no', 'de', 'xx', 'uk', 'da']],
])('a text is as much in each language as tinyld says, of %s', (_, only) => {
  const hostile = hostileTexts(MESSAGE, ['x']).map(([, text]) => text.slice(0, 200));
  const random = [1, 2, 3].flatMap((nth) => [mixed(RARE_LETTERS, nth), mixed(EVERYDAY_LETTERS, nth)]);
  const texts = [...loadChatMessages().map(({ message }) => message), ...hostile, ...random];

  const found = texts.map((text) => detectAll(text, only));

  const expected = texts.map((text) => library.detectAll(text, { only: [...only] }));
  expect(found).toEqual(expected.map((all) => all.map(({ lang: language, accuracy }) => ({ language, accuracy }))));
});

test('no string is made for the steps of a search, however many grams of a text are new', () => {
  const text = mixed(RARE_LETTERS, 4);
  detectAll('hello', ['en']); // reads the tables
  const sliced = vi.spyOn(String.prototype, 'slice');

  detectAll(text, ['en', 'de']);

  // Each of about a thousand grams is cut from the text twice: for the unique grams, and for those of several languages.
  expect(sliced.mock.calls.length).toBeLessThan(20 * text.length);
});
