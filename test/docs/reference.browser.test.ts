import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { barriersIn, overflowOf } from '../support/page.ts';
import { problemOf } from '../support/problem.ts';
import { request } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';
import { apiDocument } from '../support/validate-response.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const browser = useBrowser();

const SIZES = [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
];

test.for(SIZES)('the reference is accessible in light and in dark, and fits the width: $width', async (viewport) => {
  const page = await browser.open(stack.url, { viewport, colorScheme: 'light' });

  await page.goto('/docs');
  await page.evaluate(`for (const one of document.querySelectorAll('details')) one.open = true`);
  const light = await barriersIn(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await barriersIn(page, { only: 'colour' });

  expect({ light, dark }).toEqual({ light: [], dark: [] });
  expect(await overflowOf(page)).toBe(0);
});

test('every operation has a section with its own address, and its link leads there', async () => {
  const page = await browser.open(stack.url);
  const { operations, document } = apiDocument();
  const events = Object.values(document.webhooks as Record<string, { post: { operationId: string } }>);
  const ids = [
    ...operations.map(({ operation }) => operation.operationId),
    ...events.map(({ post }) => post.operationId),
  ];

  await page.goto('/docs#sendMessage');
  const shown = await page.evaluate<string[]>(`[...document.querySelectorAll('.operation')].map(({ id }) => id)`);
  const links = await page.evaluate<string[]>(
    `[...document.querySelectorAll('nav a')].map((one) => one.getAttribute('href').slice(1))`,
  );

  expect(shown.toSorted()).toEqual(ids.toSorted());
  expect(links).toEqual(shown);
  expect(await page.locator('#sendMessage').getByText('POST').first().isVisible()).toBe(true);
  expect(await page.locator('#sendMessage').innerText()).toMatch(/session_id string, 1–256 characters required/);
  expect(await page.locator('#sendMessage').innerText()).toContain('language string or null');
  expect(await page.locator('#setEngine').innerText()).toMatch(/timeoutMs whole number, 100–25,000, default 20000/);
  expect(await page.locator('body').innerText()).not.toMatch(/undefined|\[object|&lt;|`/);
});

test('the page runs no script and loads nothing, and its policy forbids both', async () => {
  const page = await browser.open(stack.url);
  const asked: string[] = [];
  page.on('request', (one) => asked.push(new URL(one.url()).pathname));

  const answer = await page.goto('/docs');
  const policy = answer?.headers()['content-security-policy'] ?? '';
  const plain = await fetch(`${stack.url}/docs`, { headers: { 'Accept-Encoding': 'identity' } });
  const wrong = await request(`${stack.url}/docs`, { method: 'POST', body: {} });

  expect(asked.filter((path) => path.startsWith('/'))).toEqual(['/docs']);
  expect(policy).toMatch(/^default-src 'none';style-src 'sha256-[\w+/]{43}=';img-src data:;/);
  expect(policy).not.toMatch(/unsafe|script-src|http/);
  expect(await page.locator('script').count()).toBe(0);
  expect(answer?.headers()['content-encoding']).toBe('gzip');
  expect([plain.headers.get('content-encoding'), await plain.text()]).toEqual([null, await answer?.text()]);
  expect(problemOf(wrong)).toBe('405 method_not_allowed');
});
