/** Replaces control characters, so that text cannot control the terminal. Line breaks are kept. */
export const plain = (text: string): string => text.replace(/(?!\n)\p{Cc}/gu, '\uFFFD');

const GAP = '  ';

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** A time in ISO format, without milliseconds. */
export const timeOf = (time: string | null | undefined): string =>
  time ? time.replace('T', ' ').replace(/\.\d+Z$/, 'Z') : '–';

export const msOf = (ms: number | null | undefined): string => (ms == null ? '–' : `${Math.round(ms)} ms`);

const asCell = (value: unknown): string => {
  if (value === null || value === undefined || value === '') return '–';
  if (typeof value === 'string' && TIME.test(value)) return timeOf(value);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return plain(text).replaceAll('\n', ' ');
};

/** Aligned columns, or `nothing` if there are no rows. */
export const table = (headings: string[], rows: unknown[][], nothing = 'Nothing here.'): string => {
  if (rows.length === 0) return nothing;
  const cells = [headings, ...rows.map((row) => row.map(asCell))];
  const widths = headings.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  return cells
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join(GAP)
        .trimEnd(),
    )
    .join('\n');
};

/** Names and values, one pair per line. */
export const fields = (named: Record<string, unknown>): string => {
  const width = Math.max(...Object.keys(named).map((name) => name.length));
  return Object.entries(named)
    .map(([name, value]) => `${name.padEnd(width)}${GAP}${asCell(value)}`)
    .join('\n');
};
