/** Text from outside must not steer the terminal. Line breaks stay. */
export const plain = (text: string): string => text.replace(/(?!\n)\p{Cc}/gu, '\uFFFD');

const GAP = '  ';

export const timeOf = (time: Date | null | undefined): string =>
  time
    ? time
        .toISOString()
        .replace('T', ' ')
        .replace(/\.\d+Z$/, 'Z')
    : '–';

export const msOf = (ms: number | null | undefined): string => (ms == null ? '–' : `${Math.round(ms)} ms`);

const asCell = (value: unknown): string => {
  if (value === null || value === undefined || value === '') return '–';
  if (value instanceof Date) return timeOf(value);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return plain(text).replaceAll('\n', ' ');
};

/** Columns side by side; `nothing` where there are no rows. */
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

/** One thing's fields, a line each. */
export const fields = (named: Record<string, unknown>): string => {
  const width = Math.max(...Object.keys(named).map((name) => name.length));
  return Object.entries(named)
    .map(([name, value]) => `${name.padEnd(width)}${GAP}${asCell(value)}`)
    .join('\n');
};
