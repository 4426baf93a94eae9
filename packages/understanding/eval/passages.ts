import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Half } from './sets.ts';

/** A part of a page, as it would be stored of a document. `sections` are its headings, each behind
 * its page's name. */
export type Passage = { site: string; sections: string[]; text: string };

export type PassageQuestion = {
  half: Half;
  message: string;
  /** Whether a passage answers it. */
  isAnswer: (passage: Passage) => boolean;
  isAnswerable: boolean;
};

const MODULES = join(import.meta.dirname, '../../../node_modules');
/** The pages of each site. They belong to installed packages, whose versions are locked. */
const SITES: Record<string, string[]> = {
  http: ['undici/docs/docs/**/*.md'],
  logs: ['pino/docs/*.md', 'pino-pretty/Readme.md', 'thread-stream/README.md', 'sonic-boom/README.md'],
  data: ['ioredis', 'mongodb', 'mongoose', 'mquery', 'connect-mongo', 'express-session', 'bson', 'sift'].map(
    (name) => `${name}/README.md`,
  ),
  tools: [
    'commander/Readme.md',
    ...['wouter', 'yauzl', 'prom-client', 'lru-cache', 'helmet', 'cron-parser', 'qs', 'fast-check'].map(
      (name) => `${name}/README.md`,
    ),
  ],
};

const OTHER_PAGES = [
  'body-parser',
  'semver',
  'router',
  'picomatch',
  'magic-string',
  'rate-limiter-flexible',
  'debug',
].map((name) => `${name}/README.md`);

/** A passage has at most so many words, and aims at so many at least. */
const WORDS = { most: 160, least: 60 };
/** What is shorter and stands alone says hardly more than its heading. */
const LEAST_OF_PASSAGE = 15;

/** What a reader of the page sees: links by their words, without pictures, marks and raw HTML. */
const readableLine = (line: string): string =>
  line
    .split('`')
    .map((part, nth) => (nth % 2 === 1 ? part : part.replaceAll(/<[^>]*>/g, '')))
    .join(' ')
    .replaceAll(/!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])/g, '')
    .replaceAll(/\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])/g, '$1')
    .replaceAll(/[*|]+|-{3,}/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim();

/** The sections of a page in order, each with its words. Blocks of code are left out. */
const sectionsOf = (page: string): { heading: string; words: string[] }[] => {
  const sections: { heading: string; words: string[] }[] = [{ heading: '', words: [] }];
  let isCode = false;
  for (const line of page.replaceAll(/<!--[\s\S]*?-->/g, '').split('\n')) {
    if (/^\s*(```|~~~)/.test(line)) isCode = !isCode;
    else if (!isCode) {
      const [, heading] = /^#+ +(.*?)#*$/.exec(line) ?? [];
      if (heading !== undefined) sections.push({ heading: readableLine(heading), words: [] });
      else sections.at(-1)?.words.push(...readableLine(line).split(' ').filter(Boolean));
    }
  }
  return sections;
};

/** Cuts a text into parts of a passage's length, between words. */
const cut = (words: string[]): string[] => {
  const parts = Math.ceil(words.length / WORDS.most);
  const size = Math.ceil(words.length / parts);
  return Array.from({ length: parts }, (_, nth) => words.slice(nth * size, (nth + 1) * size).join(' '));
};

/** Short sections that follow each other are one passage. */
const passagesOf = (site: string, file: string): Passage[] => {
  const sections = sectionsOf(readFileSync(join(MODULES, file), 'utf8'));
  const title = sections.find(({ heading }) => heading !== '')?.heading ?? '';
  const name = file.replace(/^undici\/docs\/docs\//, '').replace(/\.md$/i, '');
  const passages: Passage[] = [];
  let open: { headings: string[]; words: string[] } = { headings: [], words: [] };
  const close = (): void => {
    const first = open.headings.find((heading) => heading !== '') ?? title;
    const path = first === title ? title : `${title}: ${first}`;
    const inside = open.headings.map((heading) => `${name}#${heading}`);
    if (open.words.length >= LEAST_OF_PASSAGE)
      for (const text of cut(open.words)) passages.push({ site, sections: inside, text: `${path}\n${text}` });
    open = { headings: [], words: [] };
  };
  for (const { heading, words } of sections) {
    if (open.words.length + words.length > WORDS.most || open.words.length >= WORDS.least) close();
    open.words.push(...(open.headings.length > 0 ? heading.split(' ') : []), ...words);
    open.headings.push(heading);
  }
  close();
  return passages;
};

const passagesOfSites = (sites: Record<string, string[]>): Passage[] =>
  Object.entries(sites).flatMap(([site, patterns]) =>
    globSync(patterns, { cwd: MODULES })
      .toSorted()
      .flatMap((file) => passagesOf(site, file)),
  );

export const loadPassages = (): Passage[] => passagesOfSites(SITES);

/** Passages of other pages, to which the projection of token vectors is fitted. */
export const loadOtherPassages = (): Passage[] => passagesOfSites({ other: OTHER_PAGES });

/** A question belongs to a half by its hash, which was so before anything was measured. */
const halfOf = (message: string): Half =>
  (createHash('sha256').update(message).digest()[0] as number) % 2 === 0 ? 'tune' : 'report';

/** `page#heading`, and after `~` words that only the right passage of a long section has. `-`: none answers it. */
export const loadPassageQuestions = (): PassageQuestion[] =>
  readFileSync(new URL('passages.tsv', import.meta.url), 'utf8')
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => {
      const [expected = '', message = ''] = line.split('\t');
      const [section = '', words = ''] = expected.split('~');
      const isAnswer = ({ sections, text }: Passage): boolean => sections.includes(section) && text.includes(words);
      return { half: halfOf(message), message, isAnswer, isAnswerable: expected !== '-' };
    });
