import { type Options, parse } from 'csv-parse/sync';
import MarkdownIt, { type Token } from 'markdown-it';
import type * as z from 'zod';
import { invalid, MAX_DETAILS } from '../../platform/process/errors.ts';
import { check, detailOf, findUnstorable } from '../../platform/process/validation.ts';
import { KnowledgeInput, MAX_KNOWLEDGE } from './entry.ts';

/**
 * One question as written in the file, before validation, or the reason why the question cannot be read. `line` is the
 * first line of the question.
 */
type Row = { line: number; fields: unknown } | { line: number; reason: string };

const LINE_END = /\r\n|\n|\r/g;

const countLineEnds = (text: string): number => text.match(LINE_END)?.length ?? 0;

const COLUMNS = ['question', 'variants', 'answer', 'language', 'actions', 'tags'] as const;
type Column = (typeof COLUMNS)[number];

/** After each broken row, the parser starts again on the rest of the file. These limits bound the total time. */
const MAX_RESTARTS = 100;
const MAX_READ_AGAIN = 16_000_000;
/**
 * The maximum number of rows in one parse. Further rows are not read: a file of 4 MiB may have a million, all invalid.
 */
const MAX_ROWS = 50_000;

const splitCell = (cell: string, by: RegExp): string[] =>
  cell
    .split(by)
    .map((part) => part.trim())
    .filter((part) => part !== '');

const fromJson = (cell: string): unknown => {
  try {
    return JSON.parse(cell);
  } catch {
    return cell; // the schema refuses a string in place of a list
  }
};

/** Parses a cell with one action per line: `label | type | payload`. */
const actionsOf = (cell: string) =>
  splitCell(cell, /\n+/).map((line) => {
    const [label, type, ...payload] = line.split('|').map((part) => part.trim());
    return { label, type, payload: payload.join('|') };
  });

const LISTS: Partial<Record<Column, (cell: string) => unknown>> = {
  variants: (cell) => splitCell(cell, /[|\n]+/),
  tags: (cell) => splitCell(cell, /[|;,\n]+/),
  actions: actionsOf,
};

const valueOf = (column: Column, cell: string): unknown => {
  const list = LISTS[column];
  if (!list) return cell;
  return cell.trim().startsWith('[') ? fromJson(cell) : list(cell);
};

const toRow = (line: number, cells: string[], columns: (Column | null)[]): Row => {
  if (cells.length > columns.length) {
    return {
      line,
      reason: `has ${cells.length} cells under ${columns.length} headings: put cells with a separator in "quotes"`,
    };
  }
  const named = cells.flatMap((cell, index): [Column, unknown][] => {
    const column = columns[index];
    return column && cell.trim() !== '' ? [[column, valueOf(column, cell)]] : [];
  });
  return { line, fields: Object.fromEntries(named) };
};

/** A first line in which Excel says the delimiter. It is no row. */
const SAYS_DELIMITER = /^\uFEFF?"?sep ?= ?(.)"?[;,\t ]*(?=\r|\n|$)/i;

export const withoutDelimiterLine = (text: string): string => text.replace(SAYS_DELIMITER, '');

/**
 * The delimiter of the file. Spreadsheets write commas or tabs, and semicolons where the comma is the decimal sign.
 * `most`: so many characters of the heading are counted.
 */
export const delimiterOf = (text: string, most?: number): string => {
  const said = SAYS_DELIMITER.exec(text)?.[1];
  if (said) return said;
  const heading = /^[^\r\n]*/.exec(text.trimStart().slice(0, most))?.[0] ?? '';
  return [',', ';', '\t'].reduce((best, one) => (heading.split(one).length > heading.split(best).length ? one : best));
};

const parseRecords = (text: string, options: Options, each: (cells: string[], endLine: number) => void): void => {
  parse(text, {
    relax_column_count: true,
    skip_empty_lines: true,
    ...options,
    on_record: (cells: string[], { lines }: { lines: number }) => {
      each(cells, lines);
      return null; // the parser keeps nothing
    },
  });
};

const readAlone = (line: string, delimiter: string): string[] | null => {
  const records: string[][] = [];
  try {
    parseRecords(line, { delimiter, relax_quotes: true }, (cells) => records.push(cells));
  } catch {
    return null;
  }
  return records[0] ?? null;
};

type Read = { line: number; cells: string[] } | { line: number; reason: string };

/**
 * Reads the file strictly, because lenient reading could let a stray quote swallow valid rows. After an error, the
 * failing line is parsed alone and leniently, because it may be readable (`5" wide`). If this fails too, the line is
 * refused. After this line, strict reading continues.
 */
const readRecords = (text: string, delimiter: string): Read[] => {
  const lines = text.split('\n');
  const read: Read[] = [];
  const beginAfter = (index: number): number => {
    let at = index;
    while (at < lines.length && lines[at]?.trim() === '') at += 1;
    return at;
  };
  let unread = 0;
  for (let restarts = 0; ; restarts += 1) {
    const from = unread;
    const before = read.length;
    try {
      parseRecords(lines.slice(from).join('\n'), { delimiter, to: MAX_ROWS }, (cells, endLine) => {
        read.push({ line: beginAfter(unread) + 1, cells });
        unread = from + endLine;
      });
      if (read.length - before >= MAX_ROWS) {
        read.push({ line: beginAfter(unread) + 1, reason: 'not read, nor what follows: too many rows' });
      }
      return read;
    } catch {
      const bad = beginAfter(unread);
      const cells = readAlone(lines[bad] ?? '', delimiter);
      const reason = 'has a quote that is not closed, or not doubled inside a quoted cell';
      read.push(cells ? { line: bad + 1, cells } : { line: bad + 1, reason });
      unread = bad + 1;
      if (restarts >= MAX_RESTARTS || restarts * text.length > MAX_READ_AGAIN) {
        return [...read, { line: unread + 1, reason: 'not read, nor what follows: too many rows with broken quotes' }];
      }
    }
  }
};

/** Reads CSV with a heading line. The headings may have any order and case; unknown columns are ignored. */
const readCsv = (text: string): Row[] => {
  const [heading, ...rows] = readRecords(withoutDelimiterLine(text).replace(/\r\n?/g, '\n'), delimiterOf(text));
  const names = heading && 'cells' in heading ? heading.cells.map((name) => name.trim().toLowerCase()) : [];
  const columns = names.map((name) => COLUMNS.find((column) => column === name) ?? null);
  const missing = ['question', 'answer'].filter((name) => !names.includes(name));
  if (missing.length > 0) {
    throw invalid('file', 'invalid', `needs a first line with the heading ${missing.join(' and ')}`);
  }
  return rows
    .filter((row) => 'reason' in row || row.cells.some((cell) => cell.trim() !== '')) // spreadsheets often end with empty rows
    .map((row) => ('reason' in row ? row : toRow(row.line, row.cells, columns)));
};

type Element = { start: number; end: number };

/** Finds the start and end of each element of a top-level array. The elements need not be valid JSON. */
const elementsOf = (text: string, open: number): { elements: Element[]; closedAt: number | null } => {
  const elements: Element[] = [];
  let start = open + 1;
  let depth = 0;
  let inString = false;
  for (let at = start; at < text.length; at += 1) {
    const char = text[at];
    if (inString) {
      if (char === '\\') at += 1;
      else if (char === '"') inString = false;
    } else if (char === '"') inString = true;
    else if (char === '{' || char === '[') depth += 1;
    else if (depth > 0 && (char === '}' || char === ']')) depth -= 1;
    else if (depth === 0 && (char === ',' || char === ']')) {
      elements.push({ start, end: at });
      if (char === ']') return { elements, closedAt: at };
      start = at + 1;
    }
  }
  return { elements: [...elements, { start, end: text.length }], closedAt: null };
};

const parseRow = (text: string): { fields: unknown } | { reason: string } => {
  try {
    return { fields: JSON.parse(text) };
  } catch {
    return { reason: 'is not valid JSON' };
  }
};

/**
 * Reads a JSON array. If an element is invalid but its brackets and quotes still show where it ends, only this element
 * is refused.
 */
export function* readJson(text: string): Generator<Row> {
  const open = text.search(/\S/);
  if (text[open] !== '[') throw invalid('file', 'invalid', 'must be a JSON array of questions');
  const { elements, closedAt } = elementsOf(text, open);
  if (closedAt !== null && text.slice(closedAt + 1).trim() !== '') {
    throw invalid('file', 'invalid', 'must be one JSON array, and nothing after it');
  }
  let line = 1;
  let counted = 0;
  const lineOf = (at: number): number => {
    line += countLineEnds(text.slice(counted, at));
    counted = at;
    return line;
  };
  for (const { start, end } of elements) {
    const element = text.slice(start, end);
    if (element.trim() === '') continue; // an extra comma, or an empty array
    yield { line: lineOf(start + element.search(/\S/)), ...parseRow(element) };
  }
  if (closedAt === null) yield { line: lineOf(text.trimEnd().length), reason: 'the file ends before the closing ]' };
}

/** A Markdown token with the blocks inside it. */
type Block = { token: Token; inside: Block[] };

// markdown-it takes linear time on hostile text and limits nesting to 100. The library `marked` does neither.
const markdown = new MarkdownIt({ html: true });
// Keeps link addresses exactly as written.
markdown.normalizeLink = (address) => address;
markdown.normalizeLinkText = (address) => address;
markdown.validateLink = () => true;
// Only blocks are parsed here. Inline content is parsed when it is written out.
markdown.core.ruler.enableOnly(['normalize', 'block']);

const nest = (tokens: Token[]): Block[] => {
  const root: Block[] = [];
  const open = [root];
  for (const token of tokens) {
    if (token.nesting === -1) {
      open.pop();
      continue;
    }
    const block: Block = { token, inside: [] };
    open.at(-1)?.push(block);
    if (token.nesting === 1) open.push(block.inside);
  }
  return root;
};

/** The addresses of links may be longer than the file by so many characters: thousands may use one reference. */
const MORE_LINK_CHARS = 1_000_000;

/**
 * Converts blocks to plain text, because a chat reply is plain text: markup is removed, and a link shows its address.
 * Throws if the addresses have more characters than `mostLinkChars`.
 */
const createWriter = (references: Record<string, unknown>, mostLinkChars: number) => {
  let linkChars = 0;
  const line = (content: string): string => {
    const tokens: Token[] = [];
    markdown.inline.parse(content, markdown, references, tokens);
    let text = '';
    let link = { from: 0, address: '' };
    for (const token of tokens) {
      if (token.type === 'softbreak' || token.type === 'hardbreak') text += '\n';
      else if (token.type === 'link_open') link = { from: text.length, address: String(token.attrGet('href') ?? '') };
      else if (token.type === 'link_close') {
        const label = text.slice(link.from);
        linkChars += link.address.length;
        if (linkChars > mostLinkChars)
          throw invalid('file', 'too_long', 'has links that repeat more than a million characters of addresses');
        if (label !== link.address && `mailto:${label}` !== link.address) text += ` (${link.address})`;
      } else if (token.type !== 'html_inline') text += token.content;
    }
    return text;
  };

  const inline = ({ inside }: Block): string => inside.map(({ token }) => line(token.content)).join('');

  const list = ({ token, inside }: Block): string =>
    inside
      .map((item, index) => {
        const mark = token.type === 'ordered_list_open' ? `${(Number(token.attrGet('start')) || 1) + index}.` : '-';
        return `${mark} ${blocks(item.inside).replaceAll('\n\n', '\n').replaceAll('\n', '\n  ')}`;
      })
      .join('\n');

  const table = ({ inside }: Block): string =>
    inside
      .flatMap((part) => part.inside)
      .map((row) => row.inside.map(inline).join(' | '))
      .join('\n');

  const block = (one: Block): string => {
    switch (one.token.type) {
      case 'bullet_list_open':
      case 'ordered_list_open':
        return list(one);
      case 'table_open':
        return table(one);
      case 'blockquote_open':
        return blocks(one.inside);
      case 'fence':
      case 'code_block':
        return one.token.content.replace(/\n$/, '');
      case 'paragraph_open':
        return inline(one);
      default:
        return ''; // rules, HTML
    }
  };

  const blocks = (all: Block[]): string =>
    all
      .map(block)
      .filter((text) => text.trim() !== '')
      .join('\n\n')
      .trim();

  return { blocks, inline };
};

const readBlocks = (text: string) => {
  const references = {};
  const writer = createWriter(references, text.length + MORE_LINK_CHARS);
  return { top: nest(markdown.parse(text, references)), ...writer };
};

type Section = { line: number; level: number; question: string; blocks: Block[] };

/** True for the document's title: the first heading, if other headings follow and all of these are deeper. */
const isTitle = (section: Section, index: number, all: Section[]): boolean =>
  index === 0 && all.length > 1 && all.slice(1).every(({ level }) => level > section.level);

/** The anchor or the attributes of a heading, as programs that publish Markdown write them, and a link to itself. */
const ANCHOR =
  /\s{0,9}(?:\{(?::\s?|%\s?)?(?:\s?[#.]|id=)[^{}\n]{1,200}\}|:id=[\w-]{1,100}|(?:\s[#¶§🔗]\s)?\s?\(#[^()\s]{0,200}\))$/u;

/** What a file says about itself before its text. Its lines stay, to be counted. */
const FRONT_MATTER = /^---\r?\n[\s\S]{0,5000}?\r?\n---[ \t]*(?=\r?\n|$)/;

/**
 * Every heading with text under it is a question, and the text is its answer. Two headings are not questions: the
 * document's title (its introduction is skipped too), and a chapter heading, which has no text of its own and is
 * followed by a deeper heading.
 */
const readMarkdown = (text: string): Row[] => {
  const { top, blocks, inline } = readBlocks(text.replace(FRONT_MATTER, (matter) => matter.replace(/[^\n]/g, '')));
  const sections: Section[] = [];
  for (const block of top) {
    const { type, tag, map } = block.token;
    if (type !== 'heading_open') sections.at(-1)?.blocks.push(block);
    else {
      const level = Number(tag.slice('h'.length));
      sections.push({
        line: (map?.[0] ?? 0) + 1,
        level,
        question: inline(block).trim().replace(ANCHOR, ''),
        blocks: [],
      });
    }
  }
  if (sections.length === 0) throw invalid('file', 'invalid', 'has no heading: each question needs one');
  return sections.flatMap((section, index, all): Row[] => {
    const answer = blocks(section.blocks);
    const { line, level, question } = section;
    if (isTitle(section, index, all)) return [];
    if (answer !== '') return [{ line, fields: { question, answer } }];
    const isChapter = (all[index + 1]?.level ?? 0) > level;
    return isChapter ? [] : [{ line, reason: 'has no answer under it' }];
  });
};

export const KNOWLEDGE_FORMATS = ['json', 'csv', 'markdown'] as const;
export type KnowledgeFormat = (typeof KNOWLEDGE_FORMATS)[number];

type Refusal = { line: number; reason: string };
export type ParsedKnowledge = { entries: KnowledgeInput[]; refused: Refusal[] };

const READ: Record<KnowledgeFormat, (text: string) => Iterable<Row>> = {
  json: readJson,
  csv: readCsv,
  markdown: readMarkdown,
};

const EXTENSIONS: Record<string, KnowledgeFormat> = {
  json: 'json',
  csv: 'csv',
  tsv: 'csv',
  md: 'markdown',
  markdown: 'markdown',
};

/** The format of a file by the extension of its name, or null for an unknown extension. */
export const knowledgeFormatOf = (fileName: string): KnowledgeFormat | null =>
  EXTENSIONS[/\.([a-z]+)$/i.exec(fileName)?.[1]?.toLowerCase() ?? ''] ?? null;

const reasonOf = (issue: z.core.$ZodIssue): string => {
  const { field, code, message } = detailOf(issue);
  if (field === '') return message;
  return code === 'required' ? `${field} ${message}` : `${field}: ${message}`;
};

const checkRow = (fields: unknown): { entry: KnowledgeInput } | { reason: string } => {
  if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) {
    return { reason: 'must be an object with question and answer' };
  }
  if (findUnstorable(fields) !== null) return { reason: 'contains a character that is not well-formed Unicode' };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
  const parsed = check(KnowledgeInput, given);
  return parsed.success
    ? { entry: parsed.data }
    : { reason: parsed.error.issues.slice(0, MAX_DETAILS).map(reasonOf).join('; ') };
};

/** Reading stops after this many refused rows, because reporting an error costs more than reading a valid row. */
const MAX_REFUSED = 1_000;

/**
 * Reads questions and answers from a file's text. An invalid row is refused with its first line and a reason; the other
 * rows are kept. Throws if the whole file does not have the format, or has more entries than an assistant may have.
 */
export const parseKnowledge = (format: KnowledgeFormat, text: string): ParsedKnowledge => {
  const entries: KnowledgeInput[] = [];
  const refused: Refusal[] = [];
  let entry = 0;
  for (const row of READ[format](text.replace(/^\uFEFF/, ''))) {
    if (refused.length >= MAX_REFUSED) {
      refused.push({ line: row.line, reason: 'not read, nor what follows: too many rows were refused' });
      break;
    }
    entry += 1;
    const checked = 'reason' in row ? row : checkRow(row.fields);
    if ('entry' in checked) {
      if (entries.length >= MAX_KNOWLEDGE) {
        throw invalid('file', 'too_many', `must have at most ${MAX_KNOWLEDGE.toLocaleString('en')} entries`);
      }
      entries.push(checked.entry);
    } else {
      // A JSON file may be one long line, so the entry's number is more useful than its line.
      const reason = format === 'json' ? `entry ${entry}: ${checked.reason}` : checked.reason;
      refused.push({ line: row.line, reason });
    }
  }
  return { entries, refused };
};
