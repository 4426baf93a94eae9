import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { PAGES } from '../support/dashboard-pages.ts';
import { go } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { barriersIn, overflowOf } from '../support/page.ts';
import { type Scene, setScene } from '../support/scene.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
const browser = useBrowser();
let scene: Scene;
beforeAll(async () => {
  scene = await setScene(stack);
});
afterAll(() => scene.close());

const NARROW = { width: 360, height: 740 };

const inColours = async (page: Page, colorScheme: 'light' | 'dark'): Promise<void> => {
  await page.emulateMedia({ colorScheme });
  await page.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor({ state: 'attached' });
};

test.for(PAGES)('$name keeps nobody out, in light and in dark, and fits a phone of 360 pixels', async (one) => {
  const page = await browser.open(stack.url, { cookie: scene.cookie });

  await go(page, one.path(scene));
  await one.after?.(page);
  await inColours(page, 'light');
  const light = await barriersIn(page);
  await inColours(page, 'dark');
  const dark = await barriersIn(page);
  expect({ light, dark }).toEqual({ light: [], dark: [] });
  await page.setViewportSize(NARROW);
  await eventually(async () => expect(await overflowOf(page)).toBe(0)); // the frame moves to its new place
});

test.for(['light', 'dark'] as const)('the sign-in keeps nobody out, in %s', async (colorScheme) => {
  const page = await browser.open(stack.url, { colorScheme, viewport: NARROW });

  await go(page, '/');

  expect(await barriersIn(page)).toEqual([]);
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
