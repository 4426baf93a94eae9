import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { isFinal } from '../../src/events/delivery.ts';
import { createFeed } from '../kit/feed.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver, type Receiver, type ReceiverOptions } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

const aReceiver = async (options: ReceiverOptions = {}) => {
  return openReceiver(options);
};

const numbersOf = ({ received }: Receiver, conversationId: string): (number | null)[] =>
  received
    .filter(({ json }) => (json as { payload: { conversation_id: string } }).payload.conversation_id === conversationId)
    .map(({ headers }) => (headers['x-factory-sequence'] === undefined ? null : Number(headers['x-factory-sequence'])));

const upTo = (count: number) => Array.from({ length: count }, (_, nth) => nth + 1);

test('events are numbered without gaps, for each endpoint and conversation, by whatever they are stored', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const [all, few] = [await aReceiver(), await aReceiver()];
  const { endpoints, conversations, deliveries, deliveryQueue } = stack.service;
  const everything = {
    url: all.url,
    standardWebhooks: true,
    events: ['conversation.created', 'message.received', 'tag.added', 'message.sent'],
  };
  await endpoints.addEndpoint(assistantId, everything);
  const { endpoint } = await endpoints.addEndpoint(assistantId, {
    url: few.url,
    events: ['message.received', 'tag.added'],
  });
  const [one, other] = [randomUUID(), randomUUID()];
  // A message may be refused while a busy machine holds the loop.
  const say = (session_id: string, message: string) =>
    eventually(async () => {
      const { status, body } = await chat({ session_id, message: `What are your opening hours, ${message}?` });
      expect(status).toBe(200);
      return body.conversationId;
    });

  const conversationId = await say(one, 'a');
  const second = await say(other, 'a');
  await Promise.all(['b', 'c', 'd'].map((message) => say(one, message)));
  await conversations.transitions.addTag({ conversationId, assistantId }, { tag: 'vip', color: null });
  await conversations.transitions.resolve({ conversationId, assistantId }, randomUUID());
  await say(one, 'again');
  deliveryQueue.wakeDelivery(await deliveries.queueTest(endpoint));

  const { findById } = conversations;
  await eventually(async () => {
    const { announced = {} } = (await findById(conversationId)) ?? {};
    expect(announced[endpoint.endpointId]).toBe(6);
    expect(numbersOf(few, conversationId)).toEqual(upTo(6));
    const [other] = Object.entries(announced).filter(([id]) => id !== endpoint.endpointId);
    expect(other?.[1]).toBeGreaterThan(7);
    expect(numbersOf(all, conversationId)).toEqual(upTo(other?.[1] ?? 0));
    expect(numbersOf(all, second)).toEqual(upTo(3));
  });
  // The whole request of the vectors has the headers of a real one.
  const file = readFileSync(new URL('../../docs/vectors.json', import.meta.url), 'utf8');
  const { vectors } = JSON.parse(file) as { vectors: { headers?: Record<string, string> }[] };
  const named = vectors.flatMap(({ headers = {} }) => Object.keys(headers).map((name) => name.toLowerCase()));
  const sent = Object.keys(all.received[0]?.headers ?? {});
  expect(sent.filter((name) => /^(?:x-factory|webhook)-/.test(name)).toSorted()).toEqual(
    named.filter((name) => name !== 'content-type').toSorted(),
  );
  const isTest = ({ json }: { json: unknown }) => (json as { event: string }).event === 'webhook.test';
  const tested = (await few.waitFor((received) => received.some(isTest))).find(isTest);
  expect(tested?.headers).not.toHaveProperty('x-factory-sequence');
  const { deliveries: rows } = await deliveries.list({ assistantId, endpointId: endpoint.endpointId, conversationId });
  expect(rows.map(({ sequence }) => sequence)).toEqual(upTo(6).toReversed());
});

test('pending events have their numbers before and after they are sent, also when a part of the stream ended', async () => {
  const { assistantId } = await anAssistant(stack);
  const hold = Promise.withResolvers<void>();
  const receiver = await aReceiver({ respond: async (_, nth) => (nth === 1 ? hold.promise.then(() => ({})) : {}) });
  const other = await aReceiver({ respond: () => ({ status: 410 }) });
  const { endpoints, deliveries } = stack.service;
  const { endpoint } = await endpoints.addEndpoint(assistantId, { url: receiver.url });
  const { endpointId } = endpoint;
  await endpoints.addEndpoint(assistantId, { url: other.url });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  const { conversationId = '' } = (await stack.service.conversations.outbox.read(key)) ?? {};
  const texts = Array.from({ length: 520 }, (_, nth) => `text ${nth}`);
  const list = async (outcome: 'queued' | 'not_sent') =>
    (await deliveries.list({ assistantId, endpointId, conversationId, outcome, limit: 200 })).deliveries;

  await feed.say(assistantId, key, ['first']);
  await receiver.waitFor((received) => received.length >= 1);
  await feed.say(assistantId, key, texts);
  const ended = await eventually(async () => {
    const rows = await list('not_sent');
    expect(rows).toHaveLength(20);
    return rows;
  });
  const queued = await list('queued');
  hold.resolve();

  // The first one is being sent meanwhile, and 500 more may wait.
  expect(ended.map(({ sequence }) => sequence).toSorted((a, b) => Number(a) - Number(b))).toEqual(upTo(21).slice(1));
  expect(new Set(queued.map(({ sequence }) => sequence)).size).toBe(200);
  expect(queued.every(({ sequence }) => Number(sequence) > 21)).toBe(true);
  const SENT = sized({ everyday: 30, long: 501 });
  const numbers = () => numbersOf(receiver, conversationId).slice(0, SENT);
  await eventually(() => expect(numbers()).toEqual([1, ...upTo(521).slice(21)].slice(0, SENT)));
  await endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
});

test('an event whose claim is released keeps its number, though later ones have ended before it', async () => {
  const { assistantId } = await anAssistant(stack);
  const receiver = await aReceiver();
  const { endpoints, conversations } = stack.service;
  const { endpointId } = (await endpoints.addEndpoint(assistantId, { url: receiver.url })).endpoint;
  await endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  await feed.say(assistantId, key, ['a', 'b', 'c', 'd']);
  const outbox = await conversations.outbox.read(key);
  const [first, ...others] = outbox?.outbox ?? [];
  if (!outbox || !first) throw new Error('nothing is pending');

  await conversations.outbox.keepSequences(outbox, endpointId, [first]);
  await conversations.outbox.pullEnded(outbox, endpointId, others.slice(0, 2));
  await feed.say(assistantId, key, ['e']);
  await endpoints.resumeEndpoint(endpointId);
  await receiver.waitFor((received) => received.length >= 3);

  expect(numbersOf(receiver, outbox.conversationId)).toEqual([1, 4, 5]);
  const { deliveries: rows } = await stack.service.deliveries.listRecords({ assistantId });
  expect(rows.filter(({ outcome }) => isFinal(outcome)).length).toBeGreaterThan(1);
});
