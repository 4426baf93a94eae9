import type { Page } from 'playwright-core';
import { expect, onTestFinished, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { PAGES } from '../support/dashboard-pages.ts';
import { go, visit } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { animated, barriersIn, cutButtonsOf, overflowOf } from '../support/page.ts';
import { openReceiver } from '../kit/receiver.ts';
import { setScene } from '../support/scene.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack();
const browser = useBrowser();
const scene = useOpened(
  () => setScene(stack),
  (one) => one.close(),
);

const WIDE = { width: 1280, height: 720 };
const NARROW = { width: 360, height: 740 };

const inColours = async (page: Page, colorScheme: 'light' | 'dark'): Promise<void> => {
  await page.emulateMedia({ colorScheme });
  await page.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor({ state: 'attached' });
  await animated(page);
};

const openKept = (): Promise<Page> =>
  browser.openOnce(stack.url, { cookie: scene.cookie, colorScheme: 'light', viewport: WIDE });

/** One of each kind: a list, a form, a dialog, a chart, a conversation. The long suite sees all pages in all ways. */
const EVERY_DAY = [
  'inbox-conversation',
  'inbox-snooze',
  'overview',
  'knowledge-entry',
  'evaluate-results',
  'web',
  'delivery-rejected',
  'settings-hours',
  'operators-invite',
  'on-call-found',
  'audit',
];
const seen = sized({ everyday: PAGES.filter(({ name }) => EVERY_DAY.includes(name)), long: PAGES });
const inAllWays = sized({ everyday: EVERY_DAY.slice(0, 1), long: PAGES.map(({ name }) => name) });

test.for(seen)('$name keeps nobody out', async (one) => {
  const page = await openKept();

  await visit(page, one.path(scene));
  await one.after?.(page);
  await animated(page);

  expect(await barriersIn(page)).toEqual([]);
  if (!inAllWays.includes(one.name)) return;
  await inColours(page, 'dark');
  expect(await barriersIn(page, { only: 'colour' })).toEqual([]); // the page differs in nothing else
  await page.setViewportSize(NARROW);
  await eventually(async () => expect(await overflowOf(page)).toBe(0)); // the frame is animated
  await page.setViewportSize(WIDE);
  await inColours(page, 'light');
});

test.for(sized({ everyday: ['dark'] as const, long: ['light', 'dark'] as const }))(
  'the sign-in keeps nobody out, in %s',
  async (colorScheme) => {
    const page = await browser.open(stack.url, { colorScheme, viewport: NARROW });

    await go(page, '/');

    expect(await barriersIn(page)).toEqual([]);
    expect(await overflowOf(page)).toBe(0);
  },
);

const openNarrow = async (width = NARROW.width): Promise<Page> => {
  const page = await openKept();
  onTestFinished(() => page.setViewportSize(WIDE));
  await page.setViewportSize({ ...NARROW, width });
  return page;
};

test.for(sized({ everyday: [360], long: [360, 390, 1280] }))(
  'at %i pixels every delivery names its endpoint by its path',
  async (width) => {
    const page = await openNarrow(width);

    await visit(page, `/assistants/${scene.assistantId}/deliveries`);

    const paths = page.locator('.delivery-path');
    const texts = await paths.allInnerTexts();
    expect(texts.length).toBe(await page.getByRole('list', { name: 'Deliveries' }).getByRole('listitem').count());
    expect(new Set(texts)).toEqual(new Set(['/hooks/parley', '/crm/events', '/archive']));
    const cut = await page.evaluate<number>(
      `[...document.querySelectorAll('.delivery-path')].filter((one) => one.scrollWidth > one.clientWidth).length`,
    );
    expect([await paths.first().isVisible(), cut]).toEqual([true, 0]);
  },
);

test('at 360 pixels the actions of a page are not cut off', async () => {
  const page = await openNarrow();

  await visit(page, `/assistants/${scene.draftedId}/evaluate`);

  expect(await page.getByRole('button', { name: 'New question set' }).isVisible()).toBe(true);
  expect(await cutButtonsOf(page)).toEqual([]);
});

test('an escalate action is described without its code', async () => {
  const page = await openKept();

  await visit(page, `/assistants/${scene.assistantId}/try`);
  await page.getByLabel('Message').fill('Can I bring my dog?');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('asks for a person').waitFor();

  expect(await page.getByRole('log').innerText()).not.toMatch(/escalate|user_requested/);
});

test('after a handover the page says why the assistant is silent, and starts over', async () => {
  const page = await openKept();

  await go(page, `/assistants/${scene.assistantId}/try`);
  await page.getByLabel('Message').fill('I want to speak to a human please');
  await page.getByRole('button', { name: 'Send' }).click();
  const note = page.getByRole('note').filter({ hasText: 'A person answers now' });
  await note.waitFor();
  const corrections = await page.getByRole('link', { name: 'Write a better answer' }).count();
  await note.getByRole('button', { name: 'Start over' }).click();
  await page.getByText('Ask it something').waitFor();

  expect([await note.count(), corrections]).toEqual([0, 0]);
});

test('the audit trail names what was changed, and leads to it', async () => {
  const page = await openKept();

  await visit(page, '/audit?action=key.revoke');
  const lines = page.getByRole('list', { name: 'Audit trail' });
  const revoked = await lines.innerText();
  await visit(page, '/audit?action=question.add');
  const asked = await lines.innerText();
  await visit(page, '/audit?action=endpoint.test');
  const tested = await lines.innerText();
  await lines.getByRole('link', { name: 'delivery' }).first().click();
  await page.getByRole('heading', { level: 1, name: 'webhook.test' }).waitFor();

  expect([revoked, tested]).toEqual([
    expect.stringMatching(/Revoked an API key\s+\p{L}/u),
    expect.stringMatching(/Sent a test event\s+127\.0\.0\.1/),
  ]);
  expect([revoked, asked, tested].join()).not.toMatch(/[0-9a-f]{8}…/);
});

test('a receiver that is too slow is shown as a timeout', async () => {
  const silent = await openReceiver({ respond: () => new Promise(() => undefined) });
  const { endpoint } = await stack.service.endpoints.addEndpoint(scene.assistantId, { url: silent.url });
  const page = await openKept();

  await visit(page, `/assistants/${scene.assistantId}/webhooks/${endpoint.endpointId}`);
  await page.getByRole('button', { name: 'Send test event' }).click();
  const line = page.getByRole('listitem').filter({ hasText: 'Your server did not answer in time' });
  await line.waitFor();

  expect(await line.innerText()).toMatch(/more than 5 s/);
  expect(await page.getByText('Your server answered in time').count()).toBe(0);
  await silent.close();
});

test('the import explains what replacing removes, and the settings explain duplicates', async () => {
  const page = await openKept();

  await visit(page, `/assistants/${scene.assistantId}/knowledge`);
  await page.getByRole('button', { name: 'Import' }).click();
  await page.getByText('The existing entries are removed after the new ones are imported.').waitFor();
  await visit(page, `/assistants/${scene.assistantId}/settings`);
  await page.getByText('Advanced', { exact: true }).click();
  const window = page.getByText('A message repeated within this time gets the same reply.');
  await window.waitFor();

  expect(await window.isVisible()).toBe(true);
});

test('the menu on a phone opens, navigates and closes', async () => {
  const page = await openNarrow();

  await visit(page, `/assistants/${scene.assistantId}/keys`);
  await page.getByRole('button', { name: 'Open the menu' }).click();
  await page.getByRole('link', { name: 'Webhooks' }).click();
  await page.getByRole('heading', { level: 1, name: 'Webhooks' }).waitFor();
  await page.getByRole('button', { name: 'Open the menu' }).waitFor();

  expect(await overflowOf(page)).toBe(0);
});
