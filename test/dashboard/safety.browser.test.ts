import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { go, settled, takeSecret, visit } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver } from '../kit/receiver.ts';
import { longTest } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { aWebAssistant } from '../support/visitor.ts';

const stack = useStack();
const browser = useBrowser();

const IMG = '<img src=x onerror="window.ran=1">';
const SCRIPT = '<script>window.ran=2</script>';
const ATTACKS = [
  IMG,
  SCRIPT,
  '"><svg onload=window.ran=3>',
  'javascript:window.ran=4',
  '{{constructor.constructor("window.ran=5")()}}',
  '</title><script>window.ran=6</script>',
];
const ALL = ATTACKS.join(' ');

/** Checks that no injected script has run. Such a script would have run before the page's next task. */
const nothingRan = async (page: Page): Promise<void> => {
  expect(await page.evaluate('new Promise((done) => setTimeout(() => done(window.ran), 50))')).toBeUndefined();
  expect(await page.locator('img[src="x"], svg[onload], a[href^="javascript"]').count()).toBe(0);
};

const owner = useOpened(() => anOperator(stack));

/** The owner's page is the same in most tests, because it loads faster when it has been loaded before. */
const anOwnersPage = () => browser.openOnce(stack.url, { cookie: owner.cookie() });

/** Opens the page and expects each text to be shown as plain text. */
const shows = async (page: Page, path: string, ...texts: string[]): Promise<void> => {
  await visit(page, path);
  for (const text of texts) await page.getByText(text).locator('visible=true').first().waitFor();
  await nothingRan(page);
};

test('operators’ input is shown as text on every page', async () => {
  browser.expectComplaint(/status of 422/); // an invalid filter
  const page = await anOwnersPage();
  const name = ALL.slice(0, 100);
  const { assistantId } = await anAssistant(stack, {
    input: { name, instructions: ALL, holdingText: ALL, allowedLinks: [] },
    knowledge: [
      anEntry({
        question: ALL,
        answer: ALL,
        variants: [ALL],
        tags: [IMG],
        actions: [{ label: IMG, type: 'reply', payload: SCRIPT }],
      }),
      anEntry({ question: ALL, answer: `${ALL} differs`, language: 'en' }),
    ],
  });
  const at = `/assistants/${assistantId}`;

  await go(page, '/assistants');
  await page.getByText(name).first().waitFor();
  await nothingRan(page);
  await shows(page, `${at}/knowledge?search=${encodeURIComponent(IMG)}`, IMG);
  await shows(page, `${at}/knowledge`, ALL, 'similar questions');
  await page.getByRole('list', { name: 'Knowledge' }).getByRole('button').first().click();
  expect(await page.getByRole('dialog').getByLabel('Question').inputValue()).toBe(ALL);
  await nothingRan(page);
  await visit(page, `${at}/settings`);
  expect(await page.getByLabel('Instructions').inputValue()).toBe(ALL);
  await nothingRan(page);

  await visit(page, `${at}/keys`);
  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill(IMG);
  await page.getByRole('dialog').getByRole('button', { name: 'Create key' }).click();
  await takeSecret(page, 'API key');
  await page.getByRole('list', { name: 'API keys' }).getByText(IMG).waitFor();
  await nothingRan(page);

  await shows(
    page,
    `${at}/deliveries?id=${encodeURIComponent(IMG)}&event=${encodeURIComponent(IMG)}`,
    'Not a valid id',
  );
  await visit(page, `/${encodeURIComponent(IMG)}`);
  await nothingRan(page);
});

test('messages in the playground are shown as text, and their links are harmless', async () => {
  const page = await anOwnersPage();
  const { assistantId } = await anAssistant(stack, {
    knowledge: [
      anEntry({
        question: 'What are your opening hours?',
        answer: ALL,
        actions: [
          { label: IMG, type: 'reply', payload: SCRIPT },
          { label: 'The map', type: 'link', payload: '/map' },
        ],
      }),
    ],
  });

  await go(page, `/assistants/${assistantId}/try`);
  const said = page.getByRole('log');
  for (const message of [ALL, 'What are your opening hours?']) {
    await page.getByLabel('Message').fill(message);
    await page.getByRole('button', { name: 'Send' }).click();
    await said.getByText(message).first().waitFor();
  }
  await said.getByRole('button', { name: IMG }).first().click();
  await said.getByText(SCRIPT, { exact: true }).waitFor();
  await nothingRan(page);
  const why = page.getByRole('button', { name: 'Why this reply' }).nth(1);
  await why.click();
  await page.getByText('A knowledge entry').waitFor();
  await nothingRan(page);
  expect(new URL(page.url()).pathname).toBe(`/operator/assistants/${assistantId}/try`);
});

test('a receiver’s body, headers and errors are shown as text', async () => {
  const page = await anOwnersPage();
  const receiver = await openReceiver({
    respond: () => ({ status: 500, headers: { 'Content-Type': 'text/html', 'X-Told': IMG }, body: `<html>${ALL}` }),
  });
  const { assistantId, chat } = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistantId, { url: `${receiver.url}/${encodeURIComponent(IMG)}` });
  await chat(aTurn({ session_id: IMG, message: ALL }));
  await receiver.waitFor((all) => all.length >= 2);
  const rows = await eventually(async () => {
    const { body } = await owner.get<{ deliveries: { deliveryId: string; outcome: string; event: string }[] }>(
      `/assistants/${assistantId}/deliveries`,
    );
    expect(body.deliveries.map(({ outcome }) => outcome)).toEqual(['rejected', 'rejected']);
    return body.deliveries;
  });
  const message = rows.find(({ event }) => event === 'message.received');

  await go(page, `/assistants/${assistantId}/deliveries`);
  await page.getByText('Rejected').locator('visible=true').first().waitFor();
  await nothingRan(page);
  await shows(
    page,
    `/assistants/${assistantId}/deliveries/${encodeURIComponent(message?.deliveryId ?? '')}`,
    `<html>${ALL}`,
    IMG,
  );
  const sent = (await page.getByLabel('request body').last().textContent()) ?? '';
  expect(JSON.parse(sent)).toMatchObject({ payload: { content: ALL } });
  await shows(page, `/assistants/${assistantId}/webhooks`, receiver.url);
});

test('no script makes markup, or the address of a script, of a text', async () => {
  browser.expectComplaint(/trusted-types|Trusted(?:HTML|Script|Type)/); // the tries below
  const { assistantId } = await aWebAssistant(stack);
  const page = await anOwnersPage();
  const tries = [
    `document.body.innerHTML = '<b>bold</b>'`,
    `document.body.insertAdjacentHTML('beforeend', '<b>bold</b>')`,
    `document.createElement('iframe').srcdoc = '<b>bold</b>'`,
    `document.createElement('script').src = '/docs/reference.js'`,
    `document.createElement('script').text = 'window.ran = 7'`,
    `setTimeout('window.ran = 8')`,
    `trustedTypes.createPolicy('another', { createHTML: (text) => text })`,
  ];

  for (const path of ['/operator/account', `/w/${assistantId}`]) {
    await page.goto(path);
    await page.locator('button:visible').first().waitFor();
    const told: string[] = [];
    for (const code of tries)
      told.push(
        await page.evaluate<string>(`(() => { try { ${code}; return 'done'; } catch ({ name }) { return name; } })()`),
      );
    expect([path, told]).toEqual([path, tries.map(() => 'TypeError')]);
    await nothingRan(page);
  }
});

longTest('the queues need a sign-in', async () => {
  browser.expectComplaint(/status of 40[14]/);
  const page = await browser.open(stack.url);

  const answer = await page.goto('/operator/queues');

  expect(answer?.status()).toBe(401);
});

test('the first page has at most 250 kB of JavaScript, all from this service', async () => {
  await anAssistant(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  /** By address, because a busy machine may make the browser ask for a file twice. */
  const files = new Map<string, number>();
  page.on('response', (response) => {
    if (response.request().resourceType() !== 'script') return;
    files.set(response.url(), Number(response.headers()['content-length'] ?? 0));
  });

  // What a page loads ahead, after a pause, does not belong to it. On a busy machine the pause ends before the page is there.
  await page.addInitScript(`const soon = window.setTimeout;
    window.setTimeout = (run, ms = 0, ...given) => (ms < 1_000 ? soon(run, ms, ...given) : 0);`);

  await page.goto('/operator/');
  await page.waitForURL(/overview/);
  await settled(page);

  const bytes = [...files.values()].reduce((sum, one) => sum + one, 0);
  expect([...files.keys()].every((url) => url.startsWith(stack.url))).toBe(true);
  expect(bytes).toBeGreaterThan(50_000);
  expect(bytes).toBeLessThanOrEqual(250_000);
});
