import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { anAssistant, aTurn, type TestAssistant } from '../support/builders.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { memoryOfUnread } from '../support/unread.ts';

const stack = useStack({ deliveryWorkers: 0 });
const MANY = 500;
/** The longest text of a note or a canned reply, with the characters that take most in JSON. */
const LONG = `a${'\u0001'.repeat(3_998)}b`;
let assistant: TestAssistant;
let bearer: string;
let conversationId: string;
/** The paths of lists that nobody reads. They need a process of their own. */
const LISTS_UNREAD = sized<[string, () => string][]>({
  everyday: [],
  long: [
    ['canned replies', () => `/assistants/${assistant.assistantId}/canned-replies`],
    ['knowledge', () => `/assistants/${assistant.assistantId}/knowledge`],
  ],
});

beforeAll(async () => {
  const { mongo, tokens } = stack.service;
  assistant = await anAssistant(stack, { knowledge: [] });
  const { assistantId } = assistant;
  const made = { name: 'a program', scope: 'read' as const, assistantIds: [assistantId], createdBy: null };
  bearer = (await tokens.createToken(made)).secret;
  ({ conversationId } = (await assistant.chat(aTurn())).body);
  const [createdAt, updatedAt] = [new Date(), new Date()];
  const range = Array.from({ length: MANY }, (_, nth) => nth);
  const replies = range.map((nth) => ({
    _id: randomUUID(),
    assistantId,
    title: `${nth}`,
    content: LONG,
    createdAt,
    updatedAt,
  }));
  await mongo.collection('cannedReplies').insertMany(replies as never);
  const notes = range.map(() => ({
    _id: `${conversationId}:${randomUUID()}`,
    operatorId: randomUUID(),
    content: LONG,
    createdAt,
  }));
  await mongo.collection('notes').insertMany(notes as never);
  if (LISTS_UNREAD.length === 0) return;
  const shared = { assistantId, answer: '語'.repeat(4_000), language: null, actions: [], tags: [] };
  const variants = Array.from({ length: 50 }, (_, nth) => `${nth} `.padEnd(500, '語'));
  const entries = range.map((position) => ({
    _id: randomUUID(),
    position,
    question: `${position}`,
    variants,
    ...shared,
  }));
  await mongo.collection('knowledge').insertMany(entries as never);
  const last = { $set: { 'knowledgePlaces.last': MANY } };
  await mongo.collection<{ _id: string }>('assistants').updateOne({ _id: assistantId }, last);
});

const PATHS = [
  ['canned replies', () => `/assistants/${assistant.assistantId}/canned-replies`, 'cannedReplies'],
  ['notes of a conversation', () => `/conversations/${conversationId}`, 'notes'],
  ['notes of an export', () => `/conversations/${conversationId}/export`, 'notes'],
] as const;

test.each(sized({ everyday: PATHS.slice(0, 1), long: [...PATHS] }))(
  '%s of 12 MB hold up nobody',
  async (_of, path, name) => {
    const stop = watchLoop();

    const answer = await fetch(`${stack.url}/operator/v1${path()}`, { headers: { Authorization: `Bearer ${bearer}` } });
    const bytes = Buffer.from(await answer.arrayBuffer());

    const longest = stop();
    expect(longest.ms, longest.name).toBeLessThan(atPace(25));
    const body = JSON.parse(bytes.toString()) as Record<string, { content: string }[]>;
    expect(body[name]).toHaveLength(MANY);
    expect(body[name]?.every(({ content }) => content === LONG)).toBe(true);
  },
);

test.each(LISTS_UNREAD)('lists of %s that nobody reads take little memory', async (_of, path) => {
  expect(await memoryOfUnread(stack.env, path(), bearer)).toBeLessThan(150);
});
