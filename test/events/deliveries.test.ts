import { randomUUID } from 'node:crypto';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { DeliveryPage } from '../../src/events/list.ts';
import { ERROR_KINDS, isFinal, OUTCOMES, STEPS } from '../../src/events/delivery.ts';
import { toDeliveryView } from '../../src/events/view.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ sending: { deadlineMs: 2_000 } });

const anEndpointAt = async (url: string) => {
  const { assistantId, chat } = await anAssistant(stack);
  const { endpoint, secret } = await stack.service.endpoints.addEndpoint(assistantId, { url });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  const { conversationId } = (await stack.service.conversations.outbox.read(key)) ?? { conversationId: '' };
  const list = (filter = {}) => stack.service.deliveries.listRecords({ assistantId, ...filter });
  return {
    assistantId,
    chat,
    secret,
    key,
    conversationId,
    feed,
    list,
    endpointId: endpoint.endpointId,
    say: (...contents: string[]) => feed.say(assistantId, key, contents),
    ended: (count: number) =>
      eventually(async () => {
        const { deliveries } = await list({ limit: 200 });
        const final = deliveries.filter(({ outcome }) => isFinal(outcome));
        expect(final).toHaveLength(count);
        return final;
      }),
  };
};

test('a delivery records the exact request, the response and the outcome', async () => {
  const answer = 'ü'.repeat(20_000);
  const headers = { 'x-own': 'yes', $where: '1', 'a.b': '2' };
  const receiver = await openReceiver({ respond: () => ({ status: 202, body: answer, headers }) });
  const { say, ended, endpointId, secret } = await anEndpointAt(`${receiver.url}/hook?x=1`);

  const [event] = await say('Grüße 👋');
  const [listed] = await ended(1);
  const delivery = await stack.service.deliveries.getDelivery(listed?._id ?? '');

  const [request] = receiver.received;
  expect(delivery).toMatchObject({
    _id: `${event?.eventId}:${endpointId}`,
    outcome: 'delivered',
    errorKind: null,
    status: 202,
    truncated: true,
    remoteAddress: '127.0.0.1',
    redelivery: false,
    url: `${receiver.url}/hook?x=1`,
    worker: expect.stringMatching(/^.{16}$/) as string,
  });
  expect(Buffer.from(delivery.body ?? '')).toEqual(request?.body);
  const sent = (delivery.requestHeaders ?? []).map(({ name, value }) => [name.toLowerCase(), value]);
  expect(Object.fromEntries(sent)).toEqual(request?.headers);
  const kept = (delivery.responseHeaders ?? []).map(({ name, value }) => [name, value]);
  expect(Object.fromEntries(kept)).toMatchObject(headers);
  expect(delivery.responseBody).toBe('ü'.repeat(8192));
  expect(delivery.timings?.total).toBeGreaterThan(0);
  expect(delivery.expiresAt.getTime()).toBeGreaterThan(Date.now() + 29 * 86_400_000);
  const { verifyWebhook } = await import('../../packages/client/src/verify-webhook.ts');
  expect(verifyWebhook(request?.body ?? '', request?.headers['x-factory-signature'], [secret])).toMatchObject({
    ok: true,
  });
  const view = toDeliveryView(delivery);
  expect(view.requestHeaders['X-Factory-Signature']).toMatch(/^t=\d+,v1=\[redacted\]$/);
  expect(JSON.stringify(view)).not.toContain(delivery.token);
});

test.each([
  [200, 'delivered'],
  [302, 'rejected'],
  [410, 'rejected'],
  [500, 'rejected'],
])('a response with status %i ends as %s after one request', async (status, outcome) => {
  const receiver = await openReceiver({ respond: () => ({ status, headers: { location: '/elsewhere' } }) });
  const { say, ended } = await anEndpointAt(receiver.url);

  await say('hello');
  const [delivery] = await ended(1);

  expect(delivery).toMatchObject({ outcome, status, errorKind: null });
  expect(receiver.received.map(({ path }) => path)).toEqual(['/']);
});

test('no answer ends unknown; no connection ends not_sent', async () => {
  const silent = await openReceiver({ respond: () => new Promise(() => undefined) });
  const cut = createServer((socket) => socket.once('data', () => socket.destroy())).listen(0, '127.0.0.1');
  onTestFinished(() => void cut.close());
  const closed = await openReceiver();
  await closed.close();
  await eventually(() => expect(cut.listening).toBe(true));
  const { port } = cut.address() as AddressInfo;

  const ends = await Promise.all(
    [silent.url, `http://127.0.0.1:${port}`, closed.url].map(async (url) => {
      const { say, ended } = await anEndpointAt(url);
      await say('hello');
      return (await ended(1))[0];
    }),
  );

  expect(ends.map((one) => [one?.outcome, one?.errorKind, one?.status])).toEqual([
    ['unknown', 'timeout', null],
    ['unknown', 'reset', null],
    ['not_sent', 'connect', null],
  ]);
});

test('the list is filtered, paged by a cursor on an index, and shows pending events as queued', async () => {
  const receiver = await openReceiver({ respond: (_, nth) => ({ status: nth % 2 ? 200 : 500 }) });
  const { say, ended, assistantId, endpointId, conversationId, list, feed, chat } = await anEndpointAt(receiver.url);
  await say(...Array.from({ length: 7 }, (_, index) => `message ${index}`));
  await chat({ session_id: randomUUID(), message: 'another conversation' });
  const all = await ended(9);
  const recent = stack.service.deliveries.list;
  await stack.service.endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
  const [key = ''] = await feed.openConversations(assistantId, 1);
  const waiting = await feed.say(assistantId, key, ['paused 1', 'paused 2']);

  const pages: string[][] = [];
  let cursor: string | null = null;
  do {
    const page: DeliveryPage = await recent({ assistantId, limit: 4, ...(cursor && { cursor }) });
    pages.push(page.deliveries.map(({ deliveryId }) => deliveryId));
    cursor = page.nextCursor;
  } while (cursor);
  const count = async (filter: object) => (await recent({ assistantId, ...filter })).deliveries.length;

  expect(pages.map(({ length }) => length)).toEqual([4, 4, 3]);
  expect(new Set(pages.flat()).size).toBe(11);
  expect(pages.flat().slice(0, 2).toSorted()).toEqual(
    waiting.map(({ eventId }) => `${eventId}:${endpointId}`).toSorted(),
  );
  expect(await count({ outcome: 'queued' })).toBe(2);
  expect(await count({ outcome: 'rejected' })).toBe(4);
  expect(await count({ event: 'conversation.created' })).toBe(1);
  expect(await count({ conversationId })).toBe(7);
  expect(await count({ eventId: all[3]?.eventId })).toBe(1);
  expect(await count({ endpointId: randomUUID() })).toBe(0);
  expect(await count({ to: new Date(Date.now() - 60_000) })).toBe(0);
  await expect(list({ cursor: 'nonsense' })).rejects.toMatchObject({ code: 'validation_failed' });
  const plan = await stack.service.mongo
    .collection('deliveries')
    .find({ assistantId, outcome: 'rejected' })
    .sort({ createdAt: -1, _id: -1 })
    .explain();
  expect(JSON.stringify(plan.queryPlanner.winningPlan)).toContain('failures');
  expect(JSON.stringify(plan.queryPlanner.winningPlan)).not.toContain('"SORT"');
});

test('no step leaves a final outcome, and every step has known states', () => {
  const steps = Object.values(STEPS);
  expect(steps.every(({ from }) => from === null || !isFinal(from))).toBe(true);
  expect(new Set(steps.flatMap(({ to }) => to).filter((to) => to !== null))).toEqual(new Set(OUTCOMES));
});

test('the page for receivers names every error kind, and no other', async () => {
  const { readFile } = await import('node:fs/promises');
  const page = await readFile('docs/receiving-webhooks.md', 'utf8');
  const table = page.slice(page.indexOf('| kind |')).split('\n\n')[0] ?? '';
  const named = table
    .split('\n')
    .flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/`([a-z_]+)`/g)].map(([, kind]) => kind));
  expect(new Set(named)).toEqual(new Set(ERROR_KINDS));
  expect(named).toHaveLength(ERROR_KINDS.length);
});
