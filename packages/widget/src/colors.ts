type Rgb = [number, number, number];

const parse = (hex: string): Rgb => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)) as Rgb;

const toHex = (rgb: Rgb): string => `#${rgb.map((one) => Math.round(one).toString(16).padStart(2, '0')).join('')}`;

const luminance = (rgb: Rgb): number => {
  const [red, green, blue] = rgb.map((one) => {
    const part = one / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as Rgb;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

/** The contrast of two colours by WCAG, 1 to 21. */
export const contrast = (one: string, other: string): number => {
  const [high, low] = [luminance(parse(one)), luminance(parse(other))].toSorted((a, b) => b - a) as [number, number];
  return (high + 0.05) / (low + 0.05);
};

const INK = '#14161a';
const PAPER = '#ffffff';

/** White or ink, whichever is easier to read on the colour. White is preferred where it is readable. */
export const textOn = (color: string): string =>
  contrast(PAPER, color) >= 4.5 || contrast(PAPER, color) >= contrast(INK, color) ? PAPER : INK;

const STEPS = 20;

/** The colour, or the nearest shade of it that has this contrast to the background. */
export const readable = (color: string, background: string, least: number): string => {
  const towards = parse(contrast(PAPER, background) > contrast(INK, background) ? '#ffffff' : '#000000');
  const from = parse(color);
  for (let step = 0; step <= STEPS; step += 1) {
    const mixed = toHex(from.map((one, at) => one + ((towards[at] as number) - one) * (step / STEPS)) as Rgb);
    if (contrast(mixed, background) >= least) return mixed;
  }
  return toHex(towards);
};
