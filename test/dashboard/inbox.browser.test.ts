import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, aTurn, type HistoryBody } from '../support/builders.ts';
import { go, visit } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { overflowOf } from '../support/page.ts';
import { openReceiver, type Received } from '../kit/receiver.ts';
import { longTest, sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack();
const browser = useBrowser();

const agent = useOpened(() => anOperator(stack, 'agent'));

/** The agent's page, which most tests share, because it loads faster when it has been loaded before. */
const anAgentsPage = () => browser.openOnce(stack.url, { cookie: agent.cookie() });

/** A conversation of a new assistant. From now on, the agent has only this assistant. */
const aConversation = async (
  messages = ['What are your opening hours?'],
  endpoint?: { url: string; secrets: string[] },
) => {
  // A page that is open would ask for what the agent may not see any more.
  await (await anAgentsPage()).goto('about:blank');
  const assistant = await anAssistant(stack);
  // Workers remember endpoints for a second, so this one is there before the first message.
  if (endpoint) {
    const added = await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: endpoint.url });
    endpoint.secrets.push(added.secret);
  }
  const sessionId = String(aTurn().session_id);
  let conversationId = '';
  for (const message of messages) {
    const { body } = await assistant.chat({ session_id: sessionId, message });
    conversationId = body.conversationId;
  }
  await stack.service.operators.updateOperator(agent.operatorId, { assistantIds: [assistant.assistantId] });
  return { assistant, sessionId, conversationId };
};

const messagesOf = (page: Page) => page.getByRole('log', { name: 'Messages' });
const rowsOf = (page: Page) => page.getByRole('list', { name: 'Conversations' }).getByRole('listitem');
const eventOf = ({ json }: Received) => (json as { event: string }).event;
const conversationOf = ({ json }: Received) =>
  (json as { payload: { conversation_id: string } }).payload.conversation_id;
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });

test('a visitor writes, asks for a person, is answered, tagged and resolved, and comes back', async () => {
  const secrets: string[] = [];
  const receiver = await openReceiver({ secret: secrets });
  const { assistant } = await aConversation(undefined, { url: receiver.url, secrets });
  const sessionId = String(aTurn().session_id);
  const page = await anAgentsPage();
  const firstRow = rowsOf(page).first();

  await go(page, '/');
  await page.getByText('Nobody is waiting').waitFor();
  const { body } = await assistant.chat({ session_id: sessionId, message: 'I want to talk to a person' });
  const saidAt = performance.now();
  await rowsOf(page).getByText(sessionId).click();
  const shownAfterMs = performance.now() - saidAt;
  await messagesOf(page).getByText('Handed off to a person').waitFor();
  await messagesOf(page).getByText('Delivered 1 of 1').first().click();
  await messagesOf(page).getByText('message.received delivered').waitFor();
  const preview = await firstRow.innerText();
  await button(page, 'Assign to me').click();
  const { body: before } = await assistant.history(body.conversationId);
  const seq = Math.max(...before.messages.map((message) => message.seq ?? 0));
  const poll = async (): Promise<HistoryBody> => {
    const { body: found } = await assistant.history(body.conversationId, `?after_seq=${seq}&wait=20`);
    return found.messages.length > 0 ? found : poll();
  };
  const polled = poll();
  await page.getByRole('textbox', { name: 'Reply' }).fill('Hello, this is a person.');
  await page.keyboard.press('Control+Enter');
  await messagesOf(page).getByText('Hello, this is a person.').waitFor();
  const reply = await polled;
  await button(page, 'Tag').click();
  await page.getByRole('dialog').getByLabel('Tag').fill('vip');
  await page.getByRole('button', { name: 'Add tag' }).click();
  await page.getByRole('list', { name: 'Tags', exact: true }).getByText('vip').waitFor();
  await button(page, 'Resolve').click();
  await button(page, 'Reopen').waitFor();
  await page.getByText('Nobody is waiting').waitFor();
  const events = [...(await receiver.waitFor((all) => all.map(eventOf).includes('conversation.resolved')))];
  await visit(page, '/inbox?view=open');
  await assistant.chat(aTurn());
  await eventually(async () => expect(await rowsOf(page).count()).toBe(2));
  await assistant.chat({ session_id: sessionId, message: 'What are your opening hours?' });
  await firstRow.getByText(sessionId).waitFor();

  expect(preview).not.toMatch(/user_requested/);
  expect(shownAfterMs).toBeLessThan(atPace(sized({ everyday: 15_000, long: 1_500 })));
  expect(reply.messages.map(({ role, content }) => [role, content])).toEqual([
    ['operator', 'Hello, this is a person.'],
  ]);
  expect(events.filter((one) => conversationOf(one) === body.conversationId).map(eventOf)).toEqual([
    'conversation.created',
    'message.received',
    'conversation.escalated',
    'tag.added',
    'conversation.resolved',
  ]);
  expect(events.map(({ verdict }) => verdict?.ok)).not.toContain(false);
});

test('messages that come quickly wait together in the inbox, and have one reply', async () => {
  const page = await anAgentsPage();
  await page.goto('about:blank');
  const { assistantId, call, chat } = await anAssistant(stack, { input: { quickMessageSeconds: 5 } });
  await stack.service.operators.updateOperator(agent.operatorId, { assistantIds: [assistantId] });
  const session_id = String(aTurn().session_id);
  const headers = { Prefer: 'respond-async' };
  const accepted = await call<{ conversationId: string }>('/api/v1/chat', {
    body: { session_id, message: 'hi' },
    headers,
  });

  const later = chat({ session_id, message: 'What are your opening hours?' });
  await go(page, `/inbox/${accepted.body.conversationId}?view=all`);
  const thread = messagesOf(page);
  const reply = thread.getByText('We are open from 9 to 5.');
  await reply.waitFor();

  const { mergedInto } = (await call<HistoryBody>(`/api/v1/conversations/${accepted.body.conversationId}`)).body
    .messages[0] as { mergedInto?: string };
  expect(mergedInto).toEqual(expect.any(String));
  expect((await later).body.reply).toBe('We are open from 9 to 5.');
  expect(await thread.locator('[data-kind="user"] p').allTextContents()).toEqual([
    'hi',
    'What are your opening hours?',
  ]);
  expect(await reply.count()).toBe(1);
  await eventually(async () => expect(await thread.getByText('Waiting for the assistant').count()).toBe(0));
});

test('two operators are told of each other, and of an answer that came first', async () => {
  const { assistant, conversationId } = await aConversation();
  const other = await anOperator(stack, 'agent');
  await stack.service.operators.updateOperator(other.operatorId, { assistantIds: [assistant.assistantId] });
  const mine = await anAgentsPage();
  const theirs = await browser.open(stack.url, { cookie: other.cookie() });

  await go(mine, `/inbox/${conversationId}`);
  await go(theirs, `/inbox/${conversationId}`);
  await mine.getByText(`Also here: ${other.email}`).waitFor();
  await mine.getByRole('textbox', { name: 'Reply' }).fill('Let me look');
  await theirs.getByText(`${agent.email} is writing in this conversation.`).waitFor();
  await theirs.getByRole('textbox', { name: 'Reply' }).fill('I have it');
  await theirs.keyboard.press('Control+Enter');
  await mine.getByText('Another operator has answered since you began to write.').waitFor();

  await messagesOf(mine).getByText('I have it').waitFor();
  expect(await button(mine, 'Send anyway').isVisible()).toBe(true);
});

longTest('a browser that was offline shows what it has missed', async () => {
  const { assistant, sessionId, conversationId } = await aConversation();
  const page = await anAgentsPage();
  browser.expectComplaint(/ERR_INTERNET_DISCONNECTED/);
  await go(page, `/inbox/${conversationId}?view=all`);

  await page.context().setOffline(true);
  await assistant.chat({ session_id: sessionId, message: 'Are you still there?' });
  const { body: second } = await assistant.chat(aTurn());
  await page.context().setOffline(false);

  await messagesOf(page).getByText('Are you still there?').waitFor();
  await page.locator(`[data-conversation="${second.conversationId}"]`).waitFor();
  expect(await rowsOf(page).count()).toBe(2);
});

longTest('a conversation that is erased while it is open says so', async () => {
  browser.expectComplaint(/status of 404/);
  const { conversationId } = await aConversation();
  const owner = await anOperator(stack);
  const page = await anAgentsPage();
  await go(page, `/inbox/${conversationId}?view=all`);
  await page.getByRole('textbox', { name: 'Reply' }).fill('about your data');

  await owner.call('DELETE', `/conversations/${conversationId}`);
  await page.getByText('This conversation was erased').waitFor();

  expect(await rowsOf(page).count()).toBe(0);
  expect(await page.evaluate<string>('JSON.stringify(sessionStorage)')).not.toContain('about your data');
});

test('a reply that is not sent comes back into its field, and a double click sends once and shows it once', async () => {
  const { conversationId } = await aConversation();
  browser.expectComplaint(/status of 503/);
  const page = await anAgentsPage();
  await go(page, `/inbox/${conversationId}`);
  const field = page.getByRole('textbox', { name: 'Reply' });
  const path = `**/operator/v1/conversations/${conversationId}/replies`;

  await page.route(path, (route) => route.fulfill({ status: 503, body: '{}' }));
  await field.fill('Are you there?');
  await button(page, 'Send').click();
  await page.getByRole('alert').getByText('The reply may not have been sent').waitFor();
  const kept = await field.inputValue();
  const shown = await messagesOf(page).getByText('Are you there?').count();
  await page.unroute(path);
  // The reply stands in the conversation before its sender has the answer.
  const { promise: seen, resolve: see } = Promise.withResolvers<void>();
  await page.route(path, async (route) => {
    const response = await route.fetch();
    await seen;
    await route.fulfill({ response });
  });
  await button(page, 'Send').dblclick();
  await messagesOf(page).getByText('Are you there?').waitFor();
  await eventually(async () => expect(await messagesOf(page).getByText('Sending…').count()).toBe(0));
  const once = await messagesOf(page).getByText('Are you there?').count();
  see();

  const read = await agent.get<{ messages: { role: string }[] }>(`/conversations/${conversationId}`);
  expect([kept, shown, once]).toEqual(['Are you there?', 0, 1]);
  expect(read.body.messages.filter(({ role }) => role === 'operator')).toHaveLength(1);
});

test('a change that is refused is taken back, in the conversation and in the list', async () => {
  const { sessionId, conversationId } = await aConversation();
  browser.expectComplaint(/status of 503/);
  const page = await anAgentsPage();
  await go(page, `/inbox/${conversationId}?view=open`);
  let answer = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    answer = resolve;
  });
  await page.route(`**/operator/v1/conversations/${conversationId}/resolve`, async (route) => {
    await held;
    await route.fulfill({ status: 503, body: '{}' });
  });

  await button(page, 'Resolve').click();
  await button(page, 'Reopen').waitFor();
  await page.getByText('No open conversations').waitFor();
  answer();
  await page.getByText('That did not work').waitFor();
  await button(page, 'Take over').waitFor();
  await rowsOf(page).getByText(sessionId).waitFor();

  const read = await agent.get<{ status: string }>(`/conversations/${conversationId}`);
  expect(read.body.status).toBe('open');
});

longTest('the keyboard opens, answers, tags, assigns and resolves; it does nothing while a person types', async () => {
  const { assistant, sessionId, conversationId } = await aConversation();
  const second = await assistant.chat(aTurn());
  const page = await anAgentsPage();
  await go(page, '/inbox?view=all');
  const at = (id: string) => page.waitForURL(`**/operator/inbox/${id}?view=all`);

  await page.keyboard.press('j');
  await page.locator(`[data-conversation="${second.body.conversationId}"]:focus`).waitFor();
  await page.keyboard.press('j');
  await page.locator(`[data-conversation="${conversationId}"]:focus`).waitFor();
  await page.keyboard.press('Enter');
  await at(conversationId);
  await page.getByRole('heading', { name: sessionId }).waitFor();
  await page.keyboard.press('k');
  await at(second.body.conversationId);
  await page.keyboard.press('j');
  await at(conversationId);
  await messagesOf(page).waitFor();
  await page.keyboard.press('r');
  await page.keyboard.type('see you next Tuesday, are they resolved?');
  const typed = await page.getByRole('textbox', { name: 'Reply' }).inputValue();
  await page.keyboard.press('Escape');
  await page.keyboard.press('a');
  await page.getByRole('complementary', { name: 'Details' }).getByText('You', { exact: true }).waitFor();
  await page.keyboard.press('t');
  await page.getByRole('dialog').getByLabel('Tag').fill('later');
  await page.keyboard.press('Enter');
  await page.getByRole('list', { name: 'Tags', exact: true }).getByText('later').waitFor();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
  await page.keyboard.press('e');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const stillOpen = await button(page, 'Take over').isVisible();
  await page.keyboard.press('e');
  await button(page, 'Reopen').waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('nothing has these words');
  await page.getByText('No conversation matches').waitFor();

  expect([typed, stillOpen]).toEqual(['see you next Tuesday, are they resolved?', true]);
});

test('a conversation of an assistant that is not theirs is not there for an agent', async () => {
  browser.expectComplaint(/status of 404/);
  const { conversationId } = await aConversation(['My secret number is 4711']);
  await aConversation();
  const page = await anAgentsPage();

  await go(page, `/inbox/${conversationId}`);
  await page.getByText('This conversation is not there').waitFor();

  expect(await page.content()).not.toContain('4711');
});

longTest('a draft stays with its conversation until the operator signs out', async () => {
  browser.expectComplaint(/status of 401/); // a request that was in flight
  const { assistant, conversationId } = await aConversation();
  const second = await assistant.chat(aTurn());
  const leaver = await anOperator(stack, 'agent');
  const page = await browser.open(stack.url, { cookie: leaver.cookie() });
  const field = page.getByRole('textbox', { name: 'Reply' });
  const stored = () => page.evaluate<string>('JSON.stringify(sessionStorage)');

  await go(page, `/inbox/${conversationId}?view=all`);
  await field.fill('half a sentence');
  await page.locator(`[data-conversation="${second.body.conversationId}"]`).click();
  await page.waitForURL(`**/inbox/${second.body.conversationId}?view=all`);
  await messagesOf(page).waitFor();
  const ofSecond = await field.inputValue();
  await page.goBack();
  await page.waitForURL(`**/inbox/${conversationId}?view=all`);
  await messagesOf(page).waitFor();
  const ofFirst = await field.inputValue();
  await page.reload();
  await messagesOf(page).waitFor();
  const afterReload = await field.inputValue();
  expect(await stored()).toContain('half a sentence');
  await page.getByRole('button', { name: /^Account of/ }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();

  expect([ofSecond, ofFirst, afterReload]).toEqual(['', 'half a sentence', 'half a sentence']);
  expect(await stored()).not.toContain('half a sentence');
});

longTest('at 360 pixels one pane is shown at a time, with a way back', async () => {
  const { sessionId, conversationId } = await aConversation();
  const page = await browser.open(stack.url, { cookie: agent.cookie(), viewport: { width: 360, height: 740 } });
  const shown = async () => [
    await rowsOf(page).first().isVisible(),
    await messagesOf(page).isVisible(),
    await page.getByRole('complementary', { name: 'Details' }).isVisible(),
    await overflowOf(page),
  ];

  await go(page, '/inbox?view=all');
  const list = await shown();
  await rowsOf(page).getByText(sessionId).click();
  await messagesOf(page).getByText('We are open from 9 to 5.').waitFor();
  const reading = await shown();
  await button(page, 'Details').click();
  await page.getByRole('heading', { name: 'Lead score' }).waitFor();
  const details = await shown();
  await button(page, 'Back to the messages').click();
  await button(page, 'Back to the list').click();
  await page.waitForURL('**/operator/inbox?view=all');
  const back = await shown();
  await page.goBack();
  await page.waitForURL(`**/inbox/${conversationId}?view=all`);

  expect([list, reading, details, back]).toEqual([
    [true, false, false, 0],
    [false, true, false, 0],
    [false, false, true, 0],
    [true, false, false, 0],
  ]);
});

longTest('notes stay between operators, and canned replies fill in what they name', async () => {
  const { assistant, sessionId, conversationId } = await aConversation();
  const content = 'Hello {{session_id}}, {{unknown}}';
  await agent.post(`/assistants/${assistant.assistantId}/canned-replies`, { title: 'Greeting', content });
  const page = await anAgentsPage();

  await go(page, `/inbox/${conversationId}`);
  await messagesOf(page).waitFor();
  await page.keyboard.press('n');
  await page.keyboard.type('A good customer');
  await page.keyboard.press('Control+Enter');
  await messagesOf(page).getByText('A good customer').waitFor();
  await page.getByRole('region', { name: 'Notes' }).getByText('A good customer').waitFor();
  await page.getByText('Reply', { exact: true }).click();
  await page.getByRole('textbox', { name: 'Reply' }).press('/');
  await page.getByRole('option', { name: /Greeting/ }).waitFor();
  await page.keyboard.press('Enter');
  await eventually(async () =>
    expect(await page.getByRole('textbox', { name: 'Reply' }).inputValue()).toBe(`Hello ${sessionId}, {{unknown}}`),
  );

  const { body } = await assistant.history(conversationId);
  expect(JSON.stringify(body)).not.toContain('A good customer');
});

test('an owner erases a conversation after typing the word, and the page forgets it', async () => {
  browser.expectComplaint(/status of 404/); // leaving the conversation is announced after it is erased
  const { sessionId, conversationId } = await aConversation();
  const owner = await anOperator(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });

  await go(page, `/inbox/${conversationId}?view=all`);
  await page.getByRole('textbox', { name: 'Reply' }).fill('about your data');
  await button(page, 'Erase…').click();
  const confirm = page.getByRole('dialog').getByRole('button', { name: 'Erase for good' });
  expect(await confirm.isDisabled()).toBe(true);
  await page.getByRole('dialog').getByLabel('Type “erase” to confirm').fill('erase');
  await confirm.click();
  await page.waitForURL('**/operator/inbox?view=all');
  await rowsOf(page).getByText(sessionId).waitFor({ state: 'detached' });

  expect(await page.evaluate<string>('JSON.stringify(sessionStorage)')).not.toContain('about your data');
  expect((await owner.get(`/conversations/${conversationId}`)).status).toBe(404);
});

longTest('a long list and a long conversation load more while a person scrolls', async () => {
  const { assistant, sessionId, conversationId } = await aConversation();
  for (let nth = 1; nth <= 70; nth += 1)
    await agent.post(`/conversations/${conversationId}/replies`, { content: `reply ${nth}` });
  await Promise.all(Array.from({ length: 60 }, () => assistant.chat(aTurn())));
  const page = await anAgentsPage();
  const rows = page.locator('.inbox-rows');

  await go(page, '/inbox?view=all');
  await rows.evaluate((box) => box.scrollTo(0, box.scrollHeight));
  await eventually(async () => expect(await rows.getAttribute('data-rows')).toBe('61'));
  await rows.evaluate((box) => box.scrollTo(0, box.scrollHeight));
  await rowsOf(page).getByText(sessionId).click();
  await messagesOf(page).getByText('reply 70', { exact: true }).waitFor();
  const drawn = await rowsOf(page).count();
  const before = await messagesOf(page).getByText('reply 1', { exact: true }).count();
  await messagesOf(page).evaluate((box) => box.scrollTo(0, 0));
  await messagesOf(page).getByText('reply 1', { exact: true }).waitFor({ state: 'attached' });
  const first = messagesOf(page).getByText('reply 20', { exact: true });

  expect(drawn).toBeLessThan(40);
  expect(before).toBe(0);
  expect(await messagesOf(page).evaluate((box) => box.scrollTop)).toBeGreaterThan(500);
  expect(await first.count()).toBe(1);
  const texts = await messagesOf(page).getByRole('article').count();
  expect(texts).toBe(72);
});
