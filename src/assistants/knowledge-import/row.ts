/**
 * One question as the file has it, before validation, or the reason why it cannot be read. `line` is its first line.
 */
export type Row = { line: number; fields: unknown } | { line: number; reason: string };

const LINE_END = /\r\n|\n|\r/g;

export const countLineEnds = (text: string): number => text.match(LINE_END)?.length ?? 0;
