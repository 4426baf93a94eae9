import { randomUUID } from 'node:crypto';
import type { Locator } from 'playwright-core';
import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, aTurn, type ChatBody, request } from '../support/builders.ts';
import { anAccount, go, open, settled, signIn, takeSecret } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver } from '../kit/receiver.ts';
import { addPastMinutes } from '../support/past-minutes.ts';
import { longTest } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
const browser = useBrowser();

const chat = (apiKey: string, message: string) =>
  request<ChatBody>(`${stack.url}/api/v1/chat`, { body: aTurn({ message }), bearer: apiKey });

test('an owner sets up an assistant that answers, and its events are delivered and resent', async () => {
  const secrets: string[] = [];
  const receiver = await openReceiver({ secret: secrets });
  const page = await browser.open(stack.url);

  await page.goto('/');
  await signIn(page, await anAccount(stack));
  await page.getByRole('button', { name: 'New assistant' }).first().click();
  await page.getByRole('dialog').getByLabel('Name').fill('Tea shop');
  await page.getByRole('button', { name: 'Create assistant' }).click();
  await page.waitForURL(/\/assistants\/[\w-]{36}\/overview/);

  await open(page, 'Knowledge');
  await page.getByRole('button', { name: 'Add entry' }).click();
  const editor = page.getByRole('dialog');
  await editor.getByLabel('Question').fill('Do you sell green tea?');
  await editor.getByLabel('Answer', { exact: true }).fill('Yes, from three gardens.');
  await editor.getByRole('button', { name: 'Add entry' }).click();
  await page.getByRole('list', { name: 'Knowledge' }).getByText('Do you sell green tea?').waitFor();

  await open(page, 'Try it');
  await page.getByLabel('Message').fill('do you sell green tea');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('log').getByText('Yes, from three gardens.').waitFor();
  await page.getByRole('button', { name: 'Why this reply' }).click();
  await page.getByText('A knowledge entry').waitFor();

  await open(page, 'API keys');
  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('Shop server');
  await page.getByRole('dialog').getByRole('button', { name: 'Create key' }).click();
  const apiKey = await takeSecret(page, 'API key');
  const answered = await chat(apiKey, 'do you sell green tea');
  expect(answered.body.reply).toBe('Yes, from three gardens.');
  await page.getByRole('button', { name: 'Actions for Shop server' }).click();
  await page.getByRole('menuitem', { name: 'Rotate…' }).click();
  await page.getByRole('dialog').getByLabel('Overlap').selectOption('24');
  await page.getByRole('button', { name: 'Rotate key' }).click();
  const rotatedKey = await takeSecret(page, 'API key');
  await page.getByText(/The old key works until/).waitFor();
  for (const key of [apiKey, rotatedKey]) expect((await chat(key, 'green tea')).status).toBe(200);

  await open(page, 'Webhooks');
  await page.getByRole('button', { name: 'Add endpoint' }).first().click();
  await page.getByRole('dialog').getByLabel('URL').fill(`${receiver.url}/hook`);
  await page.getByRole('dialog').getByRole('button', { name: 'Add endpoint' }).click();
  secrets.push(await takeSecret(page, 'Signing secret'));
  await page.getByRole('list', { name: 'Endpoints' }).getByRole('link').click();
  await page.getByLabel('Kind of test event').selectOption('tag.added');
  await page.getByRole('button', { name: 'Send test event' }).click();
  await page.getByText('The test event arrived.').waitFor();
  expect(receiver.received).toMatchObject([{ json: { event: 'tag.added' }, verdict: { ok: true } }]);

  await page.getByRole('button', { name: 'Rotate secret…' }).click();
  await page.getByRole('dialog').getByLabel('Overlap').selectOption('0');
  await page.getByRole('dialog').getByRole('button', { name: 'Rotate secret' }).click();
  secrets.splice(0, 1, await takeSecret(page, 'Signing secret'));

  await open(page, 'Deliveries');
  await page.getByRole('list', { name: 'Deliveries' }).getByRole('link').click();
  await page.getByRole('heading', { level: 1, name: 'tag.added' }).waitFor();
  await page.getByText('Delivered').first().waitFor();
  await page.getByRole('button', { name: 'Resend…' }).click();
  const sendAgain = page.getByRole('button', { name: 'Resend event' });
  expect(await sendAgain.isDisabled()).toBe(true);
  await page.getByLabel('I understand that the receiver may get this event twice').check();
  await sendAgain.click();
  await receiver.waitFor((all) => all.length >= 2);
  await page.getByText('By an operator').waitFor();
  await page.getByText('Delivered').first().waitFor();

  expect(receiver.received.map(({ headers }) => headers['x-factory-redelivery'])).toEqual([undefined, 'true']);
  expect(receiver.received.map(({ verdict }) => verdict?.ok)).toEqual([true, true]);
  const told = await page.content();
  for (const secret of [apiKey, rotatedKey, ...secrets]) expect(told).not.toContain(secret);
});

test('signing in opens the page that was asked for, after a wrong password and after the session has ended', async () => {
  browser.expectComplaint(/status of 401/);
  const account = await anAccount(stack);
  const { assistantId } = await anAssistant(stack);
  const path = `/operator/assistants/${assistantId}/keys`;
  const page = await browser.open(stack.url);

  await page.goto(path);
  await signIn(page, { ...account, password: 'not my password' });
  await page.getByRole('alert').getByText('The email or the password is wrong.').waitFor();
  await signIn(page, account);
  await page.getByRole('heading', { level: 1, name: 'API keys' }).waitFor();
  await settled(page);
  expect(new URL(page.url()).pathname).toBe(path);

  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('late');
  await stack.service.operators.endSessions(account.operatorId);
  const create = page.getByRole('dialog').getByRole('button', { name: 'Create key' });
  void create.click().catch(() => undefined); // the page may notice by itself before
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await page.getByRole('status').getByText('Your session has ended').waitFor();
  await signIn(page, account);
  await page.getByRole('heading', { level: 1, name: 'API keys' }).waitFor();

  expect(new URL(page.url()).pathname).toBe(path);
  expect(await stack.service.assistants.listApiKeys(assistantId)).toHaveLength(1);
});

test('an agent cannot reach the keys by navigation or address', async () => {
  browser.expectComplaint(/status of 403/);
  const agent = await anOperator(stack, 'agent');
  const { assistantId } = await anAssistant(stack);
  await stack.service.assistants.createApiKey({ assistantId, name: 'secret name' });
  const page = await browser.open(stack.url, { cookie: agent.cookie() });

  await go(page, `/assistants/${assistantId}/keys`);
  await page.getByText('Not for your role').waitFor();
  const entries = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allTextContents();

  expect(entries).toContain('Try it');
  expect(entries.join()).not.toMatch(/key|webhook|deliver|operator|audit|queue|knowledge|setting/i);
  expect(await page.content()).not.toContain('secret name');
});

longTest('an agent sees only the assistants given by an owner, and advice if there are none', async () => {
  const [shop, other] = [randomUUID(), randomUUID()].map((id) => `Shop ${id.slice(0, 8)}`) as [string, string];
  const { assistantId } = await stack.service.assistants.createAssistant({ name: shop });
  const away = await stack.service.assistants.createAssistant({ name: other });
  const owner = await anOperator(stack);
  const agent = await anOperator(stack, 'agent');
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  const agents = await browser.open(stack.url, { cookie: agent.cookie() });
  const row = page.getByRole('listitem').filter({ hasText: agent.email });
  const openDialog = async () => {
    await row.getByRole('button', { name: `Actions for ${agent.email}` }).click();
    await page.getByRole('menuitem', { name: 'Assistants…' }).click();
    return page.getByRole('dialog');
  };

  await go(page, '/operators');
  await row.getByText('Agent · All assistants').waitFor();
  const dialog = await openDialog();
  await dialog.getByLabel('Only some').check();
  await dialog.getByLabel('Their assistants').fill(shop);
  await page.getByRole('option', { name: shop }).click();
  await page.keyboard.press('Tab');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await row.getByText(`Agent · ${shop}`).waitFor();
  await go(agents, '/');
  await agents.getByRole('button', { name: `Assistant: ${shop}. Choose another` }).click();
  const offered = await agents.getByRole('menuitem').allTextContents();
  const toOther = await browser.open(stack.url, { cookie: agent.cookie() });
  await go(toOther, `/assistants/${away.assistantId}/try`);
  await toOther.getByText('There is no page at this address').waitFor();

  const again = await openDialog();
  await again.getByLabel('All assistants').check();
  await again.getByLabel('Only some').check();
  await again.getByText('None selected: they see no assistants.').waitFor();
  await again.getByRole('button', { name: 'Save' }).click();
  await row.getByText('Agent · No assistant').waitFor();
  await go(agents, '/');
  await agents.getByText('You have no assistant').waitFor();
  await go(agents, `/assistants/${assistantId}/try`);
  await agents.getByText('You have no assistant').waitFor();

  expect(offered).toEqual([shop]);
});

longTest('an invitation offers assistants for agents but not for owners', async () => {
  const { assistantId } = await stack.service.assistants.createAssistant({ name: `Desk ${randomUUID().slice(0, 8)}` });
  const { name } = await stack.service.assistants.getAssistant(assistantId);
  const owner = await anOperator(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  const invite = async (email: string, fill: (dialog: Locator) => Promise<void>) => {
    await page.getByRole('button', { name: 'Invite' }).click();
    await page.getByRole('dialog').getByLabel('Email').fill(email);
    await fill(page.getByRole('dialog'));
    await page.getByRole('button', { name: 'Create the invitation' }).click();
    await takeSecret(page, 'Link');
    return (await stack.service.operators.findByEmail(email))?.assistantIds;
  };
  const emailOf = (who: string) => `${who}-${randomUUID()}@example.com`;

  await go(page, '/operators');
  const asOffered = await invite(emailOf('all'), async () => undefined);
  const some = await invite(emailOf('some'), async (dialog) => {
    await dialog.getByLabel('Only some').check();
    await dialog.getByLabel('Their assistants').fill(name);
    await page.getByRole('option', { name }).click();
  });
  const ofOwner = await invite(emailOf('owner'), async (dialog) => {
    await dialog.getByLabel('Only some').check();
    await dialog.getByLabel('Owner').check();
    await dialog.getByText('All assistants').waitFor({ state: 'detached' });
  });

  expect([asOffered, some, ofOwner]).toEqual([null, [assistantId], null]);
});

test('who is on call sees how much ended in each minute and how soon, and follows work from page to page', async () => {
  const owner = await anOperator(stack);
  const { assistantId, chat } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const { conversationId } = (await chat(aTurn())).body;
  await receiver.waitFor((all) => all.length >= 2);
  await addPastMinutes(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  await go(page, '/on-call');

  await page.getByText('Show the numbers of How long turns took').click();
  const numbers = page.getByRole('region', { name: 'Numbers of How long turns took' });
  expect(await numbers.getByRole('cell').allTextContents()).toContain('10');
  await page.getByLabel('Id', { exact: true }).fill(conversationId);
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByRole('link', { name: 'Its deliveries' }).click();
  await page.getByRole('link', { name: /message.received/ }).click();
  await page.getByRole('link', { name: 'Where it is' }).click();
  await page.getByRole('heading', { name: 'Delivery: delivered' }).waitFor();
  await page.getByRole('list', { name: 'Found work' }).getByRole('link', { name: 'Conversation' }).click();
  await page.getByRole('link', { name: 'Turns and events' }).click();
  await page.getByRole('heading', { name: 'Conversation: open' }).waitFor();
});

test('an unattended page does not prolong its session, and shows that it has ended', async () => {
  const account = await anAccount(stack);
  const { assistantId } = await anAssistant(stack);
  const page = await browser.open(stack.url);
  const unattended: boolean[] = [];
  const unanswered = new Set<unknown>();
  page.on('request', (request) => {
    if (!request.url().includes('/operator/v1/')) return;
    const isUnattended = request.headers()['x-parley-unattended'] === '1';
    unattended.push(isUnattended);
    if (!isUnattended) unanswered.add(request);
  });
  for (const end of ['requestfinished', 'requestfailed'] as const) {
    page.on(end as 'requestfinished', (request) => void unanswered.delete(request));
  }
  await page.clock.install();
  await page.goto(`/operator/assistants/${assistantId}/deliveries`);
  await signIn(page, account);
  await page.getByRole('heading', { level: 1, name: 'Deliveries' }).waitFor();
  const sessions = stack.service.mongo.collection<{ _id: string }>('operatorSessions');
  const ofAccount = { 'session.operatorId': account.operatorId };
  await page.clock.runFor(61_000);
  unattended.length = 0;
  while (unattended.length < 3) await page.clock.runFor(3_000);
  // A request from the attended time prolongs the session when it is answered.
  await eventually(() => expect(unanswered.size).toBe(0));
  const expires = new Date(Date.now() + 600_000);
  await sessions.updateOne(ofAccount, { $set: { lastModified: new Date(1), expires } });
  const before = await sessions.findOne(ofAccount);

  while (unattended.length < 6) await page.clock.runFor(3_000);
  let isAnswered = false;
  const answered = page.waitForResponse(/deliveries/).finally(() => {
    isAnswered = true;
  });
  while (!isAnswered) await page.clock.runFor(3_000);
  await answered;
  const polled = await sessions.findOne(ofAccount);
  expect(unattended).not.toContain(false);
  expect(polled).toEqual(before);

  await page.mouse.move(40, 40);
  const used = await eventually(async () => {
    await page.clock.runFor(3_000);
    const now = await sessions.findOne<{ _id: string; expires: Date }>(ofAccount);
    expect(now).not.toEqual(before);
    return now;
  });
  expect(Number(used?.expires) - Date.now()).toBeGreaterThan(11 * 3_600_000);

  browser.expectComplaint(/status of 401/);
  await eventually(async () => {
    // A request from the attended time prolongs the session again when it is answered.
    await sessions.updateOne(ofAccount, { $set: { expires: new Date(0) } });
    await page.clock.runFor(61_000);
    expect(await page.getByRole('status').getByText('after 12 hours without use').isVisible()).toBe(true);
  });
});

longTest('signing out does not show that the session has ended', async () => {
  browser.expectComplaint(/status of 401/);
  const { assistantId } = await anAssistant(stack);
  const page = await browser.open(stack.url);
  await page.clock.install();
  await page.goto(`/operator/assistants/${assistantId}/deliveries`);
  await signIn(page, await anAccount(stack));
  await page.getByRole('heading', { level: 1, name: 'Deliveries' }).waitFor();
  await page.route(/\/operator\/v1\/session$/, async (route) => {
    const signedOut = await route.fetch();
    const polled = page.waitForResponse((response) => response.status() === 401);
    await page.clock.runFor(10_000);
    await polled; // the page learns by another request that its session is over
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await route.fulfill({ response: signedOut });
  });
  await page.getByRole('button', { name: /^Account of/ }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  await page.getByText('You are signed out.').waitFor();

  expect(await page.getByRole('heading', { name: 'Sign in' }).count()).toBe(1);
  expect(await page.getByText('Your session has ended').count()).toBe(0);
});
