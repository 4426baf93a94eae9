import { getDocumentProxy } from 'unpdf';
import { emptyDocument } from './html.ts';
import type { Contents, TextBlock } from './passages.ts';
import { joinBrokenLines, toLine, Unreadable } from './text.ts';

// A PDF knows letters and places, no paragraphs. So lines are put together from pieces at one height, paragraphs from lines close to each
// other, and headings are found by their size and in the outline.

const MAX_PAGES = 3_000;
const MAX_TEXT_CHARS = 12_000_000;
const MAX_OUTLINE = 5000;
/** Text that is more than this many times as large as most text is a heading. */
const HEADING_SIZE = 1.12;
const MAX_HEADING_CHARS = 200;
/** Lines of one heading are at most this many sizes apart. */
const HEADING_GAP = 2;
/** Lines further apart than this share of the usual distance belong to different paragraphs. */
const PARAGRAPH_GAP = 1.35;
/** Gaps, as shares of the size: between words, and between cells of a table. */
const WORD_GAP = 0.2;
const CELL_GAP = 1.6;
/** Pieces at nearly one height, such as an exponent, are of one line. */
const SAME_LINE = 0.6;
/** A line that is at the same place on this share of the pages is a header or a footer. */
const REPEATED_SHARE = 0.4;
const LEAST_REPEATED = 3;

type Line = { text: string; size: number; x: number; y: number; page: number };
type Item = { str: string; transform: number[]; width: number; height: number; hasEOL: boolean };
type Pdf = Awaited<ReturnType<typeof getDocumentProxy>>;

const DAMAGED = 'This PDF is incomplete or damaged. Export it again from the program that made it, and add it again';

const isItem = (item: Item | object): item is Item => 'str' in item;

const nameOfError = (cause: unknown): string => (cause instanceof Error ? cause.name : '');

const open = async (bytes: Uint8Array): Promise<Pdf> => {
  try {
    // A copy, because the library takes the buffer over.
    return await getDocumentProxy(new Uint8Array(bytes), {
      verbosity: 0,
      disableFontFace: true,
      useSystemFonts: false,
    });
  } catch (cause) {
    if (nameOfError(cause) === 'PasswordException')
      throw new Unreadable('encrypted', 'This PDF has a password. Save it without one, and add it again');
    throw new Unreadable('damaged', DAMAGED);
  }
};

type Piece = { text: string; x: number; width: number; size: number; isRtl: boolean };

const RTL = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const lettersIn = (text: string): number => text.match(/\p{L}/gu)?.length ?? 0;

/** Reverses each run of pieces that are written in this direction. Numbers and signs between two of them are of the run. */
const reverseRuns = (pieces: readonly Piece[], isRtl: boolean): Piece[] => {
  const ordered: Piece[] = [];
  const run: Piece[] = [];
  const neutral: Piece[] = [];
  for (const piece of pieces) {
    const isNeutral = lettersIn(piece.text) === 0;
    if (isNeutral && run.length > 0) neutral.push(piece);
    else if (!isNeutral && piece.isRtl === isRtl) run.push(...neutral.splice(0), piece);
    else ordered.push(...run.splice(0).reverse(), ...neutral.splice(0), piece);
  }
  return [...ordered, ...run.reverse(), ...neutral];
};

/**
 * The pieces of a line in the order in which people read them. A PDF may draw them in any order, so a line with writing
 * from right to left is ordered by places, as in the Unicode Bidirectional Algorithm.
 */
const inReadingOrder = (pieces: Piece[]): Piece[] => {
  const rtl = pieces.reduce((sum, { text, isRtl }) => sum + (isRtl ? lettersIn(text) : 0), 0);
  const all = pieces.reduce((sum, { text }) => sum + lettersIn(text), 0);
  const byPlace = pieces.toSorted((one, other) => one.x - other.x);
  const isRtl = rtl * 2 > all;
  return reverseRuns(isRtl ? byPlace.reverse() : byPlace, !isRtl);
};

/** Text drawn twice looks bold. It is read once. */
const DRAWN_TWICE = 0.1;
const withoutDoubles = (pieces: readonly Piece[]): Piece[] => {
  const places = new Map<string, number>();
  return pieces.filter(({ text, x, size }) => {
    const isDouble = text.trim() !== '' && Math.abs(x - (places.get(text) ?? Infinity)) < size * DRAWN_TWICE;
    places.set(text, x);
    return !isDouble;
  });
};

/** Joins the pieces of a line. The library fills a gap with a space as wide as the gap. */
const joinPieces = (pieces: Piece[]): string => {
  let text = '';
  let hasSpace = false;
  let before: Piece | null = null;
  const isMixed = pieces.some(({ isRtl }) => isRtl);
  for (const piece of isMixed ? inReadingOrder(pieces) : withoutDoubles(pieces)) {
    if (piece.text.trim() === '') {
      hasSpace = true;
      continue;
    }
    if (before) {
      const [left, right] = isMixed && piece.x < before.x ? [piece, before] : [before, piece];
      const gap = right.x - (left.x + left.width);
      if (gap > piece.size * CELL_GAP) text += ' | ';
      else if (hasSpace || gap > piece.size * WORD_GAP) text += ' ';
    }
    text += piece.text;
    hasSpace = false;
    before = piece;
  }
  return text;
};

/** How far a line may be turned from upright or sideways. What is drawn across the page is a stamp, such as "Draft". */
const MOST_TURNED = 0.2;

/** The place of a piece on a page that is turned so that the piece is upright. Null for what is drawn across the page. */
const uprightPlace = ([a = 0, b = 0, , , x = 0, y = 0]: number[]): { x: number; y: number } | null => {
  if (Math.min(Math.abs(a), Math.abs(b)) > Math.hypot(a, b) * MOST_TURNED) return null;
  if (Math.abs(a) >= Math.abs(b)) return a < 0 ? { x: -x, y: -y } : { x, y };
  return b > 0 ? { x: y, y: -x } : { x: -y, y: x };
};

/** Puts the pieces of one page together to lines. */
const toLines = (items: readonly Item[], page: number): Line[] => {
  const lines: Line[] = [];
  let line: (Omit<Line, 'text'> & { pieces: Piece[] }) | null = null;
  const end = (): void => {
    if (line) {
      const { pieces, ...rest } = line;
      const text = toLine(joinPieces(pieces));
      if (text !== '') lines.push({ ...rest, text });
    }
    line = null;
  };
  for (const { str, transform, width, height, hasEOL } of items) {
    const place = uprightPlace(transform);
    if (!place) continue;
    const { x, y } = place;
    const size = height || Math.hypot(transform[0] ?? 0, transform[1] ?? 0);
    const piece = { text: str, x, width, size, isRtl: RTL.test(str) };
    if (line && str !== '' && Math.abs(y - line.y) > Math.max(1, size * SAME_LINE)) end();
    if (line && str !== '') {
      line.pieces.push(piece);
      if (str.trim() !== '') line.size = Math.max(line.size, size);
    } else if (str.trim() !== '') line = { size, x, y, page, pieces: [piece] };
    if (hasEOL) end();
  }
  end();
  return lines;
};

const readLines = async (pdf: Pdf): Promise<Line[][]> => {
  const pages: Line[][] = [];
  let chars = 0;
  for (let number = 1; number <= pdf.numPages; number += 1) {
    const page = await pdf.getPage(number);
    const { items } = await page.getTextContent();
    const lines = toLines((items as (Item | object)[]).filter(isItem), number);
    pages.push(lines);
    page.cleanup();
    chars += lines.reduce((sum, { text }) => sum + text.length, 0);
    if (chars > MAX_TEXT_CHARS)
      throw new Unreadable(
        'too_large',
        'This PDF has more text than one document may have. Split it into smaller ones',
      );
  }
  return pages;
};

/**
 * The same pattern for lines that differ only in numbers, such as those of headers and footers. Of two pages, such lines
 * may be headings.
 */
const patternOf = ({ text, y }: Line, pages: number): string =>
  `${Math.round(y / 4)} ${(pages > 2 ? text.replace(/\d+/g, '#') : text).toLowerCase()}`;

const edgesOf = (lines: readonly Line[]): Set<Line> => {
  const sorted = [...lines].sort((one, other) => one.y - other.y);
  return new Set([...sorted.slice(0, 2), ...sorted.slice(-2)]);
};

/** The lines of each page without those at its edges that most pages have. */
const withoutRepeatedEdges = (pages: readonly Line[][]): Line[][] => {
  const counts = new Map<string, number>();
  const patternIn = (line: Line): string => patternOf(line, pages.length);
  for (const lines of pages)
    for (const line of edgesOf(lines)) counts.set(patternIn(line), (counts.get(patternIn(line)) ?? 0) + 1);
  const least = Math.max(2, Math.min(LEAST_REPEATED, pages.length));
  const most = Math.max(least, pages.length * REPEATED_SHARE);
  return pages.map((lines) => {
    const atEdge = edgesOf(lines);
    return lines.filter((line) => !atEdge.has(line) || (counts.get(patternIn(line)) ?? 0) < most);
  });
};

/** A footer with an address and a bank account has several lines. Two of them are removed at a time. */
const MOST_ROUNDS = 3;

/** The lines of each page without headers, footers and page numbers. */
const withoutRepeated = (pages: readonly Line[][]): Line[][] => {
  let left = pages.map((lines) => {
    const atEdge = edgesOf(lines);
    return lines.filter((line) => !atEdge.has(line) || !isPageNumber(line));
  });
  for (let round = 0; round < MOST_ROUNDS; round += 1) left = withoutRepeatedEdges(left);
  return left;
};

const isPageNumber = ({ text }: Line): boolean =>
  /^(?:[-–—| ]*(?:page|seite|página|pagina)? ?\d{1,4}(?: ?(?:\/|of|von|de|di|sur) ?\d{1,4})?[-–—| ]*|[ivxlc]{1,7})$/i.test(
    text,
  );
/** A line of a table of contents. */
const isListed = ({ text }: Line): boolean => /(?:\.\s?){4}\s*\d{1,4}$/.test(text);

const keyOf = (text: string): string => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '');

type OutlineItem = { title: string; items: OutlineItem[] };

/** The level of each title of the outline. */
const readOutline = async (pdf: Pdf): Promise<Map<string, number>> => {
  const levels = new Map<string, number>();
  const outline = ((await pdf.getOutline().catch(() => null)) ?? []) as OutlineItem[]; // the library declares `any`
  const open = outline.map((item) => ({ item, level: 1 }));
  for (let at = 0; at < Math.min(open.length, MAX_OUTLINE); at += 1) {
    const next = open[at];
    if (!next) break;
    const key = keyOf(next.item.title);
    if (key !== '' && !levels.has(key)) levels.set(key, next.level);
    for (const item of next.item.items) open.push({ item, level: Math.min(6, next.level + 1) });
  }
  return levels;
};

const roundSize = (size: number): number => Math.round(size * 2) / 2;

/** The size that most letters have, and the larger ones with their levels. */
const sizesOf = (lines: readonly Line[]): { body: number; levels: Map<number, number> } => {
  const chars = new Map<number, number>();
  for (const { text, size } of lines) chars.set(roundSize(size), (chars.get(roundSize(size)) ?? 0) + text.length);
  const body = [...chars].sort(([, one], [, other]) => other - one)[0]?.[0] ?? 0;
  const larger = [...chars.keys()].filter((size) => size > body * HEADING_SIZE).sort((one, other) => other - one);
  return { body, levels: new Map(larger.map((size, at) => [size, Math.min(6, at + 1)])) };
};

/** The usual distance of two lines, as a multiple of their size. */
const spacingOf = (lines: readonly Line[]): number => {
  const counts = new Map<number, number>();
  for (const [at, line] of lines.entries()) {
    const before = lines[at - 1];
    if (!before || before.page !== line.page || line.size === 0) continue;
    const distance = Math.round(((before.y - line.y) / line.size) * 10) / 10;
    if (distance > 0.8 && distance < 3) counts.set(distance, (counts.get(distance) ?? 0) + 1);
  }
  return [...counts].sort(([, one], [, other]) => other - one)[0]?.[0] ?? 1.2;
};

const isHeadingLike = ({ text }: Line): boolean =>
  text.length <= MAX_HEADING_CHARS && /\p{L}/u.test(text) && !/[,;]$/.test(text);

type Reading = { body: number; levels: Map<number, number>; outline: Map<string, number>; spacing: number };

const levelOf = (line: Line, { levels, outline }: Reading): number => {
  if (!isHeadingLike(line)) return 0;
  return outline.get(keyOf(line.text)) ?? levels.get(roundSize(line.size)) ?? 0;
};

const startsItem = ({ text }: Line): boolean => /^(?:[•▪◦‣●○■□➢–—*-]\s|\(?\d{1,2}[.)]\s|\(?[a-z][.)]\s)/u.test(text);

/** Whether a line continues the paragraph of the line before. */
const goesOn = (line: Line, before: Line, { spacing }: Reading): boolean => {
  if (startsItem(line) || line.text.includes(' | ') || before.text.includes(' | ')) return false;
  if (Math.abs(line.size - before.size) > 1) return false;
  // A paragraph may continue after the end of a column or page.
  if (line.page !== before.page || line.y > before.y) return !/[.!?:。！？]$/.test(before.text);
  return before.y - line.y <= line.size * spacing * PARAGRAPH_GAP;
};

const toBlocks = (lines: readonly Line[], reading: Reading): TextBlock[] => {
  const blocks: TextBlock[] = [];
  let paragraph: string[] = [];
  let first: Line | null = null;
  const end = (): void => {
    if (first) {
      const text = joinBrokenLines(paragraph)
        .replace(/^[•▪◦‣●○■□➢]\s*/u, '- ')
        .replace(/^(\(?\d{1,2})\.\s/, '$1) ');
      blocks.push({ kind: 'text', text, level: 0, anchor: null, asks: false, byLine: text.includes(' | ') });
    }
    paragraph = [];
    first = null;
  };
  let before: Line | null = null;
  for (const line of lines) {
    const level = levelOf(line, reading);
    const last = blocks.at(-1);
    const isWrapped =
      level > 0 &&
      last?.kind === 'heading' &&
      last.level === level &&
      before !== null &&
      before.page === line.page &&
      before.y - line.y > 0 &&
      before.y - line.y < line.size * HEADING_GAP &&
      last.text.length + line.text.length < MAX_HEADING_CHARS;
    if (isWrapped && last) last.text = joinBrokenLines([last.text, line.text]);
    else if (level > 0) {
      end();
      blocks.push({ kind: 'heading', text: line.text, level, anchor: `page=${line.page}`, asks: false, byLine: false });
    } else {
      if (!before || !first || !goesOn(line, before, reading)) end();
      paragraph.push(line.text);
      first ??= line;
    }
    before = line;
  }
  end();
  return blocks;
};

/** False for a title that a program filled in, such as "Untitled" or the name of a file. */
const isTitle = (title: string): boolean =>
  title.length > 2 &&
  !/^(?:untitled|document\d*|microsoft word|powerpoint|slide \d|print|layout \d|ohne titel|sans titre)/i.test(title) &&
  !/\.(?:docx?|pdf|indd|tex|odt|pptx?|xlsx?|qxd)$/i.test(title);

export const readPdf = async (bytes: Uint8Array): Promise<Contents> => {
  const pdf = await open(bytes);
  if (pdf.numPages > MAX_PAGES)
    throw new Unreadable('too_large', `This PDF has more than ${MAX_PAGES} pages. Split it into smaller ones`);
  let pages: Line[][];
  try {
    pages = withoutRepeated(await readLines(pdf));
  } catch (cause) {
    if (cause instanceof Unreadable || cause instanceof RangeError) throw cause;
    throw new Unreadable('damaged', DAMAGED);
  }
  const lines = pages.flat().filter((line) => !isListed(line));
  const reading: Reading = { ...sizesOf(lines), outline: await readOutline(pdf), spacing: spacingOf(lines) };
  const blocks = toBlocks(lines, reading);
  const info: Record<string, unknown> = await pdf.getMetadata().then(
    ({ info }) => info as Record<string, unknown>, // the library declares `Object`
    () => ({}),
  );
  const declared = typeof info.Title === 'string' ? toLine(info.Title) : '';
  const language = typeof info.Language === 'string' ? info.Language : null;
  const largest = blocks.find(({ kind, level }) => kind === 'heading' && level === 1)?.text ?? '';
  await pdf.loadingTask.destroy();
  return { document: emptyDocument(language), blocks, title: isTitle(declared) ? declared : largest };
};
