import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const GENERATED = /(?<=<!-- generated: .* -->\n\n)[^]*?(?=\n\n<!-- end of the generated part -->)/;

/**
 * Compares the part of a page between its two comments with `generated`. With UPDATE=1 in the environment it writes that
 * part first.
 */
export const expectGenerated = (page: string, generated: string): void => {
  const file = join(ROOT, page);
  const text = readFileSync(file, 'utf8');
  const [now] = GENERATED.exec(text) ?? [];
  if (process.env.UPDATE === '1')
    writeFileSync(
      file,
      text.replace(GENERATED, () => generated),
    );
  else expect(now, `${page} is outdated: run its test with UPDATE=1`).toBe(generated);
};

/** A table in Markdown. */
export const tableOf = (heading: string[], rows: string[][]): string =>
  [heading, heading.map(() => '---'), ...rows]
    .map((cells) => (cells[0] === '---' ? `|${cells.join('|')}|` : `| ${cells.join(' | ')} |`))
    .join('\n');
