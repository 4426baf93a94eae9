import { type CsvError, parse } from 'csv-parse/sync';
import { invalid } from '../../platform/errors.ts';
import { countLineEnds, type Row } from './row.ts';

const COLUMNS = ['question', 'variants', 'answer', 'language', 'actions', 'tags'] as const;
type Column = (typeof COLUMNS)[number];

/** A quote that is never closed swallows the rest of a file; so many times reading goes on behind such a line. */
const MAX_RESTARTS = 100;

type Raw = { record: string[]; raw: string; info: { lines: number } };

const splitCell = (cell: string, by: RegExp): string[] =>
  cell
    .split(by)
    .map((part) => part.trim())
    .filter((part) => part !== '');

const fromJson = (cell: string): unknown => {
  try {
    return JSON.parse(cell);
  } catch {
    return cell; // a string where a list belongs: the schema refuses it by name
  }
};

/** `label | type | payload`, one action a line. */
const actionsOf = (cell: string) =>
  splitCell(cell, /[\r\n]+/).map((line) => {
    const [label, type, ...payload] = line.split('|').map((part) => part.trim());
    return { label, type, payload: payload.join('|') };
  });

const LISTS: Partial<Record<Column, (cell: string) => unknown>> = {
  variants: (cell) => splitCell(cell, /[|\r\n]+/),
  tags: (cell) => splitCell(cell, /[|;,\r\n]+/),
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

/** What a spreadsheet writes: commas, or semicolons where the comma is the decimal sign, or tabs. */
const delimiterOf = (text: string): string => {
  const heading = /^[^\r\n]*/.exec(text.trimStart())?.[0] ?? '';
  return [',', ';', '\t'].reduce((best, one) => (heading.split(one).length > heading.split(best).length ? one : best));
};

const readRecords = (text: string, delimiter: string) => {
  let broken: { line: number; rest: string; restLine: number } | null = null;
  const raws = parse(text, {
    delimiter,
    info: true,
    raw: true,
    relax_column_count: true,
    relax_quotes: true,
    skip_empty_lines: true,
    skip_records_with_error: true,
    on_skip: (failure: CsvError | undefined, raw: string | undefined) => {
      const body = (raw ?? '').trimStart();
      const line = Number(failure?.['lines'] ?? 1) - countLineEnds(body);
      const rest = body.replace(/^[^\r\n]*(\r\n|\n|\r)?/, '');
      broken = { line, rest, restLine: line + 1 };
    },
  }) as unknown as Raw[]; // `info` and `raw` together give this shape
  const records = raws.map(({ record, raw, info }) => ({
    cells: record,
    line: info.lines - countLineEnds(raw.trim()),
  }));
  return { records, broken: broken as { line: number; rest: string; restLine: number } | null };
};

/** CSV with a heading line; headings in any order and case, unknown ones are passed over. */
export const readCsv = (text: string): Row[] => {
  const delimiter = delimiterOf(text);
  let { records, broken } = readRecords(text, delimiter);
  const [heading, ...first] = records;
  const columns = (heading?.cells ?? []).map(
    (name) => COLUMNS.find((column) => column === name.trim().toLowerCase()) ?? null,
  );
  const missing = ['question', 'answer'].filter((name) => !columns.some((column) => column === name));
  if (missing.length > 0)
    throw invalid('file', 'invalid', `needs a first line with the heading ${missing.join(' and ')}`);

  const rows = first.map(({ cells, line }) => toRow(line, cells, columns));
  for (let restarts = 0; broken && restarts < MAX_RESTARTS; restarts += 1) {
    rows.push({ line: broken.line, reason: 'has a quote that is never closed' });
    const { rest, restLine } = broken;
    ({ records, broken } = readRecords(rest, delimiter));
    rows.push(...records.map(({ cells, line }) => toRow(restLine + line - 1, cells, columns)));
    if (broken) broken = { ...broken, line: restLine + broken.line - 1, restLine: restLine + broken.restLine - 1 };
  }
  if (broken) rows.push({ line: broken.line, reason: 'too many quotes are never closed: the rest was not read' });
  return rows;
};
