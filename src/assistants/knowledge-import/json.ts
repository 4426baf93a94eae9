import { invalid } from '../../platform/errors.ts';
import { countLineEnds, type Row } from './row.ts';

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

const parse = (text: string): { fields: unknown } | { reason: string } => {
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
    yield { line: lineOf(start + element.search(/\S/)), ...parse(element) };
  }
  if (closedAt === null) yield { line: lineOf(text.trimEnd().length), reason: 'the file ends before the closing ]' };
}
