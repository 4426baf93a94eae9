import type { Locator } from 'playwright-core';
import { beforeAll, expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { eventually } from '../support/eventually.ts';
import { openWebsite } from '../kit/website.ts';
import { anOperator } from '../support/operator-client.ts';
import { barriersIn, overflowOf } from '../support/page.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
const browser = useBrowser();

const aSite = async (html: string): Promise<string> => {
  const policy = "default-src 'self' http://outside.example; script-src 'nonce-ours'; style-src 'unsafe-inline'";
  const site = await openWebsite({ '*': { headers: { 'Content-Security-Policy': policy }, body: html } });
  return site.url;
};

test('the test browser notices every error of a page', async () => {
  browser.expectComplaint(/./);
  const url = await aSite(`<!doctype html><html><body><img src="http://outside.example/pixel">
    <p style="color: #ccc; background: #fff; width: 3000px">Hard to read, and too wide</p><script>window.stolen = 1</script>
    <script nonce="ours">console.error('said so'); setTimeout(() => { throw new Error('thrown so') })</script></body></html>`);

  const page = await browser.open(url, { viewport: { width: 360, height: 640 } });
  await page.goto(url);

  await eventually(() =>
    expect(browser.complaints().join('\n')).toSatisfy((all: string) =>
      ['asked outside: http://outside.example/pixel', 'policy: script-src-elem', 'said so', 'thrown so'].every((one) =>
        all.includes(one),
      ),
    ),
  );
  expect(await page.evaluate('window.stolen')).toBeUndefined();
  const barriers = (await barriersIn(page)).join('\n');
  expect(barriers).toContain('color-contrast');
  expect(barriers).toContain('html-has-lang');
  expect(await overflowOf(page)).toBeGreaterThan(2000);
});

let cookie: string | null = null;
beforeAll(async () => {
  cookie = (await anOperator(stack)).cookie();
});
/** One page for all that an owner sees. */
const openAsOwner = () => browser.openOnce(stack.url, { cookie });

test.for(sized({ everyday: ['dark'] as const, long: ['light', 'dark'] as const }))(
  'an owner reads the queues in the colours chosen in the dashboard, without requests to other hosts: %s',
  async (chosen) => {
    const other = chosen === 'dark' ? 'light' : 'dark';
    const page = await openAsOwner();
    await page.emulateMedia({ colorScheme: other });

    await page.goto('/operator/queues');
    await page.getByText('deliveries').first().waitFor();
    expect(await page.title()).toContain('Parley queues');
    await page.getByRole('link', { name: 'Dashboard' }).click();
    await page.getByRole('link', { name: 'Queues' }).waitFor();
    await page.evaluate(`localStorage.setItem('mantine-color-scheme-value', '${chosen}')`);
    await page.goto('/operator/queues');
    await page.getByText('deliveries').first().waitFor();

    const background = await page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
    const [red = 0] = (/\d+/.exec(background) ?? []).map(Number);
    expect(red > 128 ? 'light' : 'dark').toBe(chosen);
  },
);

const edgesOf = async (locator: Locator) => {
  const { x, width } = (await locator.boundingBox()) ?? { x: NaN, width: NaN };
  return { left: x, right: x + width };
};

test.for(sized({ everyday: [360], long: [360, 390, 1280] }))(
  'at %i pixels all tabs of a queue are visible, and nothing covers the back link',
  async (width) => {
    const page = await openAsOwner();
    await page.setViewportSize({ width, height: 800 });

    await page.goto('/operator/queues/queue/turns');
    const tabs = page.locator('[class^="statusTabs-"] > li');
    await tabs.first().waitFor();

    const all = await Promise.all((await tabs.all()).map(edgesOf));
    expect(all.length).toBeGreaterThan(6);
    expect(all.filter(({ left, right }) => !(left >= 0 && right <= width))).toEqual([]);
    const title = await edgesOf(page.getByText('Parley queues').first());
    const back = await edgesOf(page.getByRole('link', { name: 'Dashboard' }));
    const actions = await edgesOf(page.locator('[class^="actions-"]').first());
    expect(back.left).toBeGreaterThan(title.right);
    expect(back.right).toBeLessThan(actions.left);
  },
);

test('who looks at the board finds any work by its id', async () => {
  const page = await openAsOwner();
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto('/operator/queues');
  await page.getByText('deliveries').first().waitFor();
  const box = page.getByRole('textbox', { name: 'Find work' });
  const edges = await edgesOf(box);
  expect(edges.left).toBeGreaterThan((await edgesOf(page.getByText('Parley queues').first())).right);
  expect(edges.right).toBeLessThan((await edgesOf(page.getByRole('link', { name: 'Dashboard' }))).left);

  await box.fill('crm 4711');
  await box.press('Enter');

  await page.getByText('Nothing has this id').waitFor();
  expect(page.url()).toContain('/operator/on-call?find=crm');
});

test('the queues need a sign-in in a browser', async () => {
  browser.expectComplaint(/status of 401/, /status of 404/); // the 404 is the icon
  const page = await browser.open(stack.url);

  const answer = await page.goto('/operator/queues');

  expect(answer?.status()).toBe(401);
  expect(await page.textContent('body')).toContain('not_signed_in');
});
