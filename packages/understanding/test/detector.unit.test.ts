import { createRequire } from 'node:module';
import type { detectAll as DetectAll } from 'tinyld/heavy';
import { expect, test } from 'vitest';
import { hostileTexts, MESSAGE } from '../../../test/support/hostile-texts.ts';
import { loadChatMessages } from '../eval/measure.ts';
import { detectAll } from '../src/detector.ts';
import { LEXICON } from '../src/fold.ts';

const library = createRequire(import.meta.url)('tinyld/heavy') as { detectAll: typeof DetectAll };

test.each([
  ['all languages of chats', Object.keys(LEXICON)],
  ['the languages of one assistant', ['no', 'de', 'xx', 'uk', 'da']],
])('a text is as much in each language as tinyld says, of %s', (_, only) => {
  const hostile = hostileTexts(MESSAGE, ['x']).map(([, text]) => text.slice(0, 200));
  const texts = [...loadChatMessages().map(({ message }) => message), ...hostile];

  const found = texts.map((text) => detectAll(text, only));

  const expected = texts.map((text) => library.detectAll(text, { only: [...only] }));
  expect(found).toEqual(expected.map((all) => all.map(({ lang: language, accuracy }) => ({ language, accuracy }))));
});
