import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { knowledgeFormatOf, parseKnowledge } from '../../src/assistants/knowledge/import.ts';
import { decodeText } from '../../src/platform/process/text-file.ts';

const questionsOf = (text: string, format: 'json' | 'csv' | 'markdown') =>
  parseKnowledge(format, text).entries.map(({ question, answer }) => [question, answer]);

test('a JSON array is read with all its fields', () => {
  const entry = {
    question: 'Opening hours?',
    variants: ['When are you open?'],
    answer: '9 to 5',
    language: 'en-us',
    actions: [{ label: 'Map', type: 'link', payload: '/map' }],
    tags: ['shop'],
  };

  const parsed = parseKnowledge('json', JSON.stringify([entry, { question: 'Q', answer: 'A' }]));

  expect(parsed.refused).toEqual([]);
  expect(parsed.entries).toEqual([
    { ...entry, language: 'en-US' },
    { question: 'Q', variants: [], answer: 'A', language: null, actions: [], tags: [] },
  ]);
});

test('an invalid JSON entry is refused with its first line, and the valid ones are kept', () => {
  const text = `\uFEFF[
  {"question": "One", "answer": "1"},
  {"question": "No answer"},

  {
    "question": "Bad link", "answer": "x, [y] \\" {",
    "actions": [{"label": "Go", "type": "link", "payload": "javascript:alert(1)"}]
  },
  {"question": "Broken", "answer": },
  "no object",
  {"question": "Half \\ud800", "answer": "x"},
  {"question": "Two", "answer": "2"},
]`;

  const { entries, refused } = parseKnowledge('json', text);

  expect(entries.map(({ question }) => question)).toEqual(['One', 'Two']);
  expect(refused).toEqual([
    { line: 3, reason: 'entry 2: answer is required' },
    { line: 5, reason: 'entry 3: actions.0.payload: is not an allowed link' },
    { line: 9, reason: 'entry 4: is not valid JSON' },
    { line: 10, reason: 'entry 5: must be an object with question and answer' },
    { line: 11, reason: 'entry 6: contains a character that is not well-formed Unicode' },
  ]);
});

test('a JSON file that is truncated or not an array is reported', () => {
  expect(() => parseKnowledge('json', '{"question": "Q"}')).toThrow('A field of the request is not valid.');
  expect(parseKnowledge('json', '[{"question": "Q", "answer": "A"},\n{"question": "R", "ans')).toMatchObject({
    entries: [{ question: 'Q' }],
    refused: [{ line: 2 }, { line: 2, reason: 'entry 3: the file ends before the closing ]' }],
  });
});

test('each element of any valid JSON array is read once', () => {
  fc.assert(
    fc.property(fc.array(fc.jsonValue()), fc.integer({ min: 0, max: 2 }), (elements, indent) => {
      const { entries, refused } = parseKnowledge('json', JSON.stringify(elements, null, indent));
      expect(entries.length + refused.length).toBe(elements.length);
      expect(refused.every(({ reason }) => !reason.includes('not valid JSON'))).toBe(true);
    }),
  );
});

test('CSV cells become lists, and line numbers are right after blank lines and quoted line breaks', () => {
  const text = [
    'Answer,question,variants,tags,actions,language,ignored',
    '9 to 5,"Opening',
    'hours?",When are you open?|Öffnungszeiten?,shop; hours,"Map | link | /map',
    'Call | phone | +49 1",de,x',
    '',
    ',No answer,,,,,',
    'too,many,cells,in,this,row,of,eight',
    'A,Q,"[""V1"",""V2""]",,"[{""label"":""Go"",""type"":""link"",""payload"":""/go""}]",,',
    '5" wide,Short',
    ',,,,,,',
  ].join('\r\n');

  const { entries, refused } = parseKnowledge('csv', text);

  expect(entries).toMatchObject([
    {
      question: 'Opening\nhours?',
      answer: '9 to 5',
      variants: ['When are you open?', 'Öffnungszeiten?'],
      tags: ['shop', 'hours'],
      language: 'de',
      actions: [
        { label: 'Map', type: 'link', payload: '/map' },
        { label: 'Call', type: 'phone', payload: '+49 1' },
      ],
    },
    { question: 'Q', variants: ['V1', 'V2'], actions: [{ label: 'Go', type: 'link', payload: '/go' }] },
    { question: 'Short', answer: '5" wide', language: null },
  ]);
  expect(refused).toEqual([
    { line: 6, reason: 'answer is required' },
    { line: 7, reason: 'has 8 cells under 7 headings: put cells with a separator in "quotes"' },
  ]);
});

test('an unclosed quote affects only its own row', () => {
  const text = 'question;answer\nQ1;A1\n\nQ2;"A2\nQ3;A3\nQ4;"A4\nQ5;A5\n';

  expect(parseKnowledge('csv', text)).toMatchObject({
    entries: [{ question: 'Q1' }, { question: 'Q3' }, { question: 'Q5' }],
    refused: [
      { line: 4, reason: 'has a quote that is not closed, or not doubled inside a quoted cell' },
      { line: 6, reason: 'has a quote that is not closed, or not doubled inside a quoted cell' },
    ],
  });
});

test('CSV without the required headings is refused as a whole', () => {
  expect(() => parseKnowledge('csv', 'Q1,A1\nQ2,A2')).toThrow(expect.objectContaining({ code: 'validation_failed' }));
  expect(() => parseKnowledge('csv', '')).toThrow(expect.objectContaining({ code: 'validation_failed' }));
});

test('Markdown gives a question for each heading that has text, as plain text', () => {
  const text = `# FAQ

All you *ever* wanted to know.

## Delivery

### How **long** does it take?

Two days & a bit, see [the table](https://example.com/t) or <https://example.com>.

- one
- \`two\`

### Do you ship abroad?
## Nothing here

Price
-----
5 €  
each
`;

  expect(questionsOf(text, 'markdown')).toEqual([
    [
      'How long does it take?',
      'Two days & a bit, see the table (https://example.com/t) or https://example.com.\n\n- one\n- two',
    ],
    ['Price', '5 €\neach'],
  ]);
  expect(parseKnowledge('markdown', text).refused).toEqual([
    { line: 14, reason: 'has no answer under it' },
    { line: 15, reason: 'has no answer under it' },
  ]);
  expect(questionsOf('# One\r\n\r\n1\r\n\r\n# Two\r\n\r\n2', 'markdown')).toEqual([
    ['One', '1'],
    ['Two', '2'],
  ]);
  expect(() => parseKnowledge('markdown', 'no heading')).toThrow(
    expect.objectContaining({ code: 'validation_failed' }),
  );
});

test('the format is chosen by the file name', () => {
  expect(['a.JSON', 'b.csv', 'c.tsv', 'd.md', 'e.markdown', 'f.txt', 'g'].map(knowledgeFormatOf)).toEqual([
    'json',
    'csv',
    'csv',
    'markdown',
    'markdown',
    null,
    null,
  ]);
});

test('the anchor of a heading is no part of its question', () => {
  const text = '# How do I restore? {#restore}\n\nFrom the menu.\n\n# What is {name}?\n\nA place.';

  expect(questionsOf(text, 'markdown')).toEqual([
    ['How do I restore?', 'From the menu.'],
    ['What is {name}?', 'A place.'],
  ]);
});

test.each([
  '{#id .class}',
  '{: #restore}',
  '{.unnumbered}',
  '{id="x"}',
  '{% #x %}',
  ':id=restore',
  '[#](#x)',
  '[¶](#x "Link")',
])('a heading that ends in %s has a plain question, also below a front matter', (attribute) => {
  const text = `---\ntitle: Help\n---\n\n## How? ${attribute}\n\nFrom the menu.\n\n## [Where?](#x)`;

  const { entries, refused } = parseKnowledge('markdown', text);

  expect(entries).toMatchObject([{ question: 'How?', answer: 'From the menu.' }]);
  expect(refused).toMatchObject([{ line: 9 }]);
});

test.each([
  ['sep=;\r\n', ';'],
  ['"sep=,"\r\n', ','],
  ['sep = ;;;\n', ';'],
  ['\uFEFFsep=,\n', ','],
  ['SEP=\t\n', '\t'],
])('the line %j in which Excel says the delimiter is no row', (first, delimiter) => {
  const rows = [
    ['question', 'answer'],
    ['One, or two?', '1;2'],
    ['', 'x'],
  ].map((cells) => cells.map((cell) => `"${cell}"`).join(delimiter));

  const { entries, refused } = parseKnowledge('csv', first + rows.join('\r\n'));

  expect(entries).toMatchObject([{ question: 'One, or two?', answer: '1;2' }]);
  expect(refused).toMatchObject([{ line: 4 }]);
});

const GERMAN = 'question;answer\r\nWann habt ihr geöffnet?;Täglich außer Montag, für 3 €';

test.each([
  ['UTF-8', Buffer.from(GERMAN)],
  ['UTF-8 with its mark', Buffer.from(`\uFEFF${GERMAN}`)],
  ['UTF-16', Buffer.from(`\uFEFF${GERMAN}`, 'utf16le')],
  ['UTF-16 without its mark', Buffer.from(GERMAN, 'utf16le')],
  ['UTF-16 with the high byte first', Buffer.from(`\uFEFF${GERMAN}`, 'utf16le').swap16()],
  ['Windows-1252', Buffer.from(GERMAN.replace('€', '\u0080'), 'latin1')],
])('a file in %s has its letters', (_, bytes) => {
  expect(decodeText(bytes)).toBe(GERMAN);
});

test.each([
  ['Wysyłamy w ciągu dwóch dni, także książki', 'Wysy³amy w ci¹gu dwóch dni, tak¿e ksi¹¿ki'],
  ['Kde je můj balíček, prosím, že tě žádám', 'Kde je m\u00f9j balí\u00e8ek, prosím, \u009ee t\u00ec \u009eádám'],
  ['Sipariş ücreti ne kadar, ığdır', 'Sipari\u00fe ücreti ne kadar, \u00fd\u00f0d\u00fdr'],
  ['¿cómo pago 3 m³? L´été, «oui»', '¿cómo pago 3 m³? L´été, «oui»'],
  ['Herr\u00a0Müller öffnet, Wörter\u00adbuch, B×H×T', 'Herr\u00a0Müller öffnet, Wörter\u00adbuch, B×H×T'],
])('Excel’s file with %j has its letters', (text, latin) => {
  expect(decodeText(Buffer.from(latin, 'latin1'))).toBe(text);
});

test.each([
  ['Shift_JIS', Buffer.from('8be38e9e82c98a4a82ab82dc82b78140', 'hex')],
  ['Mac Roman', Buffer.from('Was kostet f\u009fr alle Gr\u009a§e', 'latin1')],
  ['KOI8-R', Buffer.from('ôÓ×ÅÔ ÐÒÁ×ÉÌØÎÙÊ', 'latin1')],
  ['a picture', Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0, 0xff])],
])('a file in %s is refused, and says what to do', (_, bytes) => {
  expect(() => decodeText(bytes)).toThrow('save it as UTF-8');
});

test('links that repeat a long address by its reference are refused, and a few of them are read', () => {
  const address = `https://example.com/${'語'.repeat(3_900)}`;
  const fileOf = (uses: number) => `[a]: ${address}\n\n${'# q\n[a]\n'.repeat(uses)}`;

  expect(parseKnowledge('markdown', fileOf(200)).entries[199]?.answer).toBe(`a (${address})`);
  expect(() => parseKnowledge('markdown', fileOf(5_000))).toThrow(
    expect.objectContaining({ code: 'validation_failed' }) as Error,
  );
});
