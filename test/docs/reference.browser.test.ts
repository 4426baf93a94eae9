import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { animated, barriersIn, overflowOf } from '../support/page.ts';
import { problemOf } from '../support/problem.ts';
import { longTest, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { apiDocument } from '../support/validate-response.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const browser = useBrowser();

const SIZES = [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
];

/** The operations that the page has now. Then it goes down by less than a screen, and is drawn. */
const SCROLL_ON = `new Promise((done) => {
  const seen = [...document.querySelectorAll('.opblock')].map(({ id }) => id.split('-').at(-1));
  const before = scrollY;
  scrollBy({ top: innerHeight / 2, behavior: 'instant' });
  requestAnimationFrame(() => requestAnimationFrame(() => done({ seen, moved: scrollY > before })));
})`;

/** The files that the page names. */
const filesOf = (html: string): string[] => [...new Set(html.match(/\/docs\/assets-[^"]+/g))];

const opened = (page: Page, id: string) => page.locator(`.opblock.is-open[id$="-${id}"]`);

test.for(sized({ everyday: SIZES.slice(1), long: SIZES }))(
  'the reference loads only its own files, is accessible in light and in dark, and fits the width: $width',
  async (viewport) => {
    const page = await browser.open(stack.url, { viewport, colorScheme: 'light' });
    const asked: string[] = [];
    page.on('request', (one) => asked.push(new URL(one.url()).pathname));

    const answer = await page.goto('/docs#sendMessage');
    const operation = opened(page, 'sendMessage');
    await operation.getByText('suggestedActions').first().waitFor();
    const loaded = asked.filter((path) => path.startsWith('/'));
    const light = await barriersIn(page, sized({ everyday: { in: '.opblock.is-open' }, long: {} }));
    const background = await page.evaluate<string>(`getComputedStyle(document.documentElement).backgroundColor`);
    await page.emulateMedia({ colorScheme: 'dark' });
    await animated(page);
    const dark = await barriersIn(page, { only: 'colour', in: '.opblock.is-open' });
    const text = (await operation.innerText()).replaceAll(/\s+/g, ' ');

    expect({ light, dark }).toEqual({ light: [], dark: [] });
    expect(await overflowOf(page)).toBe(0);
    expect(await page.evaluate(`getComputedStyle(document.documentElement).backgroundColor`)).not.toBe(background);
    expect(await page.evaluate('location.hash')).toBe('#/Chat/sendMessage');
    expect(text).toMatch(/session_id ?string ?\[1, 256\] characters/);
    expect(text).toMatch(/language ?\(string \| null\) .*string\[2, 35\] characters/);
    expect(text).toContain('apiKey: An API key of one assistant.');
    expect(text).toContain('429 rate_limited: Too many requests.');
    const files = filesOf((await answer?.text()) ?? '');
    expect(loaded.toSorted()).toEqual(['/docs', ...files, '/openapi.json'].toSorted());
    expect(answer?.headers()['content-security-policy']).toBe(
      "default-src 'none';script-src 'self';style-src 'self';img-src 'self' data:;font-src 'self';connect-src 'self';" +
        "base-uri 'none';form-action 'none';frame-ancestors 'none'",
    );
  },
);

longTest('every operation and event is listed, and its address opens it', async () => {
  const page = await browser.open(stack.url);
  const { operations, document } = apiDocument();
  const events = Object.values(document.webhooks as Record<string, { post: { operationId: string } }>);
  const ids = [
    ...operations.map(({ operation }) => operation.operationId),
    ...events.map(({ post }) => post.operationId),
  ];
  await page.goto('/docs#messageReceived');
  const event = opened(page, 'messageReceived');
  await event.locator('.responses-wrapper').waitFor();
  const told = await event.innerText();

  // A long page has only those operations that a reader sees, so it is scrolled through.
  const listed = new Set<string>();
  await eventually(async () => {
    await page.evaluate('scrollTo(0, 0)');
    for (let hasMore = true; hasMore; ) {
      const { seen, moved } = await page.evaluate<{ seen: string[]; moved: boolean }>(SCROLL_ON);
      for (const id of seen) listed.add(id);
      hasMore = moved;
    }
    expect([...listed].toSorted()).toEqual(ids.toSorted());
  });

  expect(told).toContain('X-Factory-Signature');
  expect(await page.locator('body').innerText()).not.toMatch(/undefined|\[object|&lt;|Try it out|Authorize/);
});

test('browsers keep the files of the page, which are compressed', async () => {
  const files = filesOf(await (await fetch(`${stack.url}/docs`)).text());

  expect(files.map((path) => path.split('/').at(-1)).toSorted()).toEqual(
    ['reference.css', 'reference.js', 'swagger-ui-bundle.js', 'swagger-ui.css'].toSorted(),
  );
  for (const path of files) {
    const [zipped, plain] = await Promise.all(
      ['gzip', 'identity'].map((coding) => fetch(stack.url + path, { headers: { 'Accept-Encoding': coding } })),
    );
    expect([zipped!.headers.get('content-encoding'), plain!.headers.get('content-encoding')]).toEqual(['gzip', null]);
    expect(zipped!.headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
    expect(zipped!.headers.get('x-content-type-options')).toBe('nosniff');
    expect(await zipped!.text()).toBe(await plain!.text());
  }
});

test('no other file of the package is served, and no other method', async () => {
  const html = await (await fetch(`${stack.url}/docs`)).text();
  const folder = /\/docs\/assets-[\w-]{8}/.exec(html)?.[0] ?? '';

  const paths = [
    `${folder}/index.html`,
    `${folder}/package.json`,
    `${folder}/../package.json`,
    `${folder}/`,
    '/docs/x',
  ];
  const answers = await Promise.all(paths.map((path) => request(stack.url + path)));

  expect(folder).not.toBe('');
  expect(answers.map(problemOf)).toEqual(paths.map(() => '404 not_found'));
  expect(problemOf(await request(`${stack.url}/docs`, { method: 'POST', body: {} }))).toBe('405 method_not_allowed');
  expect(problemOf(await request(`${stack.url}${folder}/reference.js`, { method: 'POST', body: {} }))).toBe(
    '404 not_found',
  );
});
