import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { isFinal } from '../../src/events/delivery.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { OWNER } from '../support/scene.ts';
import { contentOf, openReceiver, type Receiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
let cookie = '';
beforeAll(async () => {
  await stack.service.operators.createOperator({ ...OWNER, role: 'owner' });
  const signedIn = await request(`${stack.url}/operator/v1/session`, { body: OWNER, headers: { Origin: stack.url } });
  cookie = signedIn.headers.get('set-cookie')?.split(';')[0] ?? '';
});

const aReceiver = async (headers: Record<string, string>): Promise<Receiver> => {
  return openReceiver({ respond: () => ({ headers }) });
};

/** Legal header names that are also MongoDB keys or operators, or names of JavaScript built-ins. */
const NAMES = ['_bsontype', '$set', '$where', 'a.b', '.', '$', 'constructor', 'toJSON', 'toBSON', 'prototype', '_id'];
const HOSTILE = Object.fromEntries(NAMES.map((name) => [name, 'x']));

test('a delivery to a receiver with hostile header names gets its outcome, and the names are shown unchanged', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const receiver = await aReceiver(HOSTILE);
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });

  await chat(aTurn());

  const rows = await eventually(async () => {
    const found = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
    expect(found.map(({ outcome }) => outcome as string)).toEqual(['delivered', 'delivered']);
    return found;
  });
  const { body } = await request<{ responseHeaders: Record<string, string> }>(
    `${stack.url}/operator/v1/deliveries/${String(rows[0]?._id)}`,
    { headers: { Cookie: cookie } },
  );
  const shown = Object.fromEntries(NAMES.map((name) => [name.toLowerCase(), 'x']));
  expect(body.responseHeaders).toMatchObject(shown);
});

test('a hostile receiver does not delay the events of another tenant', async () => {
  const { endpoints, mongo } = stack.service;
  const [hostile, healthy] = [await anAssistant(stack), await anAssistant(stack)];
  const [bad, good] = [await aReceiver(HOSTILE), await aReceiver({})];
  await endpoints.addEndpoint(hostile.assistantId, { url: bad.url });
  await endpoints.addEndpoint(healthy.assistantId, { url: good.url });
  const feed = createFeed(stack.service);
  const EVENTS = sized({ everyday: 60, long: 300 });

  for (const { assistantId } of [hostile, healthy]) {
    const keys = await feed.openConversations(assistantId, EVENTS);
    await Promise.all(keys.map((key) => feed.say(assistantId, key, [randomUUID()])));
  }

  for (const { assistantId } of [hostile, healthy]) {
    await eventually(async () => {
      const rows = await mongo.collection('deliveries').find({ assistantId }).toArray();
      expect(rows.filter(({ outcome }) => outcome === 'delivered')).toHaveLength(EVENTS);
    });
  }
  expect(good.received).toHaveLength(EVENTS);
  expect(bad.received).toHaveLength(EVENTS);
});

test('an event that is too large for a record fails alone, and the next event is delivered', async () => {
  const { endpoints, mongo } = stack.service;
  const { assistantId } = await anAssistant(stack);
  const receiver = await aReceiver({});
  await endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistantId, 40);
  const [first = '', ...others] = keys;

  // A control character takes one byte in the outbox, but six bytes in the JSON body. Only the body therefore exceeds
  // MongoDB's limit of 16 MB.
  await feed.say(assistantId, first, ['\u0001'.repeat(3_000_000), 'behind it'], { silent: true });
  await Promise.all(keys.map((key) => feed.say(assistantId, key, ['beside it'])));

  const ended = await eventually(async () => {
    const rows = await mongo.collection('deliveries').find({ assistantId }).toArray();
    const final = rows.filter(({ outcome }) => isFinal(outcome));
    expect(final).toHaveLength(keys.length + 2);
    return final;
  });
  expect(ended.filter(({ outcome }) => outcome !== 'delivered')).toMatchObject([
    { outcome: 'not_sent', errorKind: 'internal' },
  ]);
  const contents = receiver.received.map(contentOf);
  expect(contents.filter((content) => content === 'behind it')).toHaveLength(1);
  expect(contents.filter((content) => content === 'beside it')).toHaveLength(others.length + 1);
});
