import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const GENERATED = /(?<=<!-- generated: .* -->\n\n)[^]*?(?=\n\n<!-- end of the generated part -->)/;

/**
 * The part of a page between its two comments, which must be `generated`. With UPDATE=1 in the environment, that part is
 * written first.
 */
export const generatedPartOf = (page: string, generated: string): string | undefined => {
  const file = join(ROOT, page);
  const text = readFileSync(file, 'utf8');
  if (process.env.UPDATE !== '1') return GENERATED.exec(text)?.[0];
  writeFileSync(
    file,
    text.replace(GENERATED, () => generated),
  );
  return generated;
};

/** A table in Markdown. */
export const tableOf = (heading: string[], rows: string[][]): string =>
  [heading, heading.map(() => '---'), ...rows]
    .map((cells) => (cells[0] === '---' ? `|${cells.join('|')}|` : `| ${cells.join(' | ')} |`))
    .join('\n');
