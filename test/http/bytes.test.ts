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
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ engine: aScriptedEngine().engine, deliveryWorkers: 0 });
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
