import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

const rows = read('docs/limits.md')
  .split('\n')
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .filter(([, , , file]) => file?.startsWith('`'));
const named = rows.flatMap(([, , bound = '', file = '']) =>
  [...bound.matchAll(/`(\w+)` ([^,]+)/g)].map(([, name = '', value = '']): [string, string, string] => [
    name,
    value,
    file.replaceAll('`', ''),
  ]),
);

test.each(named)('%s is %s in %s', (name, value, file) => {
  const declared = new RegExp(`const ${name} = (.*);`).exec(read(file))?.[1];

  expect(declared).toBe(value);
});

test('every row of the page names a constant', () => {
  expect(rows.length).toBeGreaterThan(40);
  expect(rows.filter(([, , bound]) => !/`\w+` /.test(bound ?? ''))).toEqual([]);
});
