import { type Options, parse } from 'csv-parse/sync';
import { invalid } from '../../platform/errors.ts';
import type { Row } from './row.ts';

const COLUMNS = ['question', 'variants', 'answer', 'language', 'actions', 'tags'] as const;
type Column = (typeof COLUMNS)[number];

/** After each broken row, the parser starts again on the rest of the file. These limits bound the total time. */
const MAX_RESTARTS = 100;
const MAX_READ_AGAIN = 16_000_000;

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

/** The delimiter of the file. Spreadsheets write commas or tabs, and semicolons where the comma is the decimal sign. */
const delimiterOf = (text: string): string => {
  const heading = /^[^\r\n]*/.exec(text.trimStart())?.[0] ?? '';
  return [',', ';', '\t'].reduce((best, one) => (heading.split(one).length > heading.split(best).length ? one : best));
};

const parseRecords = (text: string, options: Options, each: (cells: string[], endLine: number) => void): void => {
  parse(text, {
    relax_column_count: true,
    skip_empty_lines: true,
    ...options,
    on_record: (cells: string[], { lines }: { lines: number }) => {
      each(cells, lines);
      return cells;
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
    try {
      parseRecords(lines.slice(from).join('\n'), { delimiter }, (cells, endLine) => {
        read.push({ line: beginAfter(unread) + 1, cells });
        unread = from + endLine;
      });
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
export const readCsv = (text: string): Row[] => {
  const [heading, ...rows] = readRecords(text.replace(/\r\n?/g, '\n'), delimiterOf(text));
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
