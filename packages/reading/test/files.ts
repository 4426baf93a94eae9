import { strToU8, zipSync } from 'fflate';
import type { ReadInput } from '../src/reading.ts';

// Builds the files that the tests read.

export const aFile = (content: string | Uint8Array, overrides: Partial<ReadInput> = {}): ReadInput => ({
  bytes: typeof content === 'string' ? Buffer.from(content) : content,
  contentType: null,
  name: '',
  url: null,
  ...overrides,
});

export const aPage = (html: string | Uint8Array, overrides: Partial<ReadInput> = {}): ReadInput =>
  aFile(html, { contentType: 'text/html; charset=utf-8', url: 'https://library.example/help/', ...overrides });

export type PdfLine = { text: string; size?: number; x?: number; y: number };

const escapePdf = (text: string): string => text.replace(/[\\()]/g, '\\$&');

/** The objects of a PDF, written with a true table of their places. Objects 1 and 2 are the catalog and the page tree. */
export const writePdf = (objects: readonly string[], trailer = ''): Uint8Array => {
  let body = '%PDF-1.7\n';
  const places = objects.map((object, at) => {
    const place = body.length;
    body += `${at + 1} 0 obj\n${object}\nendobj\n`;
    return place;
  });
  const table = places.map((place) => `${String(place).padStart(10, '0')} 00000 n \n`).join('');
  const size = objects.length + 1;
  return Buffer.from(
    `${body}xref\n0 ${size}\n0000000000 65535 f \n${table}trailer\n<< /Size ${size} /Root 1 0 R ${trailer} >>\nstartxref\n${body.length}\n%%EOF\n`,
    'latin1',
  );
};

export const aStream = (content: string, entries = ''): string =>
  `<< /Length ${content.length} ${entries} >>\nstream\n${content}\nendstream`;

export const aPdf = (pages: readonly (readonly PdfLine[])[], info = ''): Uint8Array => {
  const FIRST = 5;
  const kids = pages.map((_, at) => `${FIRST + at * 2} 0 R`).join(' ');
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    `<< /Type /Pages /Count ${pages.length} /Kids [${kids}] >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>',
    `<< ${info} >>`,
    ...pages.flatMap((lines, at) => [
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> /Contents ${FIRST + at * 2 + 1} 0 R >>`,
      aStream(
        lines
          .map(({ text, size = 11, x = 72, y }) => `BT /F1 ${size} Tf 1 0 0 1 ${x} ${y} Tm (${escapePdf(text)}) Tj ET`)
          .join('\n'),
      ),
    ]),
  ];
  return writePdf(objects, '/Info 4 0 R');
};

const NAMESPACES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"';

export const aParagraph = (text: string, style = ''): string =>
  `<w:p>${style === '' ? '' : `<w:pPr><w:pStyle w:val="${style}"/></w:pPr>`}<w:r><w:t xml:space="preserve">${text}</w:t></w:r></w:p>`;

const packed = (files: Record<string, string>): Uint8Array =>
  zipSync(Object.fromEntries(Object.entries(files).map(([name, content]) => [name, strToU8(content)])), { level: 6 });

const STYLES = ['Title', 'Heading1', 'Heading2']
  .map((id) => `<w:style w:type="paragraph" w:styleId="${id}"><w:name w:val="${id.replace(/(\d)/, ' $1')}"/></w:style>`)
  .join('');

/** A DOCX with this XML as its body, or as its whole document if it begins with a declaration. */
export const aDocx = (body: string, more: Record<string, string> = {}): Uint8Array =>
  packed({
    '[Content_Types].xml':
      '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/>' +
      '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>' +
      '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
    '_rels/.rels':
      '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" ' +
      'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>',
    'word/_rels/document.xml.rels':
      '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="s1" ' +
      'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>',
    'word/styles.xml': `<?xml version="1.0"?><w:styles ${NAMESPACES}>${STYLES}</w:styles>`,
    'word/document.xml': body.startsWith('<?xml')
      ? body
      : `<?xml version="1.0"?><w:document ${NAMESPACES}><w:body>${body}</w:body></w:document>`,
    ...more,
  });
