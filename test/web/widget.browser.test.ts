import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { eventually } from '../support/eventually.ts';
import { openHostPage } from '../support/host-page.ts';
import { barriersIn, overflowOf } from '../support/page.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { longTest, sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { aWebAssistant, signUser } from '../support/visitor.ts';

const LINKS = 'See https://shop.example/lamps.\n<img src=x onerror=alert(1)> javascript:alert(1)';
const { engine, hold } = aScriptedEngine(({ message, onDelta }) => {
  if (message === 'links') return { text: LINKS };
  if (message === 'slow') onDelta?.('First words');
  if (message === 'slow') return { text: 'First words and the rest.' };
  const suggestedActions = [
    { label: 'And on Sunday?', type: 'reply' as const, payload: 'Are you open on Sunday?' },
    { label: 'Directions', type: 'link' as const, payload: '/directions' },
  ];
  return message === 'buttons' ? { text: 'From 9 to 5.', suggestedActions } : {};
});
const stack = useStack({ engine, deliveryWorkers: 0 });
const browser = useBrowser();
const site = useOpened(
  () => openHostPage(stack.url),
  (one) => one.close(),
);

const anOpenWidget = async (
  options: Parameters<typeof browser.open>[1] = {},
  given: Parameters<typeof aWebAssistant>[2] = {},
) => {
  const web = { origins: [site.origin], starters: ['When are you open?'] };
  const assistant = await aWebAssistant(stack, web, given);
  site.show({ assistant: assistant.assistantId });
  browser.expectComplaint(new RegExp(`^asked outside: ${stack.url}/(?:widget|api/v1/web|w/)`));
  const page = await browser.open(site.origin, options);
  await page.goto('/');
  await page.getByRole('button', { name: 'Open chat' }).click();
  return { ...assistant, page };
};

const say = async (page: Page, text: string): Promise<void> => {
  await page.getByRole('textbox').fill(text);
  await page.getByRole('textbox').press('Enter');
};

const textsOf = (page: Page): Promise<string[]> =>
  page.evaluate<string[]>(
    `[...document.querySelector('parley-widget').shadowRoot.querySelectorAll('.log .text')].map((one) => one.textContent)`,
  );

/** What is shown after the greeting. */
const shows = (page: Page, ...texts: string[]) =>
  eventually(async () => expect((await textsOf(page)).slice(1)).toEqual(texts));

const conversationOf = (assistantId: string) =>
  eventually(async () => {
    const found = await stack.service.mongo.collection('conversations').findOne({ assistantId });
    if (!found) throw new Error('no conversation yet');
    return { conversationId: String(found.conversationId), assistantId };
  });

test('a visitor asks on a foreign page under a strict policy, and neither disturbs the other', async () => {
  const { page } = await anOpenWidget();

  expect(await page.evaluate(`document.activeElement.shadowRoot.activeElement.tagName`)).toBe('TEXTAREA');
  await page.getByRole('button', { name: 'When are you open?' }).click();
  await shows(page, 'When are you open?', 'echo: When are you open?');
  const release = hold('slow');
  await say(page, 'slow');
  await page.getByText('First words', { exact: true }).waitFor();
  release();
  await page.locator('.text').getByText('First words and the rest.').waitFor();
  await say(page, 'links');
  const link = page.getByRole('link', { name: 'https://shop.example/lamps', exact: true });
  expect([await link.getAttribute('rel'), await link.getAttribute('target')]).toEqual([
    'noopener noreferrer nofollow',
    '_blank',
  ]);
  await page.locator('.text', { hasText: '<img src=x onerror=alert(1)> javascript:alert(1)' }).waitFor();
  expect(await page.locator('.log img').count()).toBe(0);
  expect(await page.locator('.log a').count()).toBe(1);
  await say(page, 'buttons');
  await page.getByRole('link', { name: 'Directions' }).waitFor();
  await page.getByRole('button', { name: 'And on Sunday?' }).click();
  await page.locator('.text').getByText('echo: Are you open on Sunday?').waitFor();

  // Two names at most: the object, and the one that the test adds.
  const added = await page.evaluate<string[]>(`(() => {
    const frame = document.body.appendChild(document.createElement('iframe'));
    const known = new Set(Object.getOwnPropertyNames(frame.contentWindow));
    frame.remove();
    return Object.getOwnPropertyNames(window).filter((name) => !known.has(name) && !/tellViolation|playwright|pw|^\\d/i.test(name));
  })()`);
  expect(added.filter((name) => !name.startsWith('__'))).toEqual(['Parley']);
  const look = await page.evaluate(`(() => {
    const { shadowRoot } = document.querySelector('parley-widget');
    const { color, letterSpacing, fontSize, display } = getComputedStyle(shadowRoot.querySelector('.log'));
    return [color, letterSpacing, fontSize, display, document.styleSheets.length, document.adoptedStyleSheets.length];
  })()`);
  expect(look).toEqual(['rgb(20, 22, 26)', 'normal', '15px', 'flex', 1, 0]);
  await page.keyboard.press('Escape');
  expect(await page.getByRole('dialog').isVisible()).toBe(false);
  expect(await page.evaluate(`document.activeElement.shadowRoot.activeElement.className`)).toBe('launch');
});

test('a reload and a second tab go on with the conversation, and an operator’s reply is there at once', async () => {
  const { page, assistantId } = await anOpenWidget();
  const release = hold('wait for me');
  await say(page, 'wait for me');
  const where = await conversationOf(assistantId);
  await page.reload();
  await page.getByRole('button', { name: 'Open chat' }).click();
  await shows(page, 'wait for me', ''); // its reply is being made
  release();
  await shows(page, 'wait for me', 'echo: wait for me');

  const tab = await page.context().newPage();
  await tab.goto('/');
  await tab.getByRole('button', { name: 'Open chat' }).click();
  await shows(tab, 'wait for me', 'echo: wait for me');
  await say(tab, 'from the second');
  await shows(page, 'wait for me', 'echo: wait for me', 'from the second', 'echo: from the second');

  const { transitions, erase, findById } = stack.service.conversations;
  await transitions.escalate(where, {});
  await transitions.replyAsOperator(where, 'I am Bo.');
  for (const one of [page, tab]) {
    await one.locator('.text').getByText('I am Bo.').waitFor();
    await one.getByText('A person answers now').waitFor();
  }
  await page.getByRole('status').getByText('I am Bo.').waitFor({ state: 'attached' }); // for those who listen
  await tab.getByRole('button', { name: 'Close chat' }).first().click();
  await transitions.replyAsOperator(where, 'Are you there?');
  await tab.locator('.badge').getByText('1').waitFor();

  const stored = await findById(where.conversationId);
  if (stored) await erase(stored);
  await shows(page);
  expect(await page.evaluate(`localStorage.length`)).toBe(0);
});

test('what is written offline is sent once when the connection is back, and a cut stream loses nothing', async () => {
  const { page, assistantId } = await anOpenWidget();
  browser.expectComplaint(/ERR_INTERNET_DISCONNECTED|ERR_FAILED/);
  await page.context().setOffline(true);
  await say(page, 'one');
  await say(page, 'two');
  await page.getByText('You are offline.').waitFor();
  await page.reload().catch(() => undefined);
  await page.context().setOffline(false);
  await page.goto('/');
  await page.getByRole('button', { name: 'Open chat' }).click();
  await shows(page, 'one', 'echo: one', 'two', 'echo: two');

  // The service accepts the message, and the answer is lost on its way.
  let lost = 0;
  await page.route('**/messages', async (route) => {
    if (route.request().method() !== 'POST' || lost > 0) return route.continue();
    lost += 1;
    await route.fetch().catch(() => undefined);
    await route.abort();
  });
  await say(page, 'three');
  await shows(page, 'one', 'echo: one', 'two', 'echo: two', 'three', 'echo: three');
  const { conversationId } = await conversationOf(assistantId);
  const stored = await stack.service.mongo.collection('conversations').findOne({ conversationId });
  expect([lost, stored?.seq]).toEqual([1, 3]);
});

test('messages that are answered together have one reply, also after a reload', async () => {
  const { page, assistantId } = await anOpenWidget({}, { input: { quickMessageSeconds: 2 } });

  await say(page, 'One question');
  await say(page, 'and another one');

  const together = ['One question', 'and another one', 'echo: One question\nand another one'];
  await shows(page, ...together);
  expect(await page.locator('.item.sending, .item.failed').count()).toBe(0);
  const { conversationId } = await conversationOf(assistantId);
  expect((await stack.service.conversations.findById(conversationId))?.waiting).toEqual([]);
  await page.reload();
  await page.getByRole('button', { name: 'Open chat' }).click();
  await shows(page, ...together);
});

longTest('on slow 3G, where each answer takes long, what is written is shown at once and answered once', async () => {
  const { page, assistantId } = await anOpenWidget();
  const network = await page.context().newCDPSession(page);
  const throughput = 50_000; // bytes a second
  const slow = { offline: false, latency: 400, downloadThroughput: throughput, uploadThroughput: throughput };
  await network.send('Network.emulateNetworkConditions', slow);
  await page.reload();
  await page.getByRole('button', { name: 'Open chat' }).click();
  await say(page, 'hello');
  expect((await textsOf(page))[1]).toBe('hello');
  await say(page, 'still there?');
  await shows(page, 'hello', 'echo: hello', 'still there?', 'echo: still there?');
  const stored = await stack.service.mongo.collection('conversations').findOne({ assistantId });
  expect(stored?.seq).toBe(2);
});

test('a signed user finds the conversation in another browser, and signing out leaves nothing of it', async () => {
  const assistant = await aWebAssistant(stack, { origins: [site.origin] });
  const { secret } = await stack.service.assistants.rotateWebIdentity(assistant.assistantId);
  const { id, expires, signature } = signUser(secret, 'ada');
  const user = { 'user-id': id, 'user-expires': String(expires), 'user-signature': signature };
  browser.expectComplaint(/^asked outside/);
  const visit = async (given: Record<string, string>, known?: Page) => {
    site.show({ assistant: assistant.assistantId, ...given });
    const page = known ?? (await browser.open(site.origin));
    await page.goto('/');
    await page.getByRole('button', { name: 'Open chat' }).click();
    return page;
  };

  const page = await visit(user);
  await say(page, 'it is me');
  await shows(page, 'it is me', 'echo: it is me');
  await shows(await visit(user), 'it is me', 'echo: it is me');
  await visit({}, page);
  await shows(page);
  expect(await page.evaluate('JSON.stringify([{...localStorage}, {...sessionStorage}])')).not.toContain('ada');
});

test.each(sized({ everyday: ['light'] as const, long: ['light', 'dark'] as const }))(
  'the widget has no barriers in the %s theme, also from right to left',
  async (colorScheme) => {
    const { page, assistantId } = await anOpenWidget({ colorScheme, viewport: { width: 390, height: 780 } });
    await say(page, 'buttons');
    await page.getByRole('link', { name: 'Directions' }).waitFor();
    const where = await conversationOf(assistantId);
    await stack.service.conversations.transitions.escalate(where, {});
    await stack.service.conversations.transitions.replyAsOperator(where, 'Hello https://shop.example');
    await page.getByText('A person answers now').waitFor();
    // A policy with trusted types would refuse axe itself, not the widget.
    const barriers = async () => barriersIn(await hosted(page, assistantId));
    expect(await overflowOf(page)).toBe(0);
    expect(await barriers()).toEqual([]);
    site.show({ assistant: assistantId }, 'ar');
    await page.goto('/');
    await page.getByRole('button', { name: 'فتح الدردشة' }).click();
    await page.getByText('يجيبك شخص الآن').waitFor();
    const { x } = (await page.locator('.visitor .text').first().boundingBox()) ?? { x: 0 };
    expect(x).toBeLessThan(60);
    expect(await overflowOf(page)).toBe(0);
  },
);

/** The same conversation on the hosted page. */
const hosted = async (page: Page, assistantId: string): Promise<Page> => {
  const token = await page.evaluate<string>(`localStorage.getItem('parley:${assistantId}')`);
  const other = await page.context().newPage();
  await other.goto(`${stack.url}/w/${assistantId}`);
  await other.evaluate(`localStorage.setItem('parley:${assistantId}', ${JSON.stringify(token)})`);
  await other.reload();
  await other.getByText('A person answers now').waitFor();
  return other;
};
