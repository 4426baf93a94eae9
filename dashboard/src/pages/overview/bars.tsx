import 'uplot/dist/uPlot.min.css';
import { useComputedColorScheme } from '@mantine/core';
import { useEffect, useRef } from 'react';
import UPlot from 'uplot';
import type { ChartRow, Series } from './numbers.tsx';

const HEIGHT = 190;
const BAR_SHARE = 0.7;
const WIDEST_BAR = 32;

/** A canvas needs colours as values. This reads the colours of the current scheme from the variables of the page. */
const colorsOf = (element: Element) => {
  const style = getComputedStyle(element);
  return (color: string): string => {
    const name = /^var\((--[\w-]+)\)$/.exec(color)?.[1];
    return name === undefined ? color : style.getPropertyValue(name).trim();
  };
};

/** The values of each series. In a stack, each series is drawn in front of the sum of itself and those after it. */
const valuesOf = (rows: ChartRow[], series: Series[], stacked: boolean): (number | null)[][] =>
  series.map(({ name }, at) =>
    rows.map((row) => {
      if (!stacked) return row[name] == null ? null : Number(row[name]);
      return series.slice(at).reduce((sum, one) => sum + Number(row[one.name]), 0);
    }),
  );

export type BarsProps = { rows: ChartRow[]; series: Series[]; stacked: boolean };

/** Draws the bars of a chart. Series that are not stacked are drawn as lines, so that they do not hide each other. */
const Bars = ({ rows, series, stacked }: BarsProps) => {
  const place = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme();
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const colorOf = colorsOf(element);
    const bars = UPlot.paths.bars?.({ size: [BAR_SHARE, WIDEST_BAR] });
    const isBar = stacked || series.length === 1;
    const axis = { stroke: colorOf('var(--mantine-color-dimmed)'), font: '12px ui-sans-serif, system-ui, sans-serif' };
    const grid = { stroke: colorOf('var(--line)'), width: 1 };
    const plot = new UPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: [-0.6, rows.length - 0.4] },
          y: { range: (_, __, max) => [0, Math.max(1, max * 1.08)] },
        },
        axes: [
          {
            ...axis,
            grid: { show: false },
            ticks: { show: false },
            size: 28,
            space: 56,
            incrs: [1, 2, 3, 4, 6, 7, 8, 12],
            values: (_, splits) => splits.map((at) => rows[at]?.at ?? ''),
          },
          {
            ...axis,
            grid,
            ticks: { show: false },
            size: 48,
            space: 34,
            incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6],
          },
        ],
        series: [
          {},
          ...series.map(({ label, color }): UPlot.Series => {
            const own = colorOf(color);
            return isBar && bars
              ? { label, fill: own, stroke: own, width: 0, paths: bars, points: { show: false } }
              : { label, stroke: own, width: 2, points: { show: rows.length < 10 }, spanGaps: true };
          }),
        ],
      },
      [rows.map((_, at) => at), ...valuesOf(rows, series, stacked)],
      element,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
    // The colours belong to the scheme, so the chart is drawn again when it changes.
  }, [rows, series, stacked, scheme]);
  return <div ref={place} className="chart-place" />;
};

export default Bars;
