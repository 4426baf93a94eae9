import { type ComponentType, lazy, Suspense } from 'react';
import { Section } from '../../parts/page.tsx';
import type { BarsProps } from './bars.tsx';
import { type ChartRow, Numbers, type Series } from './numbers.tsx';

type Props = { title: string; description?: string; rows: ChartRow[]; series: Series[]; stacked?: boolean };

/**
 * The library is loaded on demand. It reads the browser's language when it is loaded, and fails if that is not a valid
 * tag. The numbers below the chart are enough then.
 */
const Bars = lazy<ComponentType<BarsProps>>(() => import('./bars.tsx').catch(() => ({ default: () => null })));

/**
 * A small chart with its numbers as a table. The chart is hidden from screen readers, which read the table. It has no
 * animation, so that a refresh does not draw attention.
 */
export const Chart = ({ title, description, rows, series, stacked = false }: Props) => {
  const isEmpty = rows.every((row) => series.every(({ name }) => !row[name]));
  return (
    <Section title={title} {...(description !== undefined && { description })}>
      {isEmpty ? (
        <p className="chart-none dim">Nothing in this time.</p>
      ) : (
        <div className="chart" aria-hidden="true">
          <Suspense fallback={<div className="chart-place" />}>
            <Bars rows={rows} series={series} stacked={stacked} />
          </Suspense>
          {series.length > 1 && (
            <ul className="share-list">
              {series.map(({ name, label, color }) => (
                <li key={name}>
                  <svg className="share-dot" viewBox="0 0 9 9">
                    <rect width="9" height="9" rx="3" fill={color} />
                  </svg>
                  {label}
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
      <Numbers title={title} rows={rows} series={series} />
    </Section>
  );
};
