import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { WORDS } from '../../src/alerts/notify.ts';

/** The rows of the table of alerts: the kinds in the first cell, what to do in the last one. */
const rows = readFileSync(join(import.meta.dirname, '../../docs/operating.md'), 'utf8')
  .split('\n')
  .map((line) => /^\| (`.*`) \|.*\| (.*) \|$/.exec(line))
  .flatMap((row) =>
    row ? [{ kinds: [...(row[1]?.matchAll(/\w+/g) ?? [])].map(([kind]) => kind), remedy: row[2] ?? '' }] : [],
  );

test.each(Object.entries(WORDS))('%s: the page says what its alert says, in ASCII', (kind, { title, remedy }) => {
  expect(rows.find(({ kinds }) => kinds.includes(kind))?.remedy).toContain(remedy);
  expect(`${title} ${remedy}`).toMatch(/^[ -~]+$/);
});
