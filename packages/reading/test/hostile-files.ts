import { randomBytes } from 'node:crypto';
import { deflateSync } from 'node:zlib';
import { zipSync } from 'fflate';
import type { ReadFailure, ReadInput } from '../src/reading.ts';
import { aDocx, aFile, aPage, aParagraph, aPdf, aStream, writePdf } from './files.ts';

/** A file that a stranger may send, and the ends that are right for it. */
type HostileFile = {
  name: string;
  /** Takes seconds of processor time. Every day, others of its kind are enough. */
  isLarge?: true;
  make: () => ReadInput;
  ends: readonly ('read' | ReadFailure['failed'])[];
};

const TOO_MUCH = ['too_large', 'too_slow', 'too_much_memory'] as const;
const NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"';

const docx = (bytes: Uint8Array): ReadInput => aFile(bytes, { name: 'a.docx' });
const pdf = (bytes: Uint8Array): ReadInput => aFile(bytes, { name: 'a.pdf' });
const text = (content: string | Uint8Array): ReadInput => aFile(content, { contentType: 'text/plain', name: 'a.txt' });
const markdown = (content: string): ReadInput => aFile(content, { name: 'a.md' });

/** The declared sizes of all files in an archive are made small, as a bomb does. */
const withFalseSizes = (archive: Uint8Array): Uint8Array => {
  const bytes = Buffer.from(archive);
  for (
    let at = bytes.indexOf('PK\u0001\u0002', 0, 'latin1');
    at !== -1;
    at = bytes.indexOf('PK\u0001\u0002', at + 4, 'latin1')
  )
    bytes.writeUInt32LE(100, at + 24);
  return bytes;
};

const entityBomb = (): string => {
  const entities = Array.from({ length: 10 }, (_, at) => `<!ENTITY e${at + 1} "${`&e${at};`.repeat(10)}">`).join('');
  return `<?xml version="1.0"?><!DOCTYPE w:document [<!ENTITY e0 "ha">${entities}]><w:document ${NAMESPACE}><w:body>${aParagraph('&e10;')}</w:body></w:document>`;
};

const pdfOf = (content: string, entries = ''): Uint8Array =>
  writePdf([
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Count 1 /Kids [3 0 R] >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 5 0 R >> /XObject << /X 6 0 R >> >> /Contents 4 0 R >>',
    aStream(content, entries),
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
    aStream('/X Do /X Do', '/Type /XObject /Subtype /Form /BBox [0 0 1 1] /Resources << /XObject << /X 6 0 R >> >>'),
  ]);

const encryptedPdf = (): Uint8Array => {
  const key = `<${'ab'.repeat(32)}>`;
  return writePdf(
    [
      '<< /Type /Catalog /Pages 2 0 R >>',
      '<< /Type /Pages /Count 0 /Kids [] >>',
      `<< /Filter /Standard /V 1 /R 2 /O ${key} /U ${key} /P -44 >>`,
    ],
    `/Encrypt 3 0 R /ID [<${'12'.repeat(16)}> <${'12'.repeat(16)}>]`,
  );
};

const oldOffice = (inside: string): Uint8Array =>
  Buffer.concat([
    Buffer.from([0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1]),
    Buffer.alloc(504),
    Buffer.from(inside, 'utf16le'),
  ]);

const GOOD_PDF = aPdf([[{ text: 'One good line of text.', y: 700 }]]);
const DOCX_TEXT = aParagraph('One good line of text.');
const paragraphs = (count: number): string =>
  `<p>One of very many paragraphs, each with a number: ${'x'.repeat(20)}.</p>`.repeat(count);

const HOSTILE_DOCX: readonly HostileFile[] = [
  { name: 'a zip bomb', make: () => docx(aDocx(aParagraph('a'.repeat(40_000_000)))), ends: ['too_large'] },
  {
    name: 'a zip bomb that lies about its size',
    make: () => docx(withFalseSizes(aDocx(aParagraph('a'.repeat(60_000_000))))),
    ends: ['too_much_memory', 'too_slow', 'damaged', 'too_large'],
  },
  {
    name: 'a DOCX with 30 MB of table',
    isLarge: true,
    make: () =>
      docx(
        aDocx(
          `<w:tbl>${`<w:tr>${'<w:tc><w:p><w:r><w:t>cell</w:t></w:r></w:p></w:tc>'.repeat(10)}</w:tr>`.repeat(55_000)}</w:tbl>`,
        ),
      ),
    ends: TOO_MUCH,
  },
  { name: 'an XML entity bomb', make: () => docx(aDocx(entityBomb())), ends: ['read', 'damaged', 'no_text'] },
  {
    name: 'a DOCX that reads a file of the machine',
    make: () =>
      docx(
        aDocx(
          `<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><w:document ${NAMESPACE}><w:body>${aParagraph('Secret: &x;')}</w:body></w:document>`,
        ),
      ),
    ends: ['read', 'damaged', 'no_text'],
  },
  {
    name: 'a DOCX with tables in tables, 3,000 deep',
    make: () =>
      docx(aDocx(`${'<w:tbl><w:tr><w:tc>'.repeat(3000)}${DOCX_TEXT}${'</w:tc></w:tr></w:tbl>'.repeat(3000)}`)),
    ends: ['read', 'damaged', ...TOO_MUCH],
  },
  { name: 'a truncated DOCX', make: () => docx(aDocx(DOCX_TEXT).slice(0, -200)), ends: ['damaged'] },
  {
    name: 'a DOCX with broken XML',
    make: () => docx(aDocx('<?xml version="1.0"?><w:document><w:body><w:p')),
    ends: ['damaged', 'no_text'],
  },
  { name: 'a DOCX without text', make: () => docx(aDocx('<w:p/>')), ends: ['no_text'] },
  {
    name: 'an archive of another kind',
    make: () => docx(zipSync({ 'a.txt': Buffer.from('text') })),
    ends: ['unsupported'],
  },
  {
    name: 'a spreadsheet',
    make: () => docx(zipSync({ 'xl/workbook.xml': Buffer.from('<x/>') })),
    ends: ['unsupported'],
  },
  { name: 'an encrypted DOCX', make: () => docx(oldOffice('EncryptedPackage')), ends: ['encrypted'] },
  { name: 'an old Word document', make: () => docx(oldOffice('WordDocument')), ends: ['unsupported'] },
  { name: 'a DOCX by name only', make: () => docx(Buffer.from('Just text')), ends: ['damaged'] },
];

const HOSTILE_PDFS: readonly HostileFile[] = [
  { name: 'an encrypted PDF', make: () => pdf(encryptedPdf()), ends: ['encrypted'] },
  { name: 'a truncated PDF', make: () => pdf(GOOD_PDF.slice(0, 400)), ends: ['damaged', 'no_text'] },
  { name: 'a PDF of a header alone', make: () => pdf(Buffer.from('%PDF-1.7\n')), ends: ['damaged'] },
  {
    name: 'a PDF whose pages lead back to themselves',
    make: () =>
      pdf(writePdf(['<< /Type /Catalog /Pages 2 0 R >>', '<< /Type /Pages /Count 900000000 /Kids [2 0 R 2 0 R] >>'])),
    ends: ['damaged', 'too_large', 'too_slow', 'no_text'],
  },
  {
    name: 'a PDF with a billion pages by its own word',
    make: () => pdf(writePdf(['<< /Type /Catalog /Pages 2 0 R >>', '<< /Type /Pages /Count 1000000000 /Kids [] >>'])),
    ends: ['damaged', 'too_large', 'no_text'],
  },
  {
    name: 'a PDF whose form draws itself',
    make: () => pdf(pdfOf('/X Do BT /F1 12 Tf (Text) Tj ET')),
    ends: ['read', 'damaged', 'too_slow', 'too_much_memory'],
  },
  {
    name: 'a PDF stream that unpacks to 150 MB',
    isLarge: true,
    make: () =>
      pdf(
        pdfOf(
          deflateSync(Buffer.alloc(150_000_000, 'BT (a) Tj ET '), { level: 1 }).toString('latin1'),
          '/Filter /FlateDecode',
        ),
      ),
    ends: [...TOO_MUCH, 'damaged', 'no_text'],
  },
  { name: 'a PDF of pictures alone', make: () => pdf(pdfOf('0 0 m 100 100 l S')), ends: ['no_text'] },
  {
    name: 'a PDF whose object streams are noise',
    make: () => pdf(Buffer.concat([Buffer.from('%PDF-1.7\n'), randomBytes(500_000)])),
    ends: ['damaged', 'no_text'],
  },
  { name: 'a PDF by name only', make: () => pdf(Buffer.from('Just text')), ends: ['damaged'] },
];

const HOSTILE_PAGES: readonly HostileFile[] = [
  { name: 'HTML 100,000 elements deep', make: () => aPage(`${'<div>'.repeat(100_000)}deep`), ends: ['damaged'] },
  {
    name: 'HTML with inline elements 9,000 deep',
    isLarge: true,
    make: () => aPage(`${'<b>'.repeat(9000)}deep`),
    ends: ['read'],
  },
  {
    name: 'end tags without their beginning',
    isLarge: true,
    make: () => aPage(`${'<i>'.repeat(9000)}${'</x>'.repeat(500_000)}text`),
    ends: ['read', ...TOO_MUCH],
  },
  {
    name: 'a file of 100 MB of table',
    isLarge: true,
    make: () => aPage(Buffer.alloc(100_000_000, '<tr><td>cell</td></tr>')),
    ends: ['too_large'],
  },
  {
    name: '19 MB of table',
    isLarge: true,
    make: () => aPage(`<table>${'<tr><td>cell</td><td>cell</td></tr>'.repeat(540_000)}`),
    ends: ['read', ...TOO_MUCH],
  },
  { name: 'tables in tables', make: () => aPage('<table><tr><td>a'.repeat(3000)), ends: ['read'] },
  {
    name: 'a table of cells that reach over everything',
    make: () => aPage(`<table>${'<tr><td colspan=1000000 rowspan=1000000>x</td></tr>'.repeat(2000)}</table>`),
    ends: ['read'],
  },
  {
    name: 'a huge attribute',
    isLarge: true,
    make: () => aPage(`<p class="${'nav '.repeat(2_000_000)}" title="${'x'.repeat(5_000_000)}">Text</p>`),
    ends: ['read', ...TOO_MUCH],
  },
  {
    name: 'an element of 200,000 attributes',
    isLarge: true,
    make: () => aPage(`<p ${Array.from({ length: 200_000 }, (_, at) => `a${at}=1`).join(' ')}>Text</p>`),
    ends: ['read', ...TOO_MUCH],
  },
  {
    name: 'a million links',
    isLarge: true,
    make: () => aPage(Array.from({ length: 1_000_000 }, (_, at) => `<a href=${at}>`).join('')),
    ends: ['read', ...TOO_MUCH],
  },
  {
    name: 'frames in frames of the same page',
    make: () => aPage(`<iframe src="/help/" srcdoc="<iframe src='/help/'>">${'<iframe src=".">'.repeat(1000)}`),
    ends: ['no_text'],
  },
  {
    name: 'addresses that are no places',
    make: () =>
      aPage(
        `<a href="data:text/html,<h1>x">a</a><a href="javascript:alert(1)">b</a><a href="http://[::1">c</a><a href="//user:pass@host/">d</a><a href="file:///etc/passwd">e</a>`,
      ),
    ends: ['read'],
  },
  {
    name: 'a page of scripts alone',
    make: () =>
      aPage(
        '<!doctype html><html><head><script src="app.js"></script></head><body><div id="root"></div><noscript>Please enable JavaScript.</noscript></body></html>',
      ),
    ends: ['no_text'],
  },
  {
    name: 'data for search engines without an end',
    make: () => aPage(`<script type="application/ld+json">${'['.repeat(900_000)}</script><p>Text</p>`),
    ends: ['read'],
  },
  {
    name: '100,000 questions',
    isLarge: true,
    make: () =>
      aPage(
        `<main>${Array.from({ length: 100_000 }, (_, at) => `<h2>Is it ${at}?</h2><p>Yes ${at}.</p>`).join('')}</main>`,
      ),
    ends: ['read', ...TOO_MUCH],
  },
  { name: 'open comments', make: () => aPage('<!--'.repeat(500_000)), ends: ['no_text'] },
  { name: 'half of a tag', make: () => aPage(`<p>Text</p>${'<a b="'.repeat(300_000)}`), ends: ['read'] },
  { name: 'a list 9,000 deep', make: () => aPage('<ul><li>x'.repeat(4500)), ends: ['read'] },
  { name: 'open details', make: () => aPage('<details><summary>Why?</summary>x'.repeat(3000)), ends: ['read'] },
  {
    name: 'many terms',
    isLarge: true,
    make: () => aPage(`<dl>${'<dt>x'.repeat(200_000)}</dl>`),
    ends: ['read', ...TOO_MUCH],
  },
  {
    name: 'more text than fits',
    isLarge: true,
    make: () => aPage(`<main>${paragraphs(200_000)}</main>`),
    ends: ['read', ...TOO_MUCH],
  },
  {
    name: 'SVG',
    make: () =>
      aFile(
        `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><text>No text</text></svg>`,
        { contentType: 'image/svg+xml' },
      ),
    ends: ['unsupported'],
  },
];

const HOSTILE_TEXTS: readonly HostileFile[] = [
  { name: 'an empty file', make: () => text(''), ends: ['no_text'] },
  { name: 'only whitespace', make: () => text(' \n\t\u00a0\u3000\u200b\r\n'.repeat(100_000)), ends: ['no_text'] },
  { name: 'null bytes', make: () => text(Buffer.alloc(100_000)), ends: ['damaged', 'no_text', 'unsupported'] },
  { name: 'a null byte in a text', make: () => text('One\0 good line of text.'), ends: ['read'] },
  { name: 'noise', make: () => text(randomBytes(200_000)), ends: ['damaged', 'unsupported'] },
  {
    name: 'invalid UTF-8',
    make: () =>
      text(
        Buffer.concat([
          Buffer.from('Some text '.repeat(20)),
          Buffer.from([0xff, 0xfe, 0xc0, 0xaf, 0xed, 0xa0, 0x80]),
          Buffer.from(' and more.'),
        ]),
      ),
    ends: ['read'],
  },
  {
    name: 'UTF-16 with half letters',
    make: () =>
      text(
        Buffer.concat([
          Buffer.from([0xff, 0xfe]),
          Buffer.from('Half \ud800 letters \udc00 and an odd byte', 'utf16le'),
          Buffer.from([0x41]),
        ]),
      ),
    ends: ['read'],
  },
  {
    name: 'an unknown charset',
    make: () => aFile('Text as usual.', { contentType: 'text/plain; charset=x-klingon' }),
    ends: ['read'],
  },
  { name: 'one line of 20 MB', isLarge: true, make: () => text('word '.repeat(3_999_999)), ends: TOO_MUCH },
  { name: 'one word of 5 MB', isLarge: true, make: () => text('x'.repeat(5_000_000)), ends: ['read', ...TOO_MUCH] },
  {
    name: 'sentences that hold each other open',
    make: () => text('. 1 (a) '.repeat(100_000)),
    ends: ['read', ...TOO_MUCH],
  },
  { name: 'letters with a thousand marks', make: () => text(`a${'\u0301'.repeat(1000)} `.repeat(300)), ends: ['read'] },
  {
    name: 'letters that run backwards',
    make: () => text(`\u202eevil\u202c نص عربي طويل עברית ${'\u2067x\u2069'.repeat(1000)}`),
    ends: ['read'],
  },
  { name: 'emoji', make: () => text('👩‍👩‍👧‍👦'.repeat(2000)), ends: ['read', 'no_text'] },
  {
    name: 'Markdown with open brackets',
    make: () => markdown('['.repeat(100_000)),
    ends: ['read', 'too_slow', 'no_text'],
  },
  {
    name: 'Markdown with open stars',
    isLarge: true,
    make: () => markdown('*a **a '.repeat(50_000)),
    ends: ['read', ...TOO_MUCH],
  },
  { name: 'Markdown with open quotes', make: () => markdown(`${'>'.repeat(50_000)} a`), ends: ['no_text'] },
  { name: 'Markdown links in links', isLarge: true, make: () => markdown('[a]('.repeat(50_000)), ends: ['no_text'] },
  {
    name: 'Markdown with a false front',
    make: () => markdown(`---\ntitle: ${'x'.repeat(100_000)}\n${'a: b\n'.repeat(50_000)}`),
    ends: ['read'],
  },
  {
    name: 'a picture',
    make: () => aFile(Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), randomBytes(1000)]), { name: 'a.md' }),
    ends: ['unsupported'],
  },
  {
    name: 'a program',
    make: () => aFile(Buffer.concat([Buffer.from('7f454c46', 'hex'), randomBytes(1000)])),
    ends: ['unsupported'],
  },
  { name: 'JSON', make: () => aFile('{"a":1}', { contentType: 'application/json' }), ends: ['unsupported'] },
];

export const HOSTILE: readonly HostileFile[] = [...HOSTILE_TEXTS, ...HOSTILE_PAGES, ...HOSTILE_PDFS, ...HOSTILE_DOCX];
