import { randomUUID } from 'node:crypto';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, aTurn, type HistoryBody } from '../support/builders.ts';
import { go } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver, type Received } from '../kit/receiver.ts';
import { longTest } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack();
const browser = useBrowser();

const rowOf = (page: Page, conversationId: string) => page.locator(`[data-conversation="${conversationId}"]`);
const topOf = (page: Page) => page.locator('[data-conversation]').first().getAttribute('data-conversation');

/** Notifications of the desktop are recorded instead of shown. */
const RECORDED = `
  window.asked = 0;
  window.notified = [];
  window.Notification = class {
    static permission = 'default';
    static async requestPermission() { window.asked += 1; return (Notification.permission = 'granted'); }
    constructor(title, options) { window.notified.push({ title, ...options }); }
    addEventListener() {}
    close() {}
  };`;

const aDesk = async () => {
  const owner = await anOperator(stack);
  const agent = await anOperator(stack, 'agent');
  const assistant = await anAssistant(stack);
  await owner.call('PATCH', `/operators/${agent.operatorId}`, { assistantIds: [assistant.assistantId] });
  const session = `visitor-${randomUUID()}`;
  const say = async (message: string, session_id = session): Promise<string> => {
    const { status, body } = await assistant.chat(aTurn({ session_id, message }));
    expect(status).toBe(200);
    return body.conversationId;
  };
  const page = await browser.open(stack.url, { cookie: agent.cookie() });
  await page.addInitScript(RECORDED);
  return { owner, agent, assistant, page, say };
};

test('the menu counts the conversations that need a person, live', async () => {
  const { owner, page, say } = await aDesk();
  await go(page, '/inbox?view=all');
  const inbox = (name: string) => page.getByRole('link', { name, exact: true });
  await inbox('Inbox').waitFor();

  const conversationId = await say('I want to speak to a human please');
  await inbox('Inbox 1 to take').waitFor();
  await owner.post(`/conversations/${conversationId}/resolve`);
  await inbox('Inbox').waitFor();

  expect(await inbox('Inbox').count()).toBe(1);
});

longTest('an agent takes over a conversation, from the first message until it is reopened', async () => {
  const { agent, assistant, page, say } = await aDesk();
  const receiver = await openReceiver();
  const { secret } = await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  await go(page, '/inbox?view=all');
  expect(await page.evaluate('window.asked')).toBe(0);
  await page.getByRole('button', { name: `Account of ${agent.email}` }).click();
  await page.getByRole('menuitem', { name: 'Turn notifications on' }).click();
  await page.getByRole('menuitem', { name: 'Turn notifications off' }).waitFor();
  await page.keyboard.press('Escape');

  const conversationId = await say('What are your opening hours?');
  await rowOf(page, conversationId).waitFor({ timeout: atPace(1_000) });

  await page.evaluate('document.hasFocus = () => false');
  await say('I want to talk to a human');
  await eventually(async () =>
    expect(await page.evaluate('window.notified')).toMatchObject([
      { title: 'A conversation needs a person.', body: 'Test assistant', silent: true },
    ]),
  );
  expect(await page.title()).toMatch(/^\(1\) /);
  await page.evaluate(`delete document.hasFocus; dispatchEvent(new Event('focus'))`);
  await eventually(async () => expect(await page.title()).not.toMatch(/^\(/));

  const { seq } = await stack.service.mongo
    .collection('conversations')
    .findOne({ conversationId })
    .then((found) => found as unknown as { seq: number });
  const polled = assistant.call<HistoryBody>(`/api/v1/conversations/${conversationId}?after_seq=${seq}&wait=25`);
  await rowOf(page, conversationId).click();
  await page.getByRole('button', { name: 'Assign to me' }).click();
  await page.getByRole('textbox', { name: 'Reply', exact: true }).fill('Hello, this is Ann.');
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  const byPoll = (await polled).body.messages;
  const bySeq = (await assistant.history(conversationId, `?after_seq=${seq}`)).body.messages;
  expect(byPoll).toMatchObject([{ role: 'operator', content: 'Hello, this is Ann.', seq: seq + 1 }]);
  expect(bySeq).toEqual(byPoll);

  await page.getByRole('button', { name: 'Tag', exact: true }).click();
  await page.getByRole('textbox', { name: 'Tag', exact: true }).fill('vip');
  await page.getByRole('button', { name: 'Add tag' }).click();
  await rowOf(page, conversationId).getByText('vip').waitFor();
  await page.getByRole('button', { name: 'Resolve', exact: true }).click();
  await page.getByRole('button', { name: 'Reopen' }).waitFor();
  const kindOf = ({ json }: Received) => (json as { event: string }).event;
  const received = await receiver.waitFor((all) => all.some((one) => kindOf(one) === 'conversation.resolved'));
  const signed = received.filter((one) => ['tag.added', 'conversation.resolved'].includes(kindOf(one)));
  expect(signed.map(kindOf)).toEqual(['tag.added', 'conversation.resolved']);
  for (const { body, headers } of signed)
    expect(verifyWebhook(body, headers['x-factory-signature'], [secret])).toMatchObject({ ok: true });

  const other = await say('What are your opening hours?', `visitor-${randomUUID()}`);
  await eventually(async () => expect(await topOf(page)).toBe(other));
  await say('One more question: what are your opening hours?');
  await eventually(async () => expect(await topOf(page)).toBe(conversationId));
  await rowOf(page, conversationId).getByText('Open', { exact: true }).waitFor();
  await page.getByText('One more question: what are your opening hours?').first().waitFor();
});

test('a browser that was offline shows everything it missed, without a reload', async () => {
  browser.expectComplaint(/ERR_INTERNET_DISCONNECTED/);
  const { owner, page, say } = await aDesk();
  const first = await say('What are your opening hours?');
  await go(page, '/inbox?view=all');
  await rowOf(page, first).waitFor();
  await page.evaluate('window.stayed = true');

  await page.context().setOffline(true);
  await page.getByText('Reconnecting…').waitFor();
  const missed = [];
  for (let nth = 0; nth < 5; nth += 1) missed.push(await say('When are you open?', `missed-${randomUUID()}`));
  await owner.post(`/conversations/${first}/tags`, { tag: 'late' });
  await page.context().setOffline(false);

  for (const id of missed) await rowOf(page, id).waitFor();
  await rowOf(page, first).getByText('late').waitFor();
  await page.getByText('Reconnecting…').waitFor({ state: 'detached' });
  expect(await topOf(page)).toBe(first);
  expect(await page.evaluate('window.stayed')).toBe(true);
});

/** Records the time from each key to the next frame after it. */
const TIMED = `
  window.delays = [];
  addEventListener('keydown', (event) => {
    const at = event.timeStamp;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => window.delays.push(performance.now() - at);
      port2.postMessage(null);
    });
  }, { capture: true });`;

longTest('typing stays quick while 1,000 conversations change a minute', async () => {
  const { assistant, page, say } = await aDesk();
  const open = await say('I want to talk to a human');
  const keys = await createFeed(stack.service).openConversations(assistant.assistantId, 200);
  await page.addInitScript(TIMED);
  await go(page, `/inbox/${open}?view=all`);
  const field = page.getByRole('textbox', { name: 'Reply', exact: true });
  await field.click();
  const conversations = stack.service.mongo.collection<{ _id: string }>('conversations');
  let over = false;
  let changes = 0;
  const change = async (): Promise<void> => {
    const begun = performance.now();
    while (!over) {
      await conversations.updateOne(
        { _id: keys[changes % keys.length] },
        { $set: { leadScore: changes % 100 }, $currentDate: { updatedAt: true } },
      );
      changes += 1;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, begun + changes * 60 - performance.now())));
    }
  };
  const begunAt = performance.now();
  const changing = change();

  await page.keyboard.type('Thank you for waiting. We are open from 9 to 5 every day of the week. '.repeat(2), {
    delay: 80,
  });
  const perMinute = (changes / (performance.now() - begunAt)) * 60_000;
  over = true;
  await changing;

  const delays = await page.evaluate<number[]>('window.delays');
  // Other load makes some stretches slow. The changes come at the same rate in all.
  const stretches = Array.from({ length: 5 }, (_, nth) => delays.slice(nth * 28, (nth + 1) * 28));
  const slowest = stretches.map((stretch) => stretch.toSorted((a, b) => b - a)[2] ?? Number.POSITIVE_INFINITY);
  expect(await field.inputValue()).toHaveLength(140);
  expect(delays.length).toBeGreaterThanOrEqual(140);
  expect(perMinute).toBeGreaterThan(900);
  expect(Math.min(...slowest)).toBeLessThanOrEqual(atPace(50));
});
