/** One question as the file has it, not yet judged, or why it could not even be read. `line` is where it begins. */
export type Row = { line: number; fields: unknown } | { line: number; reason: string };

const LINE_END = /\r\n|\n|\r/g;

export const countLineEnds = (text: string): number => text.match(LINE_END)?.length ?? 0;
