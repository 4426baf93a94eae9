import { expect, test } from 'vitest';
import { hostileTexts, MESSAGE, slowOf } from '../../../test/support/hostile-texts.ts';
import { sized } from '../../../test/support/size.ts';
import { readable } from '../src/embedder/embedding.ts';
import { fold, withoutPiledMarks } from '../src/fold.ts';
import { decideLanguage } from '../src/language.ts';
import {
  asksForHuman,
  asksWhoThisIs,
  findContactDetails,
  askedBesideContactDetails,
  withoutContactDetails,
} from '../src/retrieval/human-request.ts';
import { readTerms } from '../src/retrieval/terms.ts';
import { readSmallTalk } from '../src/understanding.ts';

/** Every day one with a stemmer, one without, and two whose words are not separated by spaces. */
const LANGUAGES = sized({
  everyday: 'en vi th zh',
  long: 'ar bg da de el en es fi fr hi hr hu hy id it ko lt nl no pl pt ro ru sr sv ta th tr uk vi zh',
}).split(' ');

const messages = hostileTexts(MESSAGE, ...sized<[ends?: string[]]>({ everyday: [['x']], long: [] }));

test.each<[string, (message: string) => unknown]>([
  ['the language', (message) => decideLanguage({ message, allowed: ['de', 'en', 'uk'] })],
  ['the folded text', fold],
  ['contact details', findContactDetails],
  ['what else is said', withoutContactDetails],
  ['what else is asked', askedBesideContactDetails],
  ['a request for a person', asksForHuman],
  ['who this is', asksWhoThisIs],
  ['small talk', (message) => readSmallTalk(message, 'en')],
])('%s is read from any message quickly', (_, read) => {
  expect(slowOf(read, messages)).toEqual([]);
});

test('no character makes a long run of marks when its text is normalized', () => {
  const piling: string[] = [];
  for (let code = 0; code <= 0x10_ffff; code += 1) {
    const character = String.fromCodePoint(code);
    // Normalizing sorts marks by their class, and this one has the highest.
    const isMark = character === '\u0345' || `a\u0345${character}`.normalize('NFKD')[1] !== '\u0345';
    if (isMark && withoutPiledMarks(character.repeat(50)).length > 20 * character.length)
      piling.push(code.toString(16));
  }

  expect(piling).toEqual([]);
});

test('a text is embedded with few marks on each letter, so that normalizing it is quick', () => {
  expect(readable(`x${'\u0315\u0300'.repeat(500)} y`).length).toBeLessThan(25);
});

test.each(LANGUAGES)('the topic of a message is read quickly in "%s"', (language) => {
  const texts = [
    ...hostileTexts(MESSAGE, ['x']),
    ...hostileTexts(MESSAGE, ['']).map(([name, text]): [string, string] => [name, text.replaceAll(' ', '')]),
  ];

  const read = (message: string): void => {
    readTerms('', language); // the pieces of the last text are kept
    readTerms(message, language);
  };
  expect(slowOf(read, texts)).toEqual([]);
});
