import { expect, test } from 'vitest';
import {
  createScope,
  folderOf,
  createGlob,
  normalisedUrl,
  parseRobots,
  parseSitemap,
  readSitemaps,
  securedUrl,
} from '../../src/sources/site-rules.ts';
import { PAGES_OF_SITE_MAX } from '../../src/sources/source.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';

test.each([
  ['', '/a', true],
  ['User-agent: *\nDisallow: /', '/a', false],
  ['User-agent: *\nDisallow:', '/a', true],
  ['User-agent: *\nDisallow: /\nAllow: /public', '/public/a', true],
  ['User-agent: *\nAllow: /a\nDisallow: /a', '/a', true],
  ['User-agent: other\nDisallow: /', '/a', true],
  ['User-agent: *\nDisallow: /\n\nUser-agent: ParleyBot\nAllow: /', '/a', true],
  ['user-agent: parleybot/1.0 # ours\ndisallow: /a', '/a', false],
  ['User-agent: x\nUser-agent: ParleyBot\nDisallow: /a', '/a', false],
  ['User-agent: *\nDisallow: /*.pdf$', '/docs/a.pdf', false],
  ['User-agent: *\nDisallow: /*.pdf$', '/docs/a.pdf?x=1', true],
  ['User-agent: *\nDisallow: /a%3cd.html', '/a%3Cd.html', false],
  ['User-agent: *\nDisallow: /ü', '/%C3%BC', false],
  ['User-agent: *\nDisallow: /?search=', '/?search=a', false],
  ['\uFEFFUser-agent: *\r\nDisallow: /a\r\n', '/a', false],
  ['Disallow: /', '/a', true],
])('robots.txt %j lets %s be read: %s', async (text, path, allowed) => {
  const { allows } = await parseRobots(text);

  expect(await allows(path)).toBe(allowed);
});

test('robots.txt names sitemaps and a delay', async () => {
  const text = 'Sitemap: https://a.example/s.xml\nUser-agent: *\nCrawl-delay: 2.5';
  const { sitemaps, crawlDelayMs } = await parseRobots(text);

  expect([sitemaps, crawlDelayMs]).toEqual([['https://a.example/s.xml'], 2_500]);
});

test.each([
  ['/help/a', '/help/*', true],
  ['/help/a/b', '/help/*', false],
  ['/help/a/b', '/help/**', true],
  ['/help', '/help/**', false],
  ['/de/help/x', '/*/help/**', true],
  ['/a/b/help/x', '/*/help/**', false],
  ['/a.html', '/*.html', true],
  ['/a.htm', '/*.html', false],
  ['/', '/', true],
  ['/a/b/c/d', '/a/**/d', true],
  ['/a/b/c/d', '/a/*/d', false],
  [`/${'a'.repeat(80)}/b`, `/${'a'.repeat(80)}/*`, true],
  [`/${'a'.repeat(81)}/b`, `/${'a'.repeat(80)}/*`, false],
])('%s and the glob %s: %s', (path, glob, matches) => {
  expect(createGlob(glob)(path)).toBe(matches);
});

test('a glob matches as the same regular expression does', () => {
  const text = (characters: string[]): string =>
    Array.from(
      { length: Math.floor(9 * Math.random()) },
      () => characters[Math.floor(characters.length * Math.random())],
    ).join('');
  for (let nth = 0; nth < 5_000; nth += 1) {
    const [glob, path] = [text(['a', 'b', '/', '*']), text(['a', 'b', '/'])];
    const expression = new RegExp(`^${glob.replaceAll(/\*+/g, (stars) => (stars.length > 1 ? '.*' : '[^/]*'))}$`);
    expect([glob, path, createGlob(glob)(path)]).toEqual([glob, path, expression.test(path)]);
  }
});

const GLOBS = Array.from({ length: 20 }, (_, nth) => `/${'*a'.repeat(98)}${nth}`);
const SITE = { origin: 'https://a.example', path: '/' };
const slowRules = (pattern: string, count: number) => `User-agent: *\n${`Disallow: /${pattern}\n`.repeat(count)}`;
/** So many characters show in one step what is not divided. */
const M = 3_000_000;
const INDEX = `<sitemapindex>${Array.from({ length: 10_000 }, (_, nth) => `<sitemap><loc>/${nth}.xml</loc></sitemap>`).join('')}`;
const urls = (count: number, tail: string) =>
  Array.from({ length: count }, (_, nth) => `<url><loc>https://a.example/${nth}/${tail}</loc></url>`).join('');

test.each<[what: string, work: () => unknown]>([
  ['a rule of many spaces', () => parseRobots(`User-agent: *\nDisallow: /a${' '.repeat(500_000)}b`)],
  ['the same name 30,000 times', () => parseRobots(`${'User-agent: *\n'.repeat(30_000)}Disallow: /a`)],
  [
    'rules with many stars',
    async () => (await parseRobots(slowRules('*a'.repeat(200), 1_200))).allows(`/${'a'.repeat(900)}`),
  ],
  [
    'long rules, and a longer path',
    async () => (await parseRobots(slowRules(`*${'a'.repeat(480)}b`, 1_000))).allows(`/${'a'.repeat(30_000)}`),
  ],
  ['a sitemap of the longest size', () => parseSitemap(`<urlset>${'<a/>'.repeat(2_000_000)}</urlset>`, 50_000)],
  ['a sitemap of short words', () => parseSitemap('a '.repeat(4_000_000), 50_000)],
  [
    'a sitemap of pages that slow globs refuse',
    () => {
      const scope = createScope({ include: GLOBS, exclude: GLOBS }, SITE);
      const text = `<urlset>${urls(30, 'a'.repeat(950))}</urlset>`;
      const accept = (url: string) => (scope.includes(url) ? url : null);
      return readSitemaps(['https://a.example/s.xml'], { fetchText: () => Promise.resolve(text), accept, most: 2_000 });
    },
  ],
  ['a sitemap of spaces', () => parseSitemap(`${'\ufeff '.repeat(M / 4)}<urlset>`, 50_000)],
  ['a comment without an end', () => parseSitemap(`<!--${'-'.repeat(M)}`, 50_000)],
  ['CDATA without an end', () => parseSitemap(`<urlset><url><loc><![CDATA[${'é]'.repeat(M / 3)}`, 50_000)],
  ['a name without an end', () => parseSitemap(`<${'a'.repeat(M)}`, 50_000)],
  ['a tag of attributes', () => parseSitemap(`<a ${'b=c '.repeat(M / 4)}>`, 50_000)],
  ['a location of entities', () => parseSitemap(`<urlset><url><loc>${'&amp;'.repeat(M / 5)}`, 50_000)],
  [
    'entities that name each other',
    () => parseSitemap(`<!DOCTYPE a [${'<!ENTITY a "&a;&a;">'.repeat(M / 20)}`, 50_000),
  ],
  ['elements inside each other', () => parseSitemap('<a>'.repeat(M / 3), 50_000)],
  ['elements that end and were not begun', () => parseSitemap(`<a>${'</b>'.repeat(M / 4)}`, 50_000)],
  [
    'fifty sitemaps that name each other',
    () =>
      readSitemaps(['https://a.example/0.xml'], {
        fetchText: () => Promise.resolve(INDEX),
        accept: (url) => url,
        most: 9,
      }),
  ],
  [
    'sitemaps at hosts of marks',
    () => {
      const host = `${'\u0301'.repeat(4_000)}${'\u0316'.repeat(4_000)}`;
      const text = `<sitemapindex>${`<sitemap><loc><![CDATA[https://a${host}]]></loc></sitemap>`.repeat(20)}</sitemapindex>`;
      const fetchText = () => Promise.resolve(text);
      return readSitemaps(['https://a.example/s.xml'], { fetchText, accept: (url) => url, most: 9 });
    },
  ],
  ['robots.txt of short lines', () => parseRobots('a:\n'.repeat(170_000))],
  ['robots.txt of names', () => parseRobots('User-agent:parleybot\nUser-agent:*\n'.repeat(15_000))],
  [
    'rules of encoded letters, and such a path',
    async () => (await parseRobots(slowRules(`${'%41'.repeat(160)}*$`, 1_000))).allows(`/${'%41'.repeat(5_000)}`),
  ],
])('%s does not hold up other work', async (_what, work) => {
  const stop = watchLoop();

  await work();

  const { ms, name } = stop();
  expect(ms, name).toBeLessThan(atPace(50));
});

test.each([
  ['https://A.example:443/x#part', 'https://a.example/x'],
  ['https://a.example/x?utm_source=mail&id=3&gclid=1', 'https://a.example/x?id=3'],
  ['https://a.example/x;jsessionid=ABC?b=1', 'https://a.example/x?b=1'],
  ['https://a.example/x?', 'https://a.example/x'],
  ['https://user:word@a.example/', 'https://a.example/'],
  ['mailto:a@a.example', null],
  ['javascript:void(0)', null],
  [`https://a.example/${'x'.repeat(2_000)}`, null],
])('%s is stored as %s', (given, stored) => {
  expect(normalisedUrl(given)).toBe(stored);
});

test.each([
  ['http://a.example/x', 'https://a.example', 'https://a.example/x'],
  ['https://a.example/x', 'https://a.example', 'https://a.example/x'],
  ['http://b.example/x', 'https://a.example', 'http://b.example/x'],
  ['http://a.example/x', 'http://a.example', 'http://a.example/x'],
  ['http://a.example:8080/x', 'https://a.example', 'http://a.example:8080/x'],
])('%s, on a page of %s, is %s', (given, origin, url) => {
  expect(securedUrl(given, origin)).toBe(url);
});

test('a site has the pages below its path, or those that are included, without those that are excluded', () => {
  const site = { origin: 'https://a.example', path: folderOf('/docs/start') };
  const below = createScope({ include: [], exclude: ['/docs/start/old/**'] }, site);
  const chosen = createScope({ include: ['/blog/*'], exclude: [] }, site);
  const is = (scope: typeof below, path: string): boolean => scope.follows(`https://a.example${path}`, 1);

  expect(
    ['/docs/start', '/docs/start/a', '/docs/start/old/b', '/docs/other', '/'].map((path) => is(below, path)),
  ).toEqual([true, true, false, false, false]);
  expect(['/blog/a', '/blog/a/b', '/docs/start/a'].map((path) => is(chosen, path))).toEqual([true, false, false]);
  expect(below.includes('https://b.example/docs/start/a')).toBe(false);
  expect(is(below, '/docs/start/a.png')).toBe(false);
  expect(is(below, `/docs/start/${'a/b/'.repeat(5)}`)).toBe(false);
});

test('of pages with a query, no more are followed than a site may have, and those stay followed', () => {
  const scope = createScope({ include: [], exclude: [] }, { origin: 'https://a.example', path: '/' });
  const urls = Array.from({ length: 10_000 }, (_, nth) => `https://a.example/page-${nth}?id=${nth}`);
  const follow = () => urls.filter((url) => scope.follows(url, 1));

  const followed = follow();

  expect(followed).toEqual(urls.slice(0, PAGES_OF_SITE_MAX));
  expect(follow()).toEqual(followed);
  expect(scope.follows('https://a.example/other', 1)).toBe(true);
});

test('a sitemap of any kind is read', async () => {
  const pagesOf = async (text: string) => (await parseSitemap(text, 9)).pages;
  const xml =
    '<?xml version="1.0"?><s:urlset xmlns:s="x"><s:url><s:loc> https://a.example/?a=1&amp;b=2 </s:loc></s:url></s:urlset>';
  const image = '<urlset><url><loc>/a</loc><image:image><image:loc>/a.png</image:loc></image:image></url></urlset>';

  const index = '<sitemapindex><sitemap><loc>/b.xml</loc></sitemap></sitemapindex>';
  expect(await pagesOf(xml)).toEqual(['https://a.example/?a=1&b=2']);
  expect(await pagesOf(image)).toEqual(['/a']);
  expect((await parseSitemap(index, 9)).sitemaps).toEqual(['/b.xml']);
  expect(await pagesOf('https://a.example/1\nhttps://a.example/2\n')).toHaveLength(2);
});

test('an endless text is no address, wherever a site gives it', async () => {
  const endless = `https://a.example/${'x'.repeat(1_000_000)}`;
  const endWatch = watchLoop();

  const [lines, xml, robots] = await Promise.all([
    parseSitemap(`${endless}\nhttps://a.example/1`, 9),
    parseSitemap(`<urlset><url><loc>${endless}</loc></url></urlset>`, 9),
    parseRobots(`Sitemap: ${endless}\nSitemap: https://a.example/sitemap.xml`),
  ]);

  expect(lines.pages).toEqual(['https://a.example/1']);
  expect(xml.pages.map((page) => normalisedUrl(page))).toEqual([null]);
  expect(robots.sitemaps).toEqual(['https://a.example/sitemap.xml']);
  expect(normalisedUrl(endless)).toBeNull();
  expect(endWatch().ms).toBeLessThan(atPace(50));
});
