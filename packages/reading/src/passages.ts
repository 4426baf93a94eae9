import type { Block, HtmlDocument } from './html.ts';
import { MAX_PASSAGE_CHARS, type Splitter, Unreadable } from './text.ts';

/** What passages need of a block. Every format is converted to these. */
export type TextBlock = Pick<Block, 'kind' | 'text' | 'level' | 'anchor' | 'asks' | 'byLine'>;

/** What the reader of a format finds. */
export type Contents = {
  document: HtmlDocument;
  blocks: readonly TextBlock[];
  /** The heading over all, or else the title that the document declares. */
  title: string;
  /** What could not be read, if the rest was. */
  lacks?: string;
};

type PageText = { path: string[]; text: string; anchor: string | null };

/** Blocks under one heading. */
export type Section = {
  path: string[];
  anchor: string | null;
  /** True if its last heading asks a question that the text below answers. */
  asks: boolean;
  level: number;
  blocks: TextBlock[];
  chars: number;
};

const LEAST_CHARS = 200;
/** Passages of a long section come near this, so that a vector stands for one subject. */
const GOOD_CHARS = 600;
/** Sections below this join their neighbours. An answer to a question is never joined, however short it is. */
const SLIGHT_CHARS = 120;
/** The share of letters and digits that a readable text has at least. Code has more. */
const LEAST_LETTERS = 0.4;
const MAX_PASSAGES = 10_000;
const MAX_PATH = 8;
const MAX_HEADING_CHARS = 200;
/** Each passage has the headings above it. If they are longer together, only the nearest stay. */
const MAX_HEADINGS_CHARS = 400;

const shorten = (heading: string): string =>
  heading.length <= MAX_HEADING_CHARS
    ? heading
    : `${heading
        .slice(0, MAX_HEADING_CHARS - 1)
        .trimEnd()
        .toWellFormed()}…`;

const isSame = (heading: string | undefined, title: string): boolean => heading?.toLowerCase() === title.toLowerCase();

/** Divides a page at its headings. Headings without text below them are only in the paths of deeper ones. */
export const toSections = (title: string, blocks: readonly TextBlock[]): Section[] => {
  const sections: Section[] = [];
  const open: TextBlock[] = [];
  let current: Section | null = null;
  const endScope = (level: number): void => {
    while ((open.at(-1)?.level ?? 0) >= level) open.pop();
    current = null;
  };
  for (const block of blocks) {
    if (block.kind !== 'text') {
      endScope(block.level);
      if (block.kind === 'heading') open.push(block);
      continue;
    }
    if (!current) {
      const headings = open.slice(-MAX_PATH).map(({ text }) => shorten(text));
      while (headings.join('').length > MAX_HEADINGS_CHARS) headings.shift();
      const last = open.at(-1);
      current = {
        path: [shorten(title), ...(isSame(headings[0], shorten(title)) ? headings.slice(1) : headings)],
        // The page's own heading is at its top anyway.
        anchor: last?.anchor ?? open.findLast(({ anchor, level }) => anchor !== null && level > 1)?.anchor ?? null,
        asks: last?.asks ?? false,
        level: last?.level ?? 0,
        blocks: [],
        chars: 0,
      };
      sections.push(current);
    }
    current.blocks.push(block);
    current.chars += block.text.length + 1;
  }
  return sections;
};

/** A piece of text that is never divided. */
type Piece = { text: string; startsBlock: boolean };

const lengthOf = (pieces: readonly Piece[]): number =>
  pieces.reduce((sum, { text }) => sum + text.length + 1, pieces.length > 0 ? -1 : 0);

const write = (pieces: readonly Piece[]): string =>
  pieces.map(({ text, startsBlock }, at) => (at === 0 ? text : `${startsBlock ? '\n' : ' '}${text}`)).join('');

/** Rows and lines of code are split only if they are too long. Line ends are kept, because code needs them. */
const piecesOf = ({ text, byLine }: TextBlock, split: Splitter): Piece[] =>
  text.split('\n').flatMap((line) => {
    const texts = byLine && line.length <= MAX_PASSAGE_CHARS ? [line] : split(line);
    return texts.map((one, at) => ({ text: one, startsBlock: at === 0 }));
  });

/** Packs the pieces into parts of similar length, which end between blocks rather than inside one. */
const pack = (pieces: readonly Piece[]): Piece[][] => {
  const total = lengthOf(pieces);
  if (total <= MAX_PASSAGE_CHARS) return [[...pieces]];
  const size = total / Math.ceil(total / GOOD_CHARS);
  const parts: Piece[][] = [];
  let part: Piece[] = [];
  let length = 0;
  const end = (): void => {
    const last = part.at(-1);
    // A piece that announces a list goes into the part of the list.
    const announces =
      part.length > 1 && last !== undefined && /[:：]$/.test(last.text) && length - last.text.length > LEAST_CHARS;
    parts.push(announces ? part.slice(0, -1) : part);
    part = announces ? [last] : [];
    length = lengthOf(part);
  };
  for (const piece of pieces) {
    const wanted = length + 1 + piece.text.length;
    const isFull = length >= LEAST_CHARS && (wanted > size * 1.15 || (piece.startsBlock && length >= size * 0.8));
    if (length > 0 && (isFull || wanted > MAX_PASSAGE_CHARS)) end();
    // The announcing piece may be too long to be in one part with the next piece.
    if (part.length > 0 && length + 1 + piece.text.length > MAX_PASSAGE_CHARS) {
      parts.push(part);
      part = [];
      length = 0;
    }
    part.push(piece);
    length += piece.text.length + (length > 0 ? 1 : 0);
  }
  const before = parts.at(-1);
  if (before && length < LEAST_CHARS && lengthOf(before) + 1 + length <= MAX_PASSAGE_CHARS) before.push(...part);
  else parts.push(part);
  return parts;
};

/** False if the text is mostly signs, as in PDFs whose fonts do not say which letters they show. */
const isReadable = (text: string): boolean => {
  const letters = text.match(/[\p{L}\p{M}\p{N}]/gu)?.length ?? 0;
  return letters > (text.length > 100 ? text.replace(/\s+/g, '').length * LEAST_LETTERS : 0);
};

const commonPath = (left: readonly string[], right: readonly string[]): string[] => {
  const at = left.findIndex((heading, index) => heading !== right[index]);
  return left.slice(0, at === -1 ? left.length : at);
};

/** Merges short neighbours that share a parent heading. The own heading of each becomes a line of the text. */
const joinSlight = (
  sections: readonly Section[],
  isQuestion: (heading: string) => boolean,
): { path: string[]; anchor: string | null; blocks: TextBlock[] }[] => {
  const joined: { path: string[]; anchor: string | null; blocks: TextBlock[] }[] = [];
  const mayJoin = ({ chars, asks, path }: Section): boolean =>
    chars < SLIGHT_CHARS && !asks && !isQuestion(path.at(-1) ?? '');
  for (let at = 0; at < sections.length; ) {
    const group: Section[] = [];
    let path: string[] = [];
    let chars = 0;
    for (; at < sections.length; at += 1) {
      const next = sections[at] as Section; // the loop's condition
      const shared = group.length === 0 ? next.path : commonPath(path, next.path);
      const first = group[0];
      const fits =
        first === undefined ||
        (mayJoin(first) &&
          mayJoin(next) &&
          shared.length >= Math.max(1, first.path.length - 1) &&
          chars + next.chars < MAX_PASSAGE_CHARS / 2);
      if (!fits) break;
      path = shared;
      group.push(next);
      chars += next.chars + (next.path.at(-1)?.length ?? 0);
    }
    const blocks = group.flatMap((section) => {
      const own = section.path.slice(path.length).join(' › ');
      const line: TextBlock = { kind: 'text', text: own, level: 0, anchor: null, asks: false, byLine: false };
      return own === '' ? section.blocks : [line, ...section.blocks];
    });
    joined.push({ path, anchor: group[0]?.anchor ?? null, blocks });
  }
  return joined;
};

/**
 * Passages of 200 to 900 characters where the sections allow it, each with its path of headings, the page's title first. No passage ends
 * inside a sentence, unless the sentence alone is longer than a passage may be.
 */
export const toPassages = (
  sections: readonly Section[],
  split: Splitter,
  isQuestion: (heading: string) => boolean,
): PageText[] => {
  const passages: PageText[] = [];
  const known = new Set<string>();
  for (const { path, anchor, blocks } of joinSlight(sections, isQuestion)) {
    for (const part of pack(blocks.flatMap((block) => piecesOf(block, split)))) {
      const text = write(part);
      if (known.has(text) || !isReadable(text)) continue;
      if (passages.length >= MAX_PASSAGES)
        throw new Unreadable(
          'too_large',
          'This document has more text than one document may have. Split it into smaller ones',
        );
      known.add(text);
      passages.push({ path, text, anchor });
    }
  }
  return passages;
};
