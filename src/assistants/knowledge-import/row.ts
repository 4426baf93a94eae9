/**
 * One question as written in the file, before validation, or the reason why the question cannot be read. `line` is the
 * first line of the question.
 */
export type Row = { line: number; fields: unknown } | { line: number; reason: string };

const LINE_END = /\r\n|\n|\r/g;

export const countLineEnds = (text: string): number => text.match(LINE_END)?.length ?? 0;
