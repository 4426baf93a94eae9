import '@mantine/charts/styles.layer.css';
import { BarChart } from '@mantine/charts';
import { Section } from '../../parts/page.tsx';
import { Numbers } from './numbers.tsx';

export type Series = { name: string; label: string; color: string };
export type Row = { at: string } & Record<string, number | string>;

type Props = { title: string; description?: string; rows: Row[]; series: Series[]; stacked?: boolean };

const HEIGHT = 190;
const axis = { tickLine: false as const, axisLine: false as const };

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
          <BarChart
            h={HEIGHT}
            data={rows}
            dataKey="at"
            series={series}
            type={stacked ? 'stacked' : 'default'}
            withLegend={series.length > 1}
            legendProps={{ verticalAlign: 'bottom' }}
            gridAxis="x"
            barProps={{ isAnimationActive: false, maxBarSize: 28 }}
            barChartProps={{ accessibilityLayer: false }}
            xAxisProps={{ ...axis, minTickGap: 16 }}
            yAxisProps={{ ...axis, allowDecimals: false, width: 44 }}
            tooltipAnimationDuration={0}
          />
        </div>
      )}
      <Numbers title={title} rows={rows} series={series} />
    </Section>
  );
};
