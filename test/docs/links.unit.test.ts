import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const PAGES = globSync(['*.md', '{docs,bench,chaos}/*.md', 'packages/*/{,eval/}*.md'], { cwd: ROOT });

/** The addresses of the headings of a page, as the forge makes them. */
const anchorsOf = (file: string): string[] =>
  [...readFileSync(file, 'utf8').matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );

const isBroken = (page: string, link: string): boolean => {
  const [path = '', anchor] = link.split('#');
  const file = path === '' ? join(ROOT, page) : join(ROOT, dirname(page), path);
  if (!existsSync(file)) return true;
  return anchor !== undefined && !anchorsOf(file).includes(anchor);
};

test.for(PAGES)('the links of %s lead to files and headings that exist', (page) => {
  const text = readFileSync(join(ROOT, page), 'utf8').replace(/```[^]*?```/g, '');
  const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);

  expect(links.filter((link) => !/^\w+:/.test(link) && isBroken(page, link))).toEqual([]);
});
