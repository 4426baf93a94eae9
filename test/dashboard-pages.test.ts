import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { useBrowser } from './support/browser.ts';
import { PAGES } from './support/dashboard-pages.ts';
import { go } from './support/dashboard.ts';
import { barriersIn, overflowOf } from './support/page.ts';
import { type Scene, setScene } from './support/scene.ts';
import { useStack } from './support/stack.ts';

const stack = useStack();
const browser = useBrowser();
let scene: Scene;
beforeAll(async () => {
  scene = await setScene(stack);
});
afterAll(() => scene.close());

const NARROW = { width: 360, height: 740 };

describe.each(['light', 'dark'] as const)('in %s colours', (colorScheme) => {
  test.for(PAGES)('$name keeps nobody out', async ({ path, then }) => {
    const page = await browser.open(stack.url, { cookie: scene.cookie, colorScheme });

    await go(page, path(scene));
    await then?.(page);

    expect(await barriersIn(page)).toEqual([]);
  });

  test('the sign-in keeps nobody out', async () => {
    browser.expectComplaint(/status of 401/);
    const page = await browser.open(stack.url, { colorScheme });

    await go(page, '/');

    expect(await barriersIn(page)).toEqual([]);
  });
});

test.for(PAGES)('$name fits a phone of 360 pixels', async ({ path, then }) => {
  const page = await browser.open(stack.url, { cookie: scene.cookie, viewport: NARROW });

  await go(page, path(scene));
  await then?.(page);

  expect(await overflowOf(page)).toBe(0);
});

test('the menu of a phone opens, leads on and closes', async () => {
  const page = await browser.open(stack.url, { cookie: scene.cookie, viewport: NARROW });

  await go(page, `/assistants/${scene.assistantId}/keys`);
  await page.getByRole('button', { name: 'Open the menu' }).click();
  await page.getByRole('link', { name: 'Webhooks' }).click();
  await page.getByRole('heading', { level: 1, name: 'Webhooks' }).waitFor();
  await page.getByRole('button', { name: 'Open the menu' }).waitFor();

  expect(await overflowOf(page)).toBe(0);
});
