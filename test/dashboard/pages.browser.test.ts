import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { PAGES } from '../support/dashboard-pages.ts';
import { go } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { animated, barriersIn, overflowOf } from '../support/page.ts';
import { openReceiver } from '../support/receiver.ts';
import { type Scene, setScene } from '../support/scene.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
const browser = useBrowser();
let scene: Scene;
beforeAll(async () => {
  scene = await setScene(stack);
});
afterAll(() => scene.close());

const WIDE = { width: 1280, height: 720 };
const NARROW = { width: 360, height: 740 };

const inColours = async (page: Page, colorScheme: 'light' | 'dark'): Promise<void> => {
  await page.emulateMedia({ colorScheme });
  await page.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor({ state: 'attached' });
  await animated(page);
};

test.for(PAGES)('$name keeps nobody out, in light and in dark, and fits a phone of 360 pixels', async (one) => {
  const page = await browser.openOnce(stack.url, { cookie: scene.cookie });
  await page.setViewportSize(WIDE);

  await go(page, one.path(scene));
  await one.after?.(page);
  await inColours(page, 'light');
  const light = await barriersIn(page);
  await inColours(page, 'dark');
  const dark = await barriersIn(page, { only: 'colour' }); // the page differs in nothing else
  expect({ light, dark }).toEqual({ light: [], dark: [] });
  await page.setViewportSize(NARROW);
  await eventually(async () => expect(await overflowOf(page)).toBe(0)); // the frame is animated
});

test.for(['light', 'dark'] as const)('the sign-in keeps nobody out, in %s', async (colorScheme) => {
  const page = await browser.open(stack.url, { colorScheme, viewport: NARROW });

  await go(page, '/');

  expect(await barriersIn(page)).toEqual([]);
  expect(await overflowOf(page)).toBe(0);
});

test.for([360, 390, 1280])('at %i pixels every delivery names its endpoint by its path', async (width) => {
  const page = await browser.open(stack.url, { cookie: scene.cookie, viewport: { width, height: 740 } });

  await go(page, `/assistants/${scene.assistantId}/deliveries`);

  const paths = page.locator('.delivery-path');
  const texts = await paths.allInnerTexts();
  expect(texts.length).toBe(await page.getByRole('list', { name: 'Deliveries' }).getByRole('listitem').count());
  expect(new Set(texts)).toEqual(new Set(['/hooks/parley', '/crm/events', '/archive']));
  const cut = await page.evaluate<number>(
    `[...document.querySelectorAll('.delivery-path')].filter((one) => one.scrollWidth > one.clientWidth).length`,
  );
  expect([await paths.first().isVisible(), cut]).toEqual([true, 0]);
});

test('an escalate action is described without its code', async () => {
  const page = await browser.open(stack.url, { cookie: scene.cookie });

  await go(page, `/assistants/${scene.assistantId}/try`);
  await page.getByLabel('Message').fill('Can I bring my dog?');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('asks for a person').waitFor();

  expect(await page.getByRole('log').innerText()).not.toMatch(/escalate|user_requested/);
});

test('a receiver that is too slow is shown as a timeout', async () => {
  const silent = await openReceiver({ respond: () => new Promise(() => undefined) });
  const { endpoint } = await stack.service.endpoints.addEndpoint(scene.assistantId, { url: silent.url });
  const page = await browser.open(stack.url, { cookie: scene.cookie });

  await go(page, `/assistants/${scene.assistantId}/webhooks/${endpoint.endpointId}`);
  await page.getByRole('button', { name: 'Send test event' }).click();
  const line = page.getByRole('listitem').filter({ hasText: 'Your server did not answer in time' });
  await line.waitFor();

  expect(await line.innerText()).toMatch(/more than 5 s/);
  expect(await page.getByText('Your server answered in time').count()).toBe(0);
  await silent.close();
});

test('the import explains what replacing removes, and the settings explain duplicates', async () => {
  const page = await browser.open(stack.url, { cookie: scene.cookie });

  await go(page, `/assistants/${scene.assistantId}/knowledge`);
  await page.getByRole('button', { name: 'Import' }).click();
  await page.getByText('The existing entries are removed after the new ones are imported.').waitFor();
  await go(page, `/assistants/${scene.assistantId}/settings`);
  const window = page.getByText('A message repeated within this time gets the same reply.');
  await window.waitFor();

  expect(await window.isVisible()).toBe(true);
});

test('the menu on a phone opens, navigates and closes', async () => {
  const page = await browser.open(stack.url, { cookie: scene.cookie, viewport: NARROW });

  await go(page, `/assistants/${scene.assistantId}/keys`);
  await page.getByRole('button', { name: 'Open the menu' }).click();
  await page.getByRole('link', { name: 'Webhooks' }).click();
  await page.getByRole('heading', { level: 1, name: 'Webhooks' }).waitFor();
  await page.getByRole('button', { name: 'Open the menu' }).waitFor();

  expect(await overflowOf(page)).toBe(0);
});
