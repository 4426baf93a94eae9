import type * as z from 'zod';
import { invalid, MAX_DETAILS } from '../platform/errors.ts';
import { findUnstorable } from '../platform/storable.ts';
import { check, detailOf } from '../platform/validation.ts';
import { readCsv } from './knowledge-import/csv.ts';
import { readJson } from './knowledge-import/json.ts';
import { readMarkdown } from './knowledge-import/markdown.ts';
import type { Row } from './knowledge-import/row.ts';
import { KnowledgeInput, MAX_KNOWLEDGE } from './knowledge-input.ts';

export const KNOWLEDGE_FORMATS = ['json', 'csv', 'markdown'] as const;
export type KnowledgeFormat = (typeof KNOWLEDGE_FORMATS)[number];

export type Refusal = { line: number; reason: string };
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
