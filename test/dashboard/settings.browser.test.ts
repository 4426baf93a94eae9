import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { go, takeSecret, visit } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { longTest } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const QUOTE = 'A refund takes 14 working days.';
const FROM_PAGE = {
  text: QUOTE,
  sources: [
    { title: 'Refunds', url: 'https://example.com/help#refunds', quote: QUOTE },
    { title: 'Handbook.pdf', url: null, quote: 'Refunds are made by card.' },
  ],
  why: {
    engine: 'openai',
    kind: 'answer',
    flagged: [{ sentence: 2, because: 'number' }],
    hits: [{ entryId: 'opening-hours', score: 0.13 }],
    passages: [{ passageId: 'refunds', score: 0.89 }],
    given: { passageId: 'refunds' },
    threshold: 0.74,
  },
};

/** The engine says the first words at once, also if the reply is held. */
const { engine, hold } = aScriptedEngine(({ message, onDelta }) => {
  if (message.includes('refund')) return FROM_PAGE;
  onDelta?.('First words');
  return { text: 'First words and the rest.' };
});
const stack = useStack({ engine });
const browser = useBrowser();

const owner = useOpened(() => anOperator(stack));

/** The owner's page is the same in all tests, because it loads faster when it has been loaded before. */
const anOwnerAt = async (path: (assistantId: string) => string) => {
  const assistant = await anAssistant(stack);
  const page = await browser.openOnce(stack.url, { cookie: owner.cookie() });
  await go(page, path(assistant.assistantId));
  const stored = () => stack.service.assistants.getAssistant(assistant.assistantId);
  return { ...assistant, page, stored };
};

test('an owner sets opening hours and a take-by time, and finds them again', async () => {
  const { page, stored, assistantId } = await anOwnerAt((id) => `/assistants/${id}/settings`);

  await page.getByLabel('At certain times').check();
  await page.getByLabel('Time zone').selectOption('America/New_York');
  await page.getByRole('button', { name: 'Add times on Saturday' }).click();
  await page.getByLabel('Saturday until').fill('00:00');
  await page.getByRole('button', { name: 'Remove 09:00 to 17:00 on Friday' }).click();
  await page.getByLabel('Take an escalation within').fill('15');
  await page.getByLabel('If nobody takes it in time').selectOption('hand_back');
  await page.getByLabel('when the visitor leaves contact details').check();
  await page.getByRole('button', { name: 'Save opening hours' }).click();
  await page.getByText('Saved.').waitFor();

  const { openingHours, ...settings } = await stored();
  expect(settings).toMatchObject({ takeWithinMinutes: 15, ifNotTaken: 'hand_back', contactsEscalate: true });
  expect(openingHours?.timeZone).toBe('America/New_York');
  expect(openingHours?.week.map(({ day, from, to }) => `${day} ${from} ${to}`)).toEqual([
    '1 09:00 17:00',
    '2 09:00 17:00',
    '3 09:00 17:00',
    '4 09:00 17:00',
    '6 09:00 24:00',
  ]);
  await go(page, `/assistants/${assistantId}/settings`);
  expect(await page.getByLabel('Saturday until').inputValue()).toBe('00:00');
  browser.expectComplaint(/status of 422/);
  await page.getByLabel('Saturday from').fill('');
  await page.getByRole('button', { name: 'Save opening hours' }).click();
  await page.getByText('Must be a time from 00:00 to 24:00').waitFor();
});

test('an owner who looks for one setting finds its section in the menu, and by its address', async () => {
  const { page, assistantId } = await anOwnerAt((id) => `/assistants/${id}/settings`);
  const retention = page.getByRole('heading', { name: 'Retention' });
  const isSeen = (): Promise<boolean> =>
    retention.evaluate((heading) => {
      const { top } = heading.getBoundingClientRect();
      return top >= 0 && top < 450;
    });

  const links = page.getByRole('navigation', { name: 'On this page' }).getByRole('link');
  const titles = await links.allTextContents();
  await links.getByText('Retention').focus();
  await page.keyboard.press('Enter');

  await eventually(async () => expect(await isSeen()).toBe(true));
  await page.keyboard.press('Tab'); // the head, which folds the section
  await page.keyboard.press('Tab');
  expect(await page.getByLabel('Days without a change').evaluate((field) => field.matches(':focus'))).toBe(true);
  expect(titles).toEqual(await page.locator('main').getByRole('heading', { level: 2 }).allTextContents());
  await go(page, `/assistants/${assistantId}/keys`);
  await go(page, `/assistants/${assistantId}/settings#retention`);
  await eventually(async () => expect(await isSeen()).toBe(true));
  await page.setViewportSize({ width: 390, height: 844 });
  const right = await page
    .locator('main section')
    .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().right));
  await page.setViewportSize({ width: 1280, height: 800 });
  expect(Math.max(...right)).toBeLessThanOrEqual(390);
});

longTest('an owner chooses how sure the assistant must be, and a number for experts', async () => {
  const { page, stored, assistantId } = await anOwnerAt((id) => `/assistants/${id}/settings`);

  const before = await page.getByLabel('Answers', { exact: true }).inputValue();
  await page.getByLabel('Answers', { exact: true }).selectOption('careful');
  await page.getByText('Advanced', { exact: true }).click();
  await page.getByLabel('Threshold').fill('0.65');
  await page.getByRole('button', { name: 'Save changes' }).click();
  await page.getByText('Saved.').waitFor();

  expect(before).toBe('balanced');
  expect(await stored()).toMatchObject({ answering: 'careful', threshold: 0.65 });
  await go(page, `/assistants/${assistantId}/settings`);
  expect(await page.getByLabel('Answers', { exact: true }).inputValue()).toBe('careful');
});

test('an owner sets limits, and sees on three pages what is used of them', async () => {
  browser.expectComplaint(/status of 422/);
  const { page, stored, assistantId, keyId, chat } = await anOwnerAt((id) => `/assistants/${id}/settings`);
  await chat({ session_id: randomUUID(), message: 'Hello' });

  await page.getByRole('heading', { name: 'Limits' }).click();
  await page.getByLabel('Messages per minute of one visitor').fill('20');
  await page.getByLabel('New messages per month').fill('1000');
  await page.getByLabel('Tokens of the language model per day').fill('-5');
  await page.getByLabel('When they are used up').selectOption('hand_over');
  await page.getByRole('button', { name: 'Save limits' }).click();
  await page.getByText(/from 1 to|at least 1/).waitFor();
  await page.getByLabel('Tokens of the language model per day').fill('50000');
  await page.getByRole('button', { name: 'Save limits' }).click();
  await page.getByText('Saved.').waitFor();
  await page.getByText(/ of 1,000 messages, until 1 \w+$/).waitFor();
  await page.getByRole('link', { name: 'Retention' }).click(); // the menu of the page unfolds it
  await page.getByLabel('Days without a change').fill('90');
  await page.getByRole('button', { name: 'Save retention' }).click();
  await page.getByRole('dialog').getByText('nothing has changed for 90 days').waitFor();
  await page.getByRole('button', { name: 'Erase them' }).click();
  await eventually(async () => expect(await stored()).toMatchObject({ keepDays: 90 }));
  await stack.service.assistants.updateApiKey(keyId, { turnsPerMonth: 1 });
  await go(page, `/assistants/${assistantId}/keys`);
  await page.getByText(/ of 1 messages, until 1 \w+$/).waitFor();
  await visit(page, `/assistants/${assistantId}/usage`);
  await page.getByRole('list', { name: 'Limits' }).getByText('This month, key test').waitFor();

  expect(await stored()).toMatchObject({
    sessionLimitPerMinute: 20,
    turnsPerMonth: 1_000,
    tokensPerDay: 50_000,
    ifTokensUsedUp: 'hand_over',
  });
});

longTest('an owner lists tags and a canned reply', async () => {
  const { page, assistantId } = await anOwnerAt((id) => `/assistants/${id}/settings`);
  const { managedTags, cannedReplies } = stack.service.inboxRecords;

  await page.getByRole('button', { name: 'Add tag' }).click();
  await page.getByLabel('Tag 1', { exact: true }).fill('billing');
  await page.getByLabel('Colour of tag 1').fill('#2f6fed');
  await page.getByRole('button', { name: 'Save tags' }).click();
  await page.getByText('The tags are saved.').waitFor();
  await page.getByRole('button', { name: 'New canned reply' }).click();
  await page.getByLabel('Title').fill('Hello');
  await page.getByLabel('Text', { exact: true }).fill('Hello, this is {{agent}}.');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('list', { name: 'Canned replies' }).getByText('Hello, this is').waitFor();

  expect(await managedTags.list(assistantId)).toEqual([{ tag: 'billing', color: '#2f6fed' }]);
  const { value } = await cannedReplies.read(assistantId).next();
  expect(value).toMatchObject([{ title: 'Hello', content: 'Hello, this is {{agent}}.' }]);
});

longTest('an endpoint gets replies only if the switch is on', async () => {
  const { page, assistantId } = await anOwnerAt((id) => `/assistants/${id}/webhooks`);
  const { endpoints } = stack.service;
  const events = async () => (await endpoints.listEndpoints(assistantId))[0]?.events;

  await page.getByRole('button', { name: 'Add endpoint' }).first().click();
  await page.getByLabel('URL').fill('http://127.0.0.1:9/hook');
  await page.getByLabel('Also send replies').check();
  await page.getByRole('dialog').getByRole('button', { name: 'Add endpoint' }).click();
  await page.getByRole('button', { name: 'I have saved it' }).click();
  await page.getByText('Every event, and message.sent').waitFor();

  expect(await events()).toContain('message.sent');
  await page.getByRole('link', { name: /127\.0\.0\.1/ }).click();
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Change the endpoint…' }).click();
  expect(await page.getByLabel('Every event').isChecked()).toBe(true);
  await page.getByLabel('Also send replies').uncheck();
  await page.getByRole('button', { name: 'Save' }).click();
  await eventually(async () => expect(await events()).toEqual([]));
});

test('an endpoint gets headers of its own and a rate; a secret value is kept without being shown', async () => {
  const { page, assistantId } = await anOwnerAt((id) => `/assistants/${id}/webhooks`);
  const { endpoints } = stack.service;
  const openHeaders = async () => {
    const [id = ''] = await endpoints.listEndpointIds(assistantId);
    const stored = await endpoints.readForSending(id);
    return stored && endpoints.openHeaders(stored);
  };
  const header = (nth: number) => page.getByRole('group', { name: `Header ${nth}` });
  const addHeader = async (nth: number, name: string, value: string) => {
    await page.getByRole('button', { name: 'Add a header' }).click();
    await header(nth).getByLabel('Name').fill(name);
    await header(nth).getByLabel('Value').fill(value);
  };

  browser.expectComplaint(/422/);
  await page.getByRole('button', { name: 'Add endpoint' }).first().click();
  await page.getByLabel('URL').fill('127.0.0.1:9/hook'); // the page completes it
  await addHeader(1, 'Host', 'Basic abc');
  await page.getByLabel('Events a second').fill('5');
  await page.getByLabel('Standard Webhooks too').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Add endpoint' }).click();
  await header(1).getByText('Is set by the service or by HTTP').waitFor();
  await header(1).getByLabel('Name').fill('Authorization');
  await page.getByRole('dialog').getByRole('button', { name: 'Add endpoint' }).click();
  await page.getByRole('button', { name: 'I have saved it' }).click();
  await page.getByRole('link', { name: /127\.0\.0\.1/ }).click();
  await page.getByText('Authorization: ••••').waitFor();
  await page.getByText('At most 5 events a second').waitFor();
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Change the endpoint…' }).click();
  await addHeader(2, 'X-Team', 'blue');
  await header(2).getByLabel('Who may see it').selectOption('Shown');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('X-Team: blue').waitFor();

  expect(await openHeaders()).toEqual([
    { name: 'Authorization', value: 'Basic abc', secret: true },
    { name: 'X-Team', value: 'blue', secret: false },
  ]);
  const [endpoint] = await endpoints.listEndpoints(assistantId);
  expect(endpoint).toMatchObject({ url: 'https://127.0.0.1:9/hook', ratePerSecond: 5, standardWebhooks: true });
});

test('a reply in “Try it” appears while it is written, and as the caller sees it', async () => {
  const { page } = await anOwnerAt((id) => `/assistants/${id}/try`);
  const message = `It's ${randomUUID()}`;
  const release = hold(message);

  await page.getByLabel('Message').fill(message);
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('log').getByText('First words', { exact: true }).waitFor();
  release();
  await page.getByRole('log').getByText('First words and the rest.').waitFor();
  await page.getByLabel('As the caller sees it').check();

  const asked = await page.getByLabel('request', { exact: true }).textContent();
  expect(asked).toContain(`/api/v1/chat' \\\n  -H "Authorization: Bearer $API_KEY"`);
  expect(asked).toContain(message.replace("'", String.raw`'\''`));
  const answered = JSON.parse((await page.getByLabel('response', { exact: true }).textContent()) ?? '') as object;
  expect(answered).toEqual({
    reply: 'First words and the rest.',
    conversationId: expect.any(String),
    messageId: expect.any(String),
  });
});

longTest('an owner makes replies strict, and lets an endpoint have their sources', async () => {
  const { page, stored, assistantId } = await anOwnerAt((id) => `/assistants/${id}/settings`);

  await page.getByText('Advanced', { exact: true }).click();
  await page.getByLabel('Strict replies').click();
  await page.getByRole('button', { name: 'Save changes' }).click();
  await page.getByText('Saved.').waitFor();
  await visit(page, `/assistants/${assistantId}/webhooks`);
  await page.getByRole('button', { name: 'Add endpoint' }).first().click();
  await page.getByLabel('URL').fill('http://127.0.0.1:9/hook');
  expect(await page.getByLabel('With the sources of replies').count()).toBe(0);
  await page.getByLabel('Also send replies').click();
  await page.getByLabel('With the sources of replies').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Add endpoint' }).click();
  await page.getByRole('group', { name: 'Signing secret' }).waitFor();

  const [endpoint] = await stack.service.endpoints.listEndpoints(assistantId);
  expect([(await stored()).strict, endpoint?.include]).toEqual([true, ['sources']]);
});

test('an operator sees what a reply is taken from, what decided, and what was flagged in it', async () => {
  const { page, chat } = await anOwnerAt((id) => `/assistants/${id}/settings`);
  const { conversationId } = (await chat({ session_id: randomUUID(), message: 'How long does a refund take?' })).body;

  await visit(page, `/inbox/${conversationId}`);
  await page.getByRole('button', { name: 'Why this reply' }).click();
  const link = page.getByRole('link', { name: 'Refunds', exact: true });
  await link.waitFor();

  expect(await link.getAttribute('href')).toBe('https://example.com/help#refunds');
  expect(await page.getByText('Handbook.pdf').count()).toBe(1);
  await page.getByText('Sentence 2 has a number that stands in no entry or source.').waitFor();
  await page.getByText('0.89, sure from 0.74 on').waitFor();
});

test('an owner connects the channel, and makes and removes its secret address', async () => {
  const { page, assistantId } = await anOwnerAt((id) => `/assistants/${id}/channel`);

  await page.getByRole('button', { name: 'Connect', exact: true }).click();
  await page.getByRole('button', { name: 'Generate' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Connect' }).click();
  await page.getByRole('button', { name: 'Make an address' }).click();
  const address = await takeSecret(page, 'Secret address');
  const post = async () => (await request(address, { body: aTurn() })).status;
  await eventually(async () => expect(await post()).toBe(200));
  await page.getByRole('button', { name: 'Remove address…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove address' }).click();
  await eventually(async () => expect(await post()).toBe(401));

  expect(address).toContain(`${stack.url}/api/v1/channels/webhook/${assistantId}/vp_`);
  expect(await page.content()).not.toContain(address);
});

test('an owner switches the web chat on, sees how it looks, and makes a secret for user ids', async () => {
  const { page, stored } = await anOwnerAt((id) => `/assistants/${id}/web`);
  const preview = page.getByRole('group', { name: 'Preview' });

  await page.getByLabel('Show the widget and the hosted page').check();
  await page.getByLabel('Sites that may show the widget').fill('https://shop.example\n www.shop.example/contact');
  await page.getByLabel('Title').fill('Shop help');
  await page.getByLabel('Questions to begin with').fill('When are you open?');
  await preview.getByText('Shop help').waitFor();
  await preview.getByRole('button', { name: 'When are you open?' }).waitFor();
  await page.getByRole('button', { name: 'Save changes' }).click();
  await page.getByText('Saved.').waitFor();
  await page.getByRole('button', { name: 'Make a secret' }).click();
  const secret = await takeSecret(page, 'Secret');

  const { web } = await stored();
  const origins = ['https://shop.example', 'https://www.shop.example'];
  expect(web).toMatchObject({ enabled: true, origins, title: 'Shop help', starters: ['When are you open?'] });
  expect([secret.startsWith('wsec_'), web.identity?.id.length]).toEqual([true, 16]);
});
