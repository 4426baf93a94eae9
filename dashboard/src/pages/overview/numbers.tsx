import { VisuallyHidden } from '@mantine/core';

export type Series = { name: string; label: string; color: string };

/** How turns ended. */
export const TURNS: Series[] = [
  { name: 'answered', label: 'Answered', color: 'var(--good)' },
  { name: 'hedged', label: 'Hedged', color: 'var(--fair)' },
  { name: 'offered', label: 'Offered', color: 'var(--mantine-color-anchor)' },
  { name: 'notAnswered', label: 'Not answered', color: 'var(--warn)' },
  { name: 'rest', label: 'Other', color: 'var(--calm)' },
];

/** `null`: there was nothing to measure. */
export type ChartRow = { at: string } & Record<string, number | string | null>;

const AS_TABLE = 'Show the numbers';

/** The numbers of a chart as a table. Rows without a number are left out. */
export const Numbers = ({ title, rows, series }: { title: string; rows: ChartRow[]; series: Series[] }) => {
  const filled = rows.filter((row) => series.some(({ name }) => row[name]));
  if (filled.length === 0) return null;
  return (
    <details className="numbers">
      <summary>
        {AS_TABLE}
        <VisuallyHidden> of {title}</VisuallyHidden>
      </summary>
      <section className="numbers-scroll" aria-label={`Numbers of ${title}`} tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">When</th>
              {series.map(({ name, label }) => (
                <th key={name} scope="col">
                  {label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {filled.map((row) => (
              <tr key={row.at}>
                <th scope="row">{row.at}</th>
                {series.map(({ name }) => (
                  <td key={name} className="num">
                    {row[name] ?? '–'}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </details>
  );
};
