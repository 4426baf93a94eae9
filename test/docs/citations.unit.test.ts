import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { FAULTS } from '../kit/planted.ts';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const CODE = '{src,workers,bench,chaos,scripts,dashboard/src,packages,test}/**/*.{ts,tsx,js}';

/** Joins the lines of comments, because a citation may continue on the next line. */
const withoutLineBreaks = (code: string): string => code.replace(/\n *(?:\*|\/\/) ?/g, ' ');

const headingsOf = (page: string): string[] =>
  [...read(page).matchAll(/^#{2,4} (.+)$/gm)].map(([, heading = '']) => heading);

const isHeading = (page: string, cited: string): boolean =>
  headingsOf(page).some((heading) => cited.startsWith(heading) && !/\w/.test(cited.charAt(heading.length)));

test('every section of a page that a comment cites exists', () => {
  const citations = globSync(CODE, { cwd: ROOT, exclude: ['**/node_modules/**'] }).flatMap((file) =>
    [
      ...withoutLineBreaks(read(file)).matchAll(/(docs\/[\w-]+\.md), ([A-Z].{0,80})|\((docs\/[\w-]+\.md), (.{1,80})/g),
    ].map(([, page, cited, otherPage, otherCited]) => ({
      file,
      page: page ?? otherPage ?? '',
      cited: cited ?? otherCited ?? '',
    })),
  );
  const missing = citations.filter(({ page, cited }) => !isHeading(page, cited));

  expect(citations.length).toBeGreaterThan(50);
  expect(missing).toEqual([]);
});

test('each planted fault still stands once in its file, and the test that notices it is there', () => {
  const stale = Object.entries(FAULTS).flatMap(([name, faults]) =>
    faults
      .filter(({ file, from, noticedBy }) => read(file).split(from).length !== 2 || !existsSync(join(ROOT, noticedBy)))
      .map(({ file }) => `${name}: ${file}`),
  );
  expect(stale).toEqual([]);
});
