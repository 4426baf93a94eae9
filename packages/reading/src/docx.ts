import { randomUUID } from 'node:crypto';
import { strFromU8, strToU8, type Unzipped, unzipSync, zipSync } from 'fflate';
import { Parser } from 'htmlparser2';
import {
  isOn,
  type Numbering,
  readElements,
  readNumbering,
  readStyles,
  type Styles,
  type XmlAttributes,
} from './docx-styles.ts';
import { isOfMemory, unsupported, Unreadable } from './text.ts';

// Mammoth makes HTML of a DOCX. It drops some of what Word shows, and shows some of what Word hides. So the markup is
// rewritten before: fields, ruby, formulas, the numbers that Word makes, hidden text and included files.

/**
 * The maximum size to which a DOCX may unpack. Text compresses to about a fifth, so this is a very long book with
 * pictures.
 */
const MAX_UNPACKED_BYTES = 150_000_000;
/**
 * The maximum size of unpacked markup, which mammoth reads within the reader's memory. A page of a book has about 10
 * KB.
 */
const MAX_MARKUP_BYTES = 30_000_000;
const MAX_INCLUDED = 100;

/** Mammoth drops these with all that is in them, although Word shows it. */
const UNWRAPPED = new Set(['w:fldSimple', 'w:dir', 'w:bdo', 'w:ruby', 'w:rubyBase']);
/** What is no text: the reading above a ruby's base, what was before a tracked change, the data of fields. */
const DROPPED = new Set([
  'w:rt',
  'w:rubyPr',
  'w:pPrChange',
  'w:rPrChange',
  'w:fldData',
  'w:altChunk',
  'm:rPr',
  'm:ctrlPr',
]);
/** Signs that mammoth does not know, and what they are like. */
const ALIKE: Record<string, string> = { 'w:cr': 'w:br', 'w:ptab': 'w:tab' };
/** Formulas are written in one line, as "1/2" and "x^2". */
const FORMULA_SIGNS: Record<string, string> = { 'm:den': '/', 'm:sup': '^' };
const NUMBERING = new Set(['w:numPr', 'w:ilvl', 'w:numId']);

const damaged = (): Unreadable =>
  new Unreadable(
    'damaged',
    'This DOCX is incomplete or damaged. Save it again from the program that made it, and add it again',
  );

const tooLarge = (): Unreadable =>
  new Unreadable('too_large', 'This document unpacks to more than one document may have. Split it into smaller ones');

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

const tagOf = (name: string, attributes: XmlAttributes): string =>
  `<${name}${Object.entries(attributes)
    .map(([key, value]) => ` ${key}="${escaped(value)}"`)
    .join('')}>`;

const runOf = (text: string): string => `<w:r><w:t xml:space="preserve">${escaped(text)}</w:t></w:r>`;

type Run = { start: number; isHidden?: boolean; style: string; hasField: boolean };
type Paragraph = { style: string; numId?: string; level?: number };
type Rewriting = { styles: Styles; numbering: Numbering; include: (id: string) => string };

/** Rewrites the markup of one part, in one pass. */
class Rewriter {
  private readonly written: string[] = [];
  private readonly open: { name: string; isWritten: boolean }[] = [];
  private readonly runs: Run[] = [];
  private readonly paragraphs: Paragraph[] = [];
  private dropped = 0;
  private readonly rewriting: Rewriting;

  constructor(rewriting: Rewriting) {
    this.rewriting = rewriting;
  }

  get xml(): string {
    if (this.open.length > 0) throw damaged();
    return this.written.join('');
  }

  onopentag(given: string, attributes: XmlAttributes): void {
    const name = ALIKE[given] ?? given;
    const [parent, outer] = [this.open.at(-1)?.name, this.open.at(-2)?.name];
    if (this.dropped > 0 || DROPPED.has(name)) {
      if (this.dropped === 0 && name === 'w:altChunk')
        this.written.push(this.rewriting.include(attributes['r:id'] ?? ''));
      this.dropped += 1;
    }
    const isFormula = name.startsWith('m:');
    const isWritten = this.dropped === 0 && !isFormula && !UNWRAPPED.has(name) && !NUMBERING.has(name);
    this.open.push({ name, isWritten });
    if (this.dropped > 0) return;
    if (isFormula && name in FORMULA_SIGNS) this.written.push(runOf(FORMULA_SIGNS[name] ?? ''));
    const value = attributes['w:val'];
    if (name === 'w:p') this.paragraphs.push({ style: '' });
    else if (name === 'w:r') this.runs.push({ start: this.written.length, style: '', hasField: false });
    else if ((parent === 'w:pPr' && outer === 'w:p') || parent === 'w:numPr') this.noteParagraph(name, value ?? '');
    else if ((parent === 'w:rPr' && outer === 'w:r') || name === 'w:fldChar') this.noteRun(name, value);
    if (isWritten) this.written.push(tagOf(name, attributes));
  }

  ontext(text: string): void {
    if (this.dropped > 0) return;
    const isFormula = this.open.at(-1)?.name === 'm:t';
    this.written.push(isFormula ? runOf(text) : escaped(text));
  }

  onclosetag(): void {
    const { name, isWritten } = this.open.pop() ?? { name: '', isWritten: false };
    if (this.dropped > 0) this.dropped -= 1;
    if (!isWritten) return;
    if (name === 'w:pPr' && this.open.at(-1)?.name === 'w:p') this.endProperties();
    else this.written.push(`</${name}>`);
    if (name === 'w:p') this.paragraphs.pop();
    else if (name === 'w:r') this.endRun();
  }

  private noteParagraph(name: string, value: string): void {
    const paragraph = this.paragraphs.at(-1);
    if (!paragraph) return;
    if (name === 'w:pStyle') paragraph.style = value;
    else if (name === 'w:ilvl') paragraph.level = Number(value) || 0;
    else if (name === 'w:numId') paragraph.numId = value;
  }

  private noteRun(name: string, value: string | undefined): void {
    const run = this.runs.at(-1);
    if (!run) return;
    if (name === 'w:vanish') run.isHidden = isOn(value);
    else if (name === 'w:rStyle') run.style = value ?? '';
    else if (name === 'w:fldChar') run.hasField = true;
  }

  /** Bullets stay a list of mammoth's. A number is written as text, and mammoth is told that there is no list. */
  private endProperties(): void {
    const paragraph = this.paragraphs.at(-1) ?? { style: '' };
    const { styles, numbering } = this.rewriting;
    const { numId, level = 0, style } = paragraph;
    const number = numbering.next(paragraph);
    const list = number === null ? numId : '0';
    if (list !== undefined)
      this.written.push(`<w:numPr><w:ilvl w:val="${level}"/><w:numId w:val="${escaped(list)}"/></w:numPr>`);
    this.written.push('</w:pPr>');
    if (number === null) return;
    // After "1." a sentence would seem to end.
    const shown = styles.isHeading(style) ? number : number.replace(/^(\d+)\.$/, '$1)');
    this.written.push(runOf(`${shown} `));
  }

  private endRun(): void {
    const run = this.runs.pop();
    if (!run) return;
    const { styles } = this.rewriting;
    const paragraph = this.paragraphs.at(-1)?.style ?? '';
    const isHidden = run.isHidden ?? (styles.isHidden(run.style) || styles.isHidden(paragraph));
    // The ends of a field belong together, and have no text.
    if (isHidden && !run.hasField) this.written.length = run.start;
  }
}

const rewrite = (xml: string, rewriting: Rewriting): string => {
  const rewriter = new Rewriter(rewriting);
  // The end of the parser would close what a part that is cut leaves open.
  new Parser(rewriter, { xmlMode: true }).write(xml);
  return rewriter.xml;
};

/** The names of the included files, by the ids under which the document includes them. */
const readIncluded = (relationships: string): Map<string, string> => {
  const names = new Map<string, string>();
  readElements(relationships, (element, { Id: id = '', Target: target = '', Type: type = '', TargetMode: mode }) => {
    if (element === 'Relationship' && /\/aFChunk$/i.test(type) && mode !== 'External' && names.size < MAX_INCLUDED)
      names.set(id, target.startsWith('/') ? target.slice(1) : `word/${target}`);
  });
  return names;
};

/** Unpacks markup and included files. Refuses what is no DOCX, and what would unpack to too much. */
const unpack = (bytes: Uint8Array): Unzipped => {
  let [unpacked, text] = [0, 0];
  const names: string[] = [];
  let files: Unzipped;
  try {
    files = unzipSync(bytes, {
      filter: ({ name, originalSize }) => {
        unpacked += originalSize;
        const isRead = /\.(?:xml|rels|x?html?|txt|docx)$/i.test(name);
        if (isRead) text += originalSize;
        if (names.length < 10_000) names.push(name);
        return isRead && unpacked <= MAX_UNPACKED_BYTES && text <= MAX_MARKUP_BYTES;
      },
    });
  } catch {
    throw new Unreadable(
      'damaged',
      'This file is incomplete or damaged. Save it again from the program that made it, and add it again',
    );
  }
  if (names.some((name) => name.startsWith('xl/'))) throw unsupported('a table of Excel');
  if (names.some((name) => name.startsWith('ppt/'))) throw unsupported('a presentation');
  if (!names.some((name) => /(?:^|\/)document2?\.xml$/.test(name))) throw unsupported('a packed archive');
  if (unpacked > MAX_UNPACKED_BYTES || text > MAX_MARKUP_BYTES) throw tooLarge();
  return files;
};

const bodyOf = (html: string): string => {
  const start = html.search(/<body[\s>]/i);
  return start === -1 ? html : html.slice(html.indexOf('>', start) + 1);
};

type Included = { mark: string; name: string; bytes: Uint8Array };
const INCLUDED =
  'in a file that it includes and that cannot be read. Open it in Word, save it as a new document, and add that';

type DocxText = { html: string; lacks: string | null };

/**
 * Makes HTML of a DOCX, as Word shows it. `decode` reads a text of unknown letters. A DOCX may include others, which
 * include none.
 */
export const docxToHtml = async (
  bytes: Uint8Array,
  decode: (bytes: Uint8Array) => string,
  mayInclude = true,
): Promise<DocxText> => {
  const files = unpack(bytes);
  const partOf = (name: string): string => {
    const part = files[name];
    return part ? strFromU8(part).replace(/^\ufeff/, '') : '';
  };
  const styles = readStyles(partOf('word/styles.xml'));
  const numbering = readNumbering(partOf('word/numbering.xml'), styles);
  const names = readIncluded(partOf('word/_rels/document.xml.rels'));
  const included: Included[] = [];
  let isUnread = false;
  const include = (id: string): string => {
    const name = names.get(id) ?? '';
    const part = files[name];
    if (!part || !mayInclude) {
      isUnread = true;
      return '';
    }
    const mark = `included ${randomUUID()}`;
    included.push({ mark, name, bytes: part });
    return `<w:p>${runOf(mark)}</w:p>`;
  };
  for (const name of Object.keys(files))
    if (/^word\/(?:document2?|footnotes|endnotes)\.xml$/.test(name))
      files[name] = strToU8(rewrite(partOf(name), { styles, numbering, include }));
  const { default: mammoth } = await import('mammoth');
  const picture = mammoth.images.imgElement(() => Promise.resolve({ src: '' }));
  let { value: html } = await mammoth
    .convertToHtml(
      { buffer: Buffer.from(zipSync(files, { level: 0 })) },
      {
        convertImage: picture,
        externalFileAccess: false,
        styleMap: [
          "p[style-name='Title'] => h1.title:fresh",
          "p[style-name='Subtitle'] => p:fresh",
          // A table of contents repeats the headings.
          "p[style-name^='toc '] => !",
          "p[style-name='table of figures'] => !",
        ],
      },
    )
    .catch((cause: unknown) => {
      throw isOfMemory(cause) ? cause : damaged();
    });
  const readInner = async (part: Uint8Array): Promise<string> => {
    const { html: inner, lacks } = await docxToHtml(part, decode, false);
    isUnread ||= lacks !== null;
    return inner;
  };
  for (const { mark, name, bytes: part } of included) {
    const inner = /\.docx$/i.test(name)
      ? await readInner(part)
      : /\.txt$/i.test(name)
        ? `<pre>${escaped(decode(part))}</pre>`
        : bodyOf(decode(part));
    html = html.replace(`<p>${mark}</p>`, () => inner);
  }
  if (html === '' && isUnread) throw new Unreadable('no_text', `The text of this document is ${INCLUDED}`);
  return { html, lacks: isUnread ? `Some text of this document is ${INCLUDED}` : null };
};
