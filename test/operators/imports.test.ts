import { expect, test } from 'vitest';
import { parseKnowledge } from '../../src/assistants/knowledge/import.ts';
import { indexEntries } from '@parley/understanding';
import { anEntry } from '../support/builders.ts';
import { hostileTexts, shortest } from '../support/hostile-texts.ts';
import { sized } from '../support/size.ts';

/** A file of 64 kB would take minutes if the time were quadratic. */
const SIZE = sized({ everyday: 16, long: 64 }) * 1024;
const MOST_MS = sized({ everyday: 400, long: 1_500 });

const MARKDOWN = [
  ['[](', '[', '![', '](', '[a](', '[a][', '[a](<b', '[a](b "', '[a]', '[a]: ', '[a]:b\n', '![a](', '(', ']', '('],
  ['*', '*a', '*a_', '**a ', '_a ', 'a**b', '*a**b***', '*_~`[', '~~a ', '`', '`a``', '\\', '&', '&a', '&#1;'],
  ['<', '<a ', '<a href="', '<!--', '<![CDATA[', '<?', '<!A', '<<', 'http://', 'www.', 'a@', '|', '|a', '|-\n|a\n'],
  ['>', '> ', '>\n', '- ', '-\n', '1. ', '* a\n ', '# a\n', 'a\n=', 'a  \n', '\n', ' ', '\t', '>\t', '\0', '\r'],
].flat();
const CSV = ['"', '"",', '"a"b,', ',', '\n', 'a,"b\n', 'a,b"c\n', 'a|"b\n', ';', '\r', ' ', '|'];
const JSON_PIECES = ['[', ',', '{},', '"', '\\', '\n', '{"a":', 'x,', '  x,', ' ', '{"question":"a","answer":"b"},'];

const filesOf = (format: 'markdown' | 'csv' | 'json', beginning: string, pieces: string[]) =>
  pieces.map((piece) => ({ format, piece, text: beginning + piece.repeat(SIZE / piece.length) + 'x' }));

test.each([
  ...filesOf('markdown', '# Question\n\n', MARKDOWN),
  ...filesOf('csv', 'question,answer\n', CSV),
  ...filesOf('json', '[', JSON_PIECES),
])('a $format file of $piece is read quickly', ({ format, text }) => {
  // An eighth of the file is parsed first, because a parser that is not linear would not finish the whole file.
  expect(shortest(() => parseKnowledge(format, text.slice(0, SIZE / 8)), MOST_MS / 4, 2)).toBeLessThan(MOST_MS / 4);
  expect(shortest(() => parseKnowledge(format, text), MOST_MS, 3)).toBeLessThan(MOST_MS);
});

test('a file of bad rows is read until it has too many', () => {
  const { refused } = parseKnowledge('json', `[${'{},'.repeat(5_000)}{}]`);

  expect(refused).toHaveLength(1_001);
  expect(refused.at(-1)).toEqual({ line: 1, reason: 'not read, nor what follows: too many rows were refused' });
});

test.each(hostileTexts(4_000, ['x']))('an assistant whose entries are full of %s is indexed quickly', (_, text) => {
  const [entries, mostMs] = sized({ everyday: [4, 100], long: [20, 400] });
  const knowledge = Array.from({ length: entries }, (__, at) => ({
    ...anEntry({ question: text.slice(0, 500), answer: text, language: 'de' }),
    entryId: String(at),
  }));

  const took = shortest(() => indexEntries({ knowledge, languages: ['de'] }), mostMs, 3);

  expect(took).toBeLessThanOrEqual(mostMs);
});
