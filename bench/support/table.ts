import { isMet, limitTextOf } from '../limits.ts';
import type { Figure } from './figures.ts';

export const numberText = (value: number): string => {
  if (!Number.isFinite(value)) return '–';
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
};

export const valueText = ({ value, min, max, unit }: Figure): string => {
  const spread = min === undefined || max === undefined ? '' : ` (${numberText(min)}–${numberText(max)})`;
  return `${numberText(value)}${spread} ${unit}`;
};

const VERDICTS = new Map([
  [true, 'met'],
  [false, 'MISSED'],
]);

export const rowOf = (figure: Figure): string[] => {
  const met = isMet(figure);
  return [figure.what, valueText(figure), limitTextOf(figure), (met !== null && VERDICTS.get(met)) || ''];
};

export const tableOf = (figures: Figure[]): string => {
  const rows = [['figure', 'median (min–max)', 'limit', ''], ...figures.map(rowOf)];
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
};
