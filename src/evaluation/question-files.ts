import { Readable } from 'node:stream';
import { parse } from 'csv-parse';
import { delimiterOf, withoutDelimiterLine } from '../assistants/knowledge/import.ts';
import { csvLine } from '../platform/http/json-body.ts';
import { invalid } from '../platform/process/errors.ts';
import { createSlices } from '../platform/process/slices.ts';
import { check, detailOf, findUnstorable } from '../platform/process/validation.ts';
import { CaseInput } from './question.ts';
import { CASES_MAX } from './question-sets.ts';

export const QUESTION_FORMATS = ['csv', 'jsonl'] as const;
type QuestionFormat = (typeof QUESTION_FORMATS)[number];

const COLUMNS = ['question', 'language', 'expect', 'value', 'passage'] as const;
/** The field of an expected answer that the column `value` holds. */
const VALUE_OF: Record<string, string> = { entry: 'entry', page: 'page', text: 'text' };
const REFUSED_MAX = 100;
/** A longer line is refused unread. */
const LINE_MAX = 16_384;
/** The maximum number of rows of a file, blank ones included. */
const ROWS_MAX = 10_000;
/** How many characters are parsed in one step. */
const CHUNK = 4_096;

/** Null: a blank row. */
type Row = { line: number; fields: unknown } | { line: number; reason: string } | null;
type Refusal = { line: number; reason: string };

const caseOf = (named: Partial<Record<(typeof COLUMNS)[number], string>>): unknown => {
  const { question, language, expect = '', value, passage } = named;
  const kind = expect.trim().toLowerCase();
  const held = Object.hasOwn(VALUE_OF, kind) ? { [String(VALUE_OF[kind])]: value } : {};
  return { question, language: language || null, expected: { kind, ...held, ...(passage && { passage }) } };
};

async function* chunksOf(text: string): AsyncGenerator<string> {
  const slices = createSlices();
  for (let from = 0; from < text.length; from += CHUNK) {
    yield text.slice(from, from + CHUNK);
    if (slices.isOver()) await slices.next();
  }
}

/** Reads CSV with a heading line, its columns in any order. A file with a broken quote is refused as a whole. */
async function* readCsvCases(text: string): AsyncGenerator<Row> {
  const parser = parse({
    bom: true,
    delimiter: delimiterOf(text, LINE_MAX),
    info: true,
    max_record_size: LINE_MAX,
    relax_column_count: true,
    skip_empty_lines: true,
  });
  let columns: { column: (typeof COLUMNS)[number]; nth: number }[] | null = null;
  let line = 1;
  const unreadable = () =>
    invalid('text', 'invalid', `cannot be read from line ${line} on: a quote is not closed, or a row is too long`);
  try {
    const records = Readable.from(chunksOf(withoutDelimiterLine(text))).pipe(parser) as AsyncIterable<{
      info: { lines: number };
      record: string[];
    }>;
    for await (const { info, record } of records) {
      if (record.length > LINE_MAX) throw unreadable(); // the parser does not count delimiters
      if (columns) {
        const cellOf = (nth: number) => record[nth]?.trim().replace(/^'(?='*[=+\-@])/, '');
        const named = columns.map(({ column, nth }) => [column, cellOf(nth)]);
        const isBlank = record.every((cell) => cell.trim() === '');
        yield isBlank ? null : { line, fields: caseOf(Object.fromEntries(named)) };
      } else {
        const names = record.map((name) => name.trim().toLowerCase());
        columns = COLUMNS.map((column) => ({ column, nth: names.lastIndexOf(column) })).filter(({ nth }) => nth >= 0);
        if (!names.includes('question') || !names.includes('expect'))
          throw invalid('text', 'invalid', 'needs a first line with the headings question and expect');
      }
      line = info.lines + 1;
    }
  } catch (cause) {
    if (!(cause instanceof Error && 'code' in cause && String(cause.code).startsWith('CSV_'))) throw cause;
    throw unreadable();
  }
}

function* readLines(text: string): Generator<Row> {
  let line = 0;
  for (let from = text.startsWith('\uFEFF') ? 1 : 0; from < text.length; ) {
    const next = text.indexOf('\n', from);
    const end = next < 0 ? text.length : next;
    const one = text.slice(from, end);
    from = end + 1;
    line += 1;
    if (one.trim() === '') {
      yield null;
      continue;
    }
    if (one.length > LINE_MAX) {
      yield { line, reason: 'is too long' };
      continue;
    }
    try {
      yield { line, fields: JSON.parse(one) };
    } catch {
      yield { line, reason: 'is not valid JSON' };
    }
  }
}

const reasonOf = (fields: unknown): { input: CaseInput } | { reason: string } => {
  if (findUnstorable(fields) !== null) return { reason: 'contains a character that is not well-formed Unicode' };
  const parsed = check(CaseInput, fields);
  if (parsed.success) return { input: parsed.data };
  const details = parsed.error.issues.slice(0, 3).map(detailOf);
  return { reason: details.map(({ field, message }) => `${field} ${message}`.trim()).join('; ') };
};

/** Reads the questions of a file. A wrong row is refused with its line, and the others are read. */
export const readQuestions = async (
  format: QuestionFormat,
  text: string,
): Promise<{ cases: CaseInput[]; refused: Refusal[] }> => {
  const cases: CaseInput[] = [];
  const refused: Refusal[] = [];
  const slices = createSlices();
  let rows = 0;
  for await (const row of format === 'csv' ? readCsvCases(text) : readLines(text)) {
    rows += 1;
    if (rows > ROWS_MAX)
      throw invalid('text', 'too_many', `must have at most ${ROWS_MAX.toLocaleString('en')} rows, also blank ones`);
    if (slices.isOver()) await slices.next();
    if (!row) continue;
    const read = 'reason' in row ? row : reasonOf(row.fields);
    if ('input' in read) cases.push(read.input);
    else refused.push({ line: row.line, reason: read.reason });
    if (cases.length > CASES_MAX)
      throw invalid('text', 'too_many', `must have at most ${CASES_MAX.toLocaleString('en')} questions`);
    if (refused.length > REFUSED_MAX)
      throw invalid(
        'text',
        'invalid',
        `has more than ${REFUSED_MAX} wrong rows, the first in line ${refused[0]?.line}`,
      );
  }
  return { cases, refused };
};

const valueOf = (expected: CaseInput['expected']): string => {
  switch (expected.kind) {
    case 'entry':
      return expected.entry;
    case 'page':
      return expected.page;
    case 'text':
      return expected.text;
    case 'none':
      return '';
  }
};

/** The lines of a file with these questions, as `readQuestions` reads them. */
export function* writeQuestions(
  format: QuestionFormat,
  cases: CaseInput[],
  { heading = true } = {},
): Generator<string> {
  if (heading && format === 'csv') yield csvLine([...COLUMNS]);
  for (const { question, language, expected } of cases) {
    if (format === 'jsonl') yield `${JSON.stringify({ question, language, expected })}\n`;
    else {
      const passage = expected.kind === 'page' ? (expected.passage ?? '') : '';
      yield csvLine([question, language ?? '', expected.kind, valueOf(expected), passage]);
    }
  }
}
