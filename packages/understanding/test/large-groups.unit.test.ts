import { expect, test } from 'vitest';
import { workedMs } from '../../../test/support/loop.ts';
import { atPace } from '../../../test/support/pace.ts';
import { indexEntries } from '../src/retrieval/knowledge-index.ts';
import { searchGroup, searchLexical } from '../src/retrieval/search.ts';

const COMMON = Array.from(
  { length: 32 },
  (_, nth) => `commonword${String.fromCharCode(97 + (nth % 26), 97 + (nth >> 2))}`,
);
const ENTRIES = 10_000;
const rareWord = (nth: number): string =>
  `q${String(nth).replaceAll(/\d/g, (digit) => String.fromCharCode(107 + Number(digit)))}q`;

const group = (() => {
  const knowledge = Array.from({ length: ENTRIES }, (_, nth) => ({
    entryId: `e${nth}`,
    language: 'en',
    question: `${rareWord(nth)} ${COMMON.join(' ')}`,
    variants: [],
    answer: COMMON.join(' '),
    tags: [],
  }));
  return indexEntries({ knowledge, languages: ['en'] }).groups[0]!;
})();

const timeOf = (message: string): number => {
  const since = workedMs();
  searchGroup(message, group, 'en');
  return workedMs() - since;
};

test('a message whose words all entries have is searched in a short step', () => {
  const message = `${COMMON.join(' ')} please`;
  timeOf(message);

  const times = Array.from({ length: 5 }, () => timeOf(message));

  expect(Math.min(...times)).toBeLessThan(atPace(10));
});

test('a rare word among words that all entries have still finds its entry', () => {
  const { candidates } = searchGroup(`${COMMON.slice(0, 10).join(' ')} ${rareWord(77)} please`, group, 'en');

  expect(candidates[0]?.entry).toBe(77);
});

test('entries in thousands of invented languages are searched in a short step', () => {
  const letters = (nth: number): string => String.fromCharCode(97 + (nth % 20), 97 + ((nth / 20) % 20), 97 + nth / 400);
  const knowledge = Array.from({ length: 8_000 }, (_, nth) => ({
    entryId: `e${nth}`,
    language: letters(nth),
    question: `${rareWord(nth)} place`,
    variants: [],
    answer: 'Here.',
    tags: [],
  }));
  const index = indexEntries({ knowledge, languages: ['en'] });
  const timed = (): number => {
    const since = workedMs();
    searchLexical(`where is the ${rareWord(77)} place`, index, 'en', 1);
    return workedMs() - since;
  };
  timed();

  expect(index.groups.length).toBeLessThan(100);
  expect(Math.min(...Array.from({ length: 5 }, timed))).toBeLessThan(atPace(20));
  expect(searchLexical(`${rareWord(77)} place`, index, 'en', 1)[0]?.entry.entryId).toBe('e77');
});
