import { expect, test } from 'vitest';
import { parseRobots } from '../../workers/sources/robots.ts';
import { createScope, folderOf, matchesGlob, normalisedUrl } from '../../workers/sources/scope.ts';
import { parseSitemap } from '../../workers/sources/sitemap.ts';

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
])('robots.txt %j lets %s be read: %s', (text, path, allowed) => {
  expect(parseRobots(text).allows(path)).toBe(allowed);
});

test('robots.txt names sitemaps and a delay', () => {
  const { sitemaps, crawlDelayMs } = parseRobots('Sitemap: https://a.example/s.xml\nUser-agent: *\nCrawl-delay: 2.5');

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
])('%s and the glob %s: %s', (path, glob, matches) => {
  expect(matchesGlob(path, glob)).toBe(matches);
});

test('patterns and rules that are made to be slow are not', () => {
  const began = performance.now();

  expect(matchesGlob(`/${'a'.repeat(900)}`, `/${'*a'.repeat(99)}b`)).toBe(false);
  expect(matchesGlob(`/${'a/'.repeat(450)}`, `/${'**a'.repeat(60)}b`)).toBe(false);
  const rules = Array.from({ length: 2_000 }, () => `Disallow: /${'*a'.repeat(200)}b`).join('\n');
  expect(parseRobots(`User-agent: *\n${rules}`).allows(`/${'a'.repeat(900)}`)).toBe(true);

  expect(performance.now() - began).toBeLessThan(1_000);
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

test('a sitemap of any kind is read', () => {
  const xml =
    '<?xml version="1.0"?><s:urlset xmlns:s="x"><s:url><s:loc> https://a.example/?a=1&amp;b=2 </s:loc></s:url></s:urlset>';
  const image = '<urlset><url><loc>/a</loc><image:image><image:loc>/a.png</image:loc></image:image></url></urlset>';

  expect(parseSitemap(xml, 9).pages).toEqual(['https://a.example/?a=1&b=2']);
  expect(parseSitemap(image, 9).pages).toEqual(['/a']);
  expect(parseSitemap('<sitemapindex><sitemap><loc>/b.xml</loc></sitemap></sitemapindex>', 9).sitemaps).toEqual([
    '/b.xml',
  ]);
  expect(parseSitemap('https://a.example/1\nhttps://a.example/2\n', 9).pages.length).toBe(2);
});
