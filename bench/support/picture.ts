export type Bar = { label: string; parts: [name: string, value: number][] };

const WIDTH = 900;
const LEFT = 230;
const RIGHT = 70;
const BAR = 26;
const GAP = 12;
const TOP = 70;
const COLOURS = ['#4269d0', '#efb118', '#ff725c', '#6cc5b0', '#9c6b4e', '#a463f2'];

const text = (x: number, y: number, content: string, more = ''): string =>
  `<text x="${x}" y="${y}" ${more}>${content}</text>`;

/** Draws one stacked bar per entry. All bars have the same scale. */
export const pictureOf = (title: string, bars: Bar[]): string => {
  const totalOf = ({ parts }: Bar): number => parts.reduce((sum, [, value]) => sum + value, 0);
  const scale = (WIDTH - LEFT - RIGHT) / Math.max(1, ...bars.map(totalOf));
  const names = bars[0]?.parts.map(([name]) => name) ?? [];
  const legend = names.map((name, index) => {
    const x = LEFT + index * 130;
    return `<rect x="${x}" y="38" width="12" height="12" fill="${COLOURS[index]}"/>${text(x + 17, 48, name)}`;
  });
  const rows = bars.map((bar, row) => {
    const y = TOP + row * (BAR + GAP);
    let x = LEFT;
    const stack = bar.parts.map(([, value], index) => {
      const width = value * scale;
      const rect = `<rect x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${BAR}" fill="${COLOURS[index]}"/>`;
      const label = width > 28 ? text(x + width / 2, y + 17, value.toFixed(0), 'text-anchor="middle" fill="#fff"') : '';
      x += width;
      return rect + label;
    });
    const total = text(x + 6, y + 17, totalOf(bar).toFixed(0));
    return text(LEFT - 10, y + 17, bar.label, 'text-anchor="end"') + stack.join('') + total;
  });
  const height = TOP + bars.length * (BAR + GAP) + 10;
  const open = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="12">`;
  const background = `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`;
  return [open, background, text(LEFT, 22, title, 'font-size="15"'), ...legend, ...rows, '</svg>', ''].join('\n');
};
