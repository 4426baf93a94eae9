import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { unzipSync, zipSync } from 'fflate';
import { afterAll, expect, test } from 'vitest';
import { openReader } from '@parley/reading';
import { aDocx, aFile, aParagraph, aPdf, aStream, type PdfLine, writePdf } from './files.ts';

const reader = openReader();
afterAll(() => reader.close());

const read = async (bytes: Uint8Array, name = 'a.docx'): Promise<string> => {
  const page = await reader.read(aFile(bytes, { name }));
  return 'failed' in page ? page.failed : page.passages.map(({ path, text }) => [...path, text].join('\n')).join('\n');
};
/** What is read of a DOCX with this body, without its title. */
const textOf = async (body: string, more: Record<string, string> = {}): Promise<string> =>
  (await read(aDocx(body, more))).replace(/^a\n/, '');

const W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"';
const run = (text: string, properties = ''): string =>
  `<w:r>${properties && `<w:rPr>${properties}</w:rPr>`}<w:t xml:space="preserve">${text}</w:t></w:r>`;
const paragraph = (runs: string, properties = ''): string => `<w:p><w:pPr>${properties}</w:pPr>${runs}</w:p>`;

test.each([
  ['a field', `${run('It costs ')}<w:fldSimple w:instr="X">${run('735 euros')}</w:fldSimple>${run('.')}`],
  ['writing in another direction', `${run('It costs ')}<w:dir w:val="ltr">${run('735')}</w:dir>${run(' euros.')}`],
  ['an embedded direction', `${run('It costs ')}<w:bdo w:val="ltr">${run('735 ')}</w:bdo>${run('euros.')}`],
  ['a tag of a program', `${run('It costs ')}<w:customXml w:element="p">${run('735 euros')}</w:customXml>${run('.')}`],
  ['a tag that Word knows', `<w:smartTag w:element="p">${run('It costs 735 euros')}</w:smartTag>${run('.')}`],
  ['inserted text', `${run('It costs ')}<w:ins w:id="1">${run('735 euros')}</w:ins>${run('.')}`],
  ['moved text', `<w:moveTo w:id="1">${run('It costs 735 euros')}</w:moveTo>${run('.')}`],
  ['a control', `<w:sdt><w:sdtContent>${run('It costs 735 euros.')}</w:sdtContent></w:sdt>`],
])('%s is read', async (_, body) => {
  expect(await textOf(`<w:p>${body}</w:p>`)).toBe('It costs 735 euros.');
});

test('signs of lines and tabs that are seldom used part words', async () => {
  expect(
    await textOf(`<w:p>${run('Monday')}<w:r><w:cr/></w:r>${run('Ten')}<w:r><w:ptab/></w:r>${run('Six')}</w:p>`),
  ).toBe('Monday\nTen Six');
});

test('a table of contents is no text', async () => {
  const style = (id: string, name: string) =>
    `<w:style w:type="paragraph" w:styleId="${id}"><w:name w:val="${name}"/></w:style>`;
  const styles = `<w:styles ${W}>${style('Inhalt', 'TOC Heading')}${style('Verzeichnis1', 'toc 1')}${style('Heading1', 'heading 1')}</w:styles>`;
  const field = (type: string) => `<w:r><w:fldChar w:fldCharType="${type}"/></w:r>`;
  const listed = paragraph(
    `${field('begin')}<w:r><w:instrText>TOC</w:instrText></w:r>${field('separate')}${run('How do I pay?')}<w:r><w:tab/></w:r>${run('3')}`,
    '<w:pStyle w:val="Verzeichnis1"/>',
  );

  expect(
    await textOf(
      `${aParagraph('Contents', 'Inhalt')}${listed}<w:p>${field('end')}</w:p>${aParagraph('How do I pay?', 'Heading1')}${aParagraph('By card.')}`,
      { 'word/styles.xml': styles },
    ),
  ).toBe('How do I pay?\nBy card.');
});

test('the base of a ruby is read, and not how it is spoken', async () => {
  const ruby = (base: string, spoken: string) =>
    `<w:r><w:ruby><w:rubyPr/><w:rt>${run(spoken)}</w:rt><w:rubyBase>${run(base)}</w:rubyBase></w:ruby></w:r>`;

  expect(await textOf(`<w:p>${run('貸出期間は')}${ruby('二週間', 'にしゅうかん')}${run('です')}</w:p>`)).toBe(
    '貸出期間は二週間です',
  );
});

test('a formula is read in one line', async () => {
  const part = (name: string, text: string) => `<m:${name}><m:r><m:t>${text}</m:t></m:r></m:${name}>`;
  const formula = `<m:oMath><m:f>${part('num', 'a')}${part('den', '2')}</m:f><m:sSup>${part('e', 'x')}${part('sup', '3')}</m:sSup></m:oMath>`;

  expect(await textOf(`<w:p>${run('It is ')}${formula}${run('.')}</w:p>`)).toBe('It is a/2x^3.');
});

const HIDDEN_STYLES = `<w:styles xmlns:w="w"><w:style w:type="character" w:styleId="Secret"><w:rPr><w:vanish/></w:rPr></w:style>
  <w:style w:type="paragraph" w:styleId="Notes"><w:rPr><w:vanish/></w:rPr></w:style>
  <w:style w:type="paragraph" w:styleId="MoreNotes"><w:basedOn w:val="Notes"/></w:style>
  <w:style w:type="paragraph" w:styleId="Shown"><w:basedOn w:val="Notes"/><w:rPr><w:vanish w:val="0"/></w:rPr></w:style></w:styles>`;

test.each([
  ['a run', `<w:p>${run('Free. ')}${run('Soon 15 euros.', '<w:vanish/>')}</w:p>`],
  ['a style', `<w:p>${run('Free. ')}${run('Soon 15 euros.', '<w:rStyle w:val="Secret"/>')}</w:p>`],
  ['a paragraph', `${paragraph(run('Free.'))}${paragraph(run('Soon 15 euros.'), '<w:pStyle w:val="Notes"/>')}`],
  ['what it is based on', `${paragraph(run('Free.'))}${paragraph(run('Soon.'), '<w:pStyle w:val="MoreNotes"/>')}`],
])('text that Word hides by %s is not read', async (_, body) => {
  expect(await textOf(body, { 'word/styles.xml': HIDDEN_STYLES })).toBe('Free.');
});

test.each([
  ['a run', run('Free.', '<w:rStyle w:val="Secret"/><w:vanish w:val="false"/>'), 'Notes'],
  ['a style', run('Free.'), 'Shown'],
])('text that %s shows again is read', async (_, runs, style) => {
  const body = paragraph(runs, `<w:pStyle w:val="${style}"/><w:rPr><w:vanish/></w:rPr>`);

  expect(await textOf(body, { 'word/styles.xml': HIDDEN_STYLES })).toBe('Free.');
});

const level = (nth: number, format: string, text: string, more = '') =>
  `<w:lvl w:ilvl="${nth}"><w:start w:val="1"/><w:numFmt w:val="${format}"/><w:lvlText w:val="${text}"/>${more}</w:lvl>`;
const NUMBERING = `<w:numbering xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:abstractNum w:abstractNumId="0">${level(0, 'decimal', '%1.')}${level(1, 'decimal', '%1.%2')}
  ${level(2, 'lowerLetter', '(%3)')}</w:abstractNum><w:abstractNum w:abstractNumId="1">${level(0, 'upperRoman', '§ %1')}</w:abstractNum>
  <w:abstractNum w:abstractNumId="2">${level(0, 'bullet', '•')}</w:abstractNum>
  <w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>
  <w:num w:numId="3"><w:abstractNumId w:val="2"/></w:num>
  <w:num w:numId="4"><w:abstractNumId w:val="1"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="9"/></w:lvlOverride></w:num></w:numbering>`;
const RELATED = ['styles', 'numbering'].map(
  (name) =>
    `<Relationship Id="${name}" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/${name}" Target="${name}.xml"/>`,
);
const WITH_NUMBERS = {
  'word/numbering.xml': NUMBERING,
  'word/_rels/document.xml.rels': `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">${RELATED.join('')}</Relationships>`,
};
const numbered = (text: string, nth: number, list = 1, more = '') =>
  paragraph(run(text), `${more}<w:numPr><w:ilvl w:val="${nth}"/><w:numId w:val="${list}"/></w:numPr>`);

test('the numbers that Word makes are part of headings and items', async () => {
  const heading = (text: string, nth: number) => numbered(text, nth, 1, `<w:pStyle w:val="Heading${nth + 1}"/>`);
  const text = await textOf(
    [
      heading('Scope', 0),
      aParagraph('Boats.'),
      heading('Liability', 0),
      heading('Storm', 1),
      aParagraph('Ropes only.'),
      heading('Theft', 1),
      numbered('motors', 2),
      aParagraph('And also'),
      numbered('sails', 2),
    ].join(''),
    WITH_NUMBERS,
  );

  expect(text.split('\n')).toEqual(
    expect.arrayContaining(['1. Scope', 'Boats.', '2. Liability › 2.1 Storm', '2. Liability › 2.2 Theft']),
  );
  expect(text).toContain('(a) motors\nAnd also\n(b) sails');
});

test('lists count on after other text, begin where they say, and bullets stay bullets', async () => {
  const items = [numbered('one', 0, 2), aParagraph('Then'), numbered('two', 0, 2), numbered('nine', 0, 4)];
  const points = [numbered('a point', 0, 3), numbered('first', 0), numbered('second', 0)];

  expect(await textOf([...items, ...points].join(''), WITH_NUMBERS)).toBe(
    '§ I one\nThen\n§ II two\n§ IX nine\n- a point\n1) first\n2) second',
  );
});

const included = (target: string) => ({
  'word/_rels/document.xml.rels': `<Relationships><Relationship Id="c" Type="http://x/aFChunk" Target="${target}"/></Relationships>`,
});
const CHUNK = '<w:altChunk xmlns:r="r" r:id="c"/>';

test.each([
  ['HTML', 'part.html', '<html><head><title>T</title></head><body class="x"><p>It costs 7 euros.</p></body></html>'],
  ['text', '/word/part.txt', 'It costs 7 euros.'],
])('an included file of %s is read', async (_, target, content) => {
  const files = { ...included(target), [`word/part.${target.split('.')[1]}`]: content };

  expect(await textOf(`${aParagraph('Ferry.')}${CHUNK}`, files)).toBe('Ferry.\nIt costs 7 euros.');
});

test('an included DOCX is read, what it includes is not, and what cannot be read is said', async () => {
  const inner = aDocx(`${aParagraph('It costs 7 euros.')}${CHUNK}`, { ...included('x.html'), 'word/x.html': 'No.' });
  const outer = unzipSync(aDocx(CHUNK, included('part.docx')));

  expect(await read(zipSync({ ...outer, 'word/part.docx': inner }))).toBe('a\nIt costs 7 euros.');
  expect(await reader.read(aFile(aDocx(CHUNK, included('part.rtf')), { name: 'a.docx' }))).toMatchObject({
    failed: 'no_text',
    message: expect.stringContaining('a file that it includes'),
  });
});

test('a document that includes what cannot be read is read, and says what it lacks', async () => {
  const outer = aDocx(`${aParagraph('Ferry.')}${CHUNK}`, included('part.rtf'));

  expect(await reader.read(aFile(outer, { name: 'a.docx' }))).toMatchObject({
    passages: [{ text: 'Ferry.' }],
    lacks: expect.stringContaining('a file that it includes'),
  });
});

test.each([
  ['words without spaces', 'words-without-spaces', 'כניסה חינם לילדים עד גיל שש בלבד.'],
  [
    'words that are drawn from the left',
    'words-drawn-from-the-left',
    'כרטיס כניסה לבריכה עולה 38 שקלים למבוגר וילדים מתחת לגיל 6 נכנסים חינם לבריכה.',
  ],
])('a PDF from right to left with %s is read in its order', async (_, name, text) => {
  const bytes = readFileSync(join(import.meta.dirname, 'pdf', `${name}.pdf`));

  expect(await read(bytes, 'a.pdf')).toContain(text);
});

const TEXTS = ['one', 'two', 'three', 'four'].map((number) => `This is page ${number}.`);
const atFoot = (texts: string[]): PdfLine[] => texts.map((text, at) => ({ text, size: 7, y: 70 - at * 10 }));

test.each([
  ['two pages', 2, (number: number) => [{ text: 'Acme handbook', y: 810 }, ...atFoot([`Page ${number}`])]],
  [
    'an address of four lines',
    4,
    (number: number) => [
      ...['Acme handbook', 'Rules of 2026', 'Version 3'].map((text, at) => ({ text, size: 8, y: 820 - at * 10 })),
      ...atFoot(['Acme, Main Street 1', 'Phone 030 123456', 'Court of Berlin HRB 1234', 'Bank DE12 3456', `${number}`]),
    ],
  ],
])('running titles of %s are no text of a PDF', async (_, count, edges) => {
  const pages = TEXTS.slice(0, count).map((text, at) => [...edges(at + 1), { text, y: 700 }]);

  expect(await read(aPdf(pages), 'a.pdf')).toBe(`a\n${TEXTS.slice(0, count).join('\n')}`);
});

test('headings with numbers on two pages are no running titles', async () => {
  const pages = [1, 2].map((number) => [
    { text: `Part ${number}`, size: 16, y: 780 },
    { text: `${TEXTS[number]}`, y: 700 },
  ]);

  expect(await read(aPdf(pages), 'a.pdf')).toContain('Part 1');
});

/** A page of a PDF. Each text is drawn with this matrix. */
const drawn = (texts: [matrix: string, text: string, size?: number][], entries = ''): Uint8Array =>
  writePdf([
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Count 1 /Kids [4 0 R] >>',
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>',
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] ${entries} /Resources << /Font << /F1 3 0 R >> >> /Contents 5 0 R >>`,
    aStream(texts.map(([matrix, text, size = 11]) => `BT /F1 ${size} Tf ${matrix} Tm (${text}) Tj ET`).join('\n')),
  ]);

test.each([
  ['on its side', '0 1 -1 0 100 72', '0 1 -1 0 114 72', '0 1 -1 0 114 300', '/Rotate 90'],
  ['on its other side', '0 -1 1 0 100 700', '0 -1 1 0 86 700', '0 -1 1 0 86 450', '/Rotate 270'],
  ['upside down', '-1 0 0 -1 500 100', '-1 0 0 -1 500 114', '-1 0 0 -1 250 114', '/Rotate 180'],
])('a page of a PDF that lies %s is read in lines', async (_, first, second, third, entries) => {
  const bytes = drawn(
    [
      [first, 'Rooms cost more in May.'],
      [second, 'Garden'],
      [third, '40 euros'],
    ],
    entries,
  );

  expect(await read(bytes, 'a.pdf')).toBe('a\nRooms cost more in May.\nGarden | 40 euros');
});

test('a stamp across a page is no heading, and text that is drawn twice is read once', async () => {
  const bytes = drawn([
    ['.7 .7 -.7 .7 100 300', 'DRAFT', 60],
    ['1 0 0 1 72 700', 'Opening hours'],
    ['1 0 0 1 72.3 700', 'Opening hours'],
  ]);

  expect(await read(bytes, 'a.pdf')).toBe('a\nOpening hours');
});
