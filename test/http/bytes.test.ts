import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import {
  aLongConversation,
  type Answer,
  anAssistant,
  aTurn,
  type HistoryBody,
  LONG_MESSAGES,
  LONGEST_TEXT,
  request,
} from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { webOperations } from '../../src/web-channel/operations.ts';
import { aVisitor, aWebAssistant } from '../support/visitor.ts';
import { collect } from '../support/heap.ts';

const { engine, hold } = aScriptedEngine();
const stack = useStack({ engine, deliveryWorkers: 0 });
const MB = 1024 * 1024;
/** So many of the longest messages, and the most pages that they may take. */
const MESSAGES = sized({ everyday: 96, long: LONG_MESSAGES });
const PAGES = sized({ everyday: 4, long: 15 });

test('lists of conversations and of deliveries are read from MongoDB without their texts', async () => {
  const { secret: bearer } = await stack.service.tokens.createToken({
    name: 'lists',
    scope: 'read',
    assistantIds: null,
    createdBy: null,
  });
  const assistant = await anAssistant(stack, { knowledge: [] });
  const { assistantId } = assistant;
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const { mongo } = stack.service;
  const says = (content: string, role = 'operator') => ({ role, content, createdAt: new Date() });
  const texts = Object.fromEntries(
    Array.from({ length: 10 }, (_, nth) => [nth + 1, [says(LONGEST_TEXT), says(`${nth + 1}${LONGEST_TEXT}`)]]),
  );
  // The projection reads texts too, so it has read the conversation before these are stored.
  await eventually(async () =>
    expect(await mongo.collection('search').findOne({ _id: conversationId as never })).not.toBeNull(),
  );
  await mongo.collection('conversations').updateOne({ conversationId }, { $set: { seq: 10, texts } });
  const record = {
    _id: `${randomUUID()}:${randomUUID()}`,
    eventId: randomUUID(),
    endpointId: randomUUID(),
    assistantId,
    conversationId,
    event: 'message.sent',
    outcome: 'delivered',
    url: '',
    redelivery: false,
    body: LONGEST_TEXT,
    responseBody: LONGEST_TEXT,
    createdAt: new Date(),
    happenedAt: new Date(),
    endedAt: new Date(),
    status: 200,
  };
  await mongo.collection('deliveries').insertOne(record as never);
  await mongo.db?.command({ profile: 2 });

  const get = <Body>(path: string) => request<Body>(`${stack.url}/operator/v1${path}`, { bearer });
  const inbox = await get<{ conversations: { last: { content: string } }[] }>(`/inbox?assistantId=${assistantId}`);
  const deliveries = await get<{ deliveries: object[] }>(`/assistants/${assistantId}/deliveries`);
  await mongo.db?.command({ profile: 0 });

  const read = await mongo.collection('system.profile').find({ op: 'query' }).toArray();
  const bytesOf = (name: string) =>
    read.filter(({ ns }) => String(ns).endsWith(`.${name}`)).map(({ responseLength }) => Number(responseLength));
  expect(inbox.body.conversations.map(({ last }) => last.content)).toEqual([`10${'😀'.repeat(158)}`]);
  expect(deliveries.body.deliveries).toHaveLength(1);
  expect(bytesOf('conversations').length).toBeGreaterThan(0);
  expect(bytesOf('deliveries').length).toBeGreaterThan(0);
  expect(Math.max(...bytesOf('conversations'), ...bytesOf('deliveries'))).toBeLessThan(5_000);
});

test('after short messages, a page of history still reads few pages of long ones at once', async () => {
  const assistant = await anAssistant(stack, { knowledge: [] });
  const conversationId = await aLongConversation(stack, assistant, 96);
  await stack.service.mongo
    .collection('messages')
    .updateOne({ conversationId }, { $set: { 'entries.$[].messages.$[].content': 'a' } });
  let got: HistoryBody['messages'] = [];

  const sent = await profileStatements(stack, async () => {
    const path = `${stack.url}/api/v1/conversations/${conversationId}?limit=1000`;
    got = (await request<HistoryBody>(path, { bearer: assistant.apiKey })).body.messages;
  });

  const read = sent.filter((one) => collectionIn(one) === 'messages').map(({ nreturned = 0 }) => nreturned);
  expect(got.length).toBeGreaterThan(24);
  expect(got.map(({ seq }) => seq)).toEqual(got.map((_, nth) => nth + 1));
  expect([read[0], Math.max(...read)]).toEqual([1, 8]);
});

test('a page of history ends at its bytes as well as at its limit, and the cursor gives the rest', async () => {
  const assistant = await anAssistant(stack, { knowledge: [] });
  const conversationId = await aLongConversation(stack, assistant, MESSAGES);
  const sizes: number[] = [];
  const seqs: (number | null)[] = [];
  let cursor: string | null = null;

  do {
    const query: string = cursor === null ? '' : `?cursor=${cursor}`;
    const { body }: Answer<HistoryBody> = await assistant.history(conversationId, query);
    expect(body.hasMore).toBe(body.nextCursor !== null);
    sizes.push(Buffer.byteLength(JSON.stringify(body)));
    seqs.push(...body.messages.map(({ seq }) => seq));
    cursor = body.nextCursor;
  } while (cursor !== null);
  const two = await assistant.history(conversationId, `?after_seq=${MESSAGES - 10}&limit=2`);

  expect(seqs).toEqual(Array.from({ length: MESSAGES }, (_, nth) => nth + 1));
  expect(Math.max(...sizes)).toBeLessThan(1.1 * MB);
  expect(sizes.length).toBeLessThanOrEqual(PAGES); // pages are as large as they may be
  expect(two.body.messages.map(({ seq }) => seq)).toEqual([MESSAGES - 9, MESSAGES - 8]);
});

const heapMb = (): number => {
  collect();
  return process.memoryUsage().heapUsed / MB;
};

/** As JSON 60 kB, and more than ten times as many bytes when it was parsed. */
const PADDING = Array.from({ length: 20_000 }, () => []);
const WAITING = 40;

/** Each begins a turn with fields that nobody reads. */
const CHANNELS: [string, () => Promise<{ assistantId: string; send: (message: string) => Promise<number> }>][] = [
  [
    'of the chat API',
    async () => {
      const { assistantId, chat } = await anAssistant(stack);
      const body = (message: string) => ({ ...aTurn({ message }), padding: PADDING });
      return { assistantId, send: async (message) => (await chat(body(message))).status };
    },
  ],
  [
    'of the web channel',
    async () => {
      const { assistantId } = await aWebAssistant(stack);
      const send = async (message: string) => {
        const { call, token: bearer } = await aVisitor(stack, assistantId);
        return (await call(webOperations.send, { body: { message, padding: PADDING }, bearer })).status;
      };
      return { assistantId, send };
    },
  ],
  [
    'of MCP',
    async () => {
      const { assistantId, apiKey } = await anAssistant(stack);
      const headers = {
        Authorization: `Bearer ${apiKey}`,
        Accept: 'application/json, text/event-stream',
        'Content-Type': 'application/json',
      };
      const send = async (message: string) => {
        const params = { name: 'ask', arguments: { ...aTurn({ message }), padding: PADDING } };
        const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
        const answer = await fetch(`${stack.url}/mcp`, { method: 'POST', headers, body });
        expect(await answer.text()).toContain(message);
        return answer.status;
      };
      return { assistantId, send };
    },
  ],
  [
    'of the playground',
    async () => {
      const { assistantId } = await anAssistant(stack);
      const owner = await anOperator(stack);
      const path = `/assistants/${assistantId}/playground`;
      const send = async (message: string) =>
        (await owner.post(path, { sessionId: randomUUID(), message, padding: PADDING })).status;
      return { assistantId, send };
    },
  ],
];

test.each(CHANNELS)('turns %s that wait for their reply keep no other field of their bodies', async (_of, open) => {
  const { assistantId, send } = await open();
  await send('hello'); // loads what the first caller needs
  const message = randomUUID();
  const release = hold(message);
  const count = () => stack.service.mongo.collection('conversations').countDocuments({ assistantId });
  const before = heapMb();

  const waiting = Array.from({ length: WAITING }, () => send(message));
  await eventually(async () => expect(await count()).toBe(WAITING + 1));
  const held = heapMb() - before;
  release();

  expect([...new Set(await Promise.all(waiting))]).toEqual([200]);
  expect(held).toBeLessThan(WAITING * 0.25);
});
