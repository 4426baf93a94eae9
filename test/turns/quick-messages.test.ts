import { randomUUID } from 'node:crypto';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { beforeAll, test } from 'vitest';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import { type Answer, anAssistant, anEntry, aTurn, type ChatBody, type TestAssistant } from '../support/builders.ts';
import { openStream } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

/** Longer than a message takes to be accepted, also on a busy machine. The tests wait together. */
const QUIET_S = 5;
const stack = useStack();
// The first turn of a process takes longer.
beforeAll(async () => void (await (await anAssistant(stack)).chat(aTurn())));

const KNOWLEDGE = [
  anEntry({ question: 'When are you open?', answer: 'From nine to five.' }),
  anEntry({ question: 'Are you open on Sundays?', answer: 'On Sundays we are closed.' }),
];
const anAssistantThatWaits = (input = {}) =>
  anAssistant(stack, { input: { quickMessageSeconds: QUIET_S, ...input }, knowledge: KNOWLEDGE });

const ASYNC = { headers: { Prefer: 'respond-async' } };
type Accepted = { conversationId: string; turnId: string };
type Turn = { status: string; reply?: string; messageId?: string; mergedInto?: string };

const accept = async ({ call }: TestAssistant, session_id: string, message: string): Promise<Accepted> =>
  (await call<Accepted>('/api/v1/chat', { body: { session_id, message, language: 'en' }, ...ASYNC })).body;
const turnOf = async ({ call }: TestAssistant, turnId: string): Promise<Turn> =>
  (await call<Turn>(`/api/v1/turns/${turnId}`)).body;
const answered = ({ history }: TestAssistant, conversationId: string) =>
  eventually(async () => {
    const { body } = await history(conversationId);
    if (body.messages.some(({ seq }) => seq === null)) throw new Error('a message is pending');
    return body;
  });
/** Resolves once a caller's message is pending. */
const pending = (content: string, { history }: TestAssistant, conversationId: string) =>
  eventually(async () => {
    const { messages } = (await history(conversationId)).body;
    if (!messages.some((one) => one.content === content)) throw new Error('it is not accepted yet');
  });
/** The client of the official SDK. */
const mcpClientOf = async ({ apiKey }: TestAssistant): Promise<Client> => {
  const client = new Client({ name: 'test', version: '1' });
  const requestInit = { headers: { Authorization: `Bearer ${apiKey}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${stack.url}/mcp`), { requestInit }));
  return client;
};
const mergedIn = ({ headers }: Answer<unknown>) => headers.get('merged-into');

test.concurrent('messages that come quickly are each stored and announced, and one reply answers all of them and all who wait', async ({
  expect,
}) => {
  const assistant = await anAssistantThatWaits();
  const receiver = await openReceiver();
  const kinds = ['conversation.created', 'message.received', 'message.sent'] as const;
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url, events: [...kinds] });
  const session_id = randomUUID();
  const { call, chat, apiKey, history } = assistant;

  const first = await accept(assistant, session_id, 'hi');
  const { conversationId } = first;
  const waiting = chat({ session_id, message: 'hello there' });
  await pending('hello there', assistant, conversationId);
  const completion = call<{ choices: { message: { content: string } }[]; parley: ChatBody }>('/v1/chat/completions', {
    body: { user: session_id, messages: [{ role: 'user', content: 'good morning' }] },
  });
  await pending('good morning', assistant, conversationId);
  const client = await mcpClientOf(assistant);
  const tool = client.callTool({ name: 'ask', arguments: { session_id, message: 'are you there' } });
  await pending('are you there', assistant, conversationId);
  const stream = await openStream(`${stack.url}/api/v1/chat`, {
    body: { session_id, message: 'when are you open' },
    bearer: apiKey,
  });
  const last = await chat({ session_id, message: 'on sundays?' });

  const { messages } = (await history(conversationId)).body;
  const into = messages[5]?.messageId as string;
  expect(messages.map(({ seq, role, content }) => [seq, role, content])).toEqual([
    [1, 'user', 'hi'],
    [2, 'user', 'hello there'],
    [3, 'user', 'good morning'],
    [4, 'user', 'are you there'],
    [5, 'user', 'when are you open'],
    [6, 'user', 'on sundays?'],
    [6, 'assistant', 'On Sundays we are closed.'],
  ]);
  expect(messages.map(({ mergedInto }) => mergedInto)).toEqual([into, into, into, into, into, undefined, undefined]);
  expect(last.body).toEqual({ reply: messages[6]?.content, conversationId, messageId: messages[6]?.messageId });
  expect(mergedIn(last)).toBeNull();
  const same = { ...last.body, mergedInto: into };
  const early = await waiting;
  expect([early.body, mergedIn(early)]).toEqual([same, into]);
  const { body } = await completion;
  expect([body.choices[0]?.message.content, body.parley.mergedInto]).toEqual([last.body.reply, into]);
  expect((await tool).structuredContent).toEqual({ ...same, sources: [] });
  await client.close();
  const events = await stream.ended;
  expect(events.map(({ event }) => event)).toEqual(['accepted', 'message']);
  expect(events.at(-1)?.data).toEqual(same);
  expect(await turnOf(assistant, first.turnId)).toEqual({ turnId: first.turnId, status: 'answered', ...same });

  // A retry gets what the first try got, whichever message it repeats.
  for (const [message, answer] of [
    ['hello there', early],
    ['on sundays?', last],
    ['hello there', early],
  ] as const) {
    const again = await chat({ session_id, message });
    expect([again.body, mergedIn(again)]).toEqual([answer.body, mergedIn(answer)]);
    expect(again.headers.get('idempotent-replayed')).toBe('true');
  }
  const announced = await receiver.waitFor((all) => all.length >= 8);
  expect(announced.map(contentOf)).toEqual([
    undefined,
    'hi',
    'hello there',
    'good morning',
    'are you there',
    'when are you open',
    'on sundays?',
    'On Sundays we are closed.',
  ]);
});

test.concurrent('a retry joins its message while the group waits, and its key replays it after the group has left the document', async ({
  expect,
}) => {
  const assistant = await anAssistantThatWaits();
  const session_id = randomUUID();
  const { chat } = assistant;
  const keyed = () => chat({ session_id, message: 'hi' }, { headers: { 'Idempotency-Key': session_id } });

  const { conversationId } = await accept(assistant, session_id, 'hello');
  const tries = [keyed()];
  await pending('hi', assistant, conversationId);
  tries.push(keyed(), chat({ session_id, message: 'hello' }));
  const last = await chat({ session_id, message: 'when are you open' });
  const [first, joined, other] = await Promise.all(tries);

  expect(last.body.reply).toBe('From nine to five.');
  const { messages } = (await assistant.history(conversationId)).body;
  expect(messages.map(({ role }) => role)).toEqual(['user', 'user', 'user', 'assistant']);
  for (const one of [first, joined, other]) {
    expect(one?.body).toEqual({ ...last.body, mergedInto: messages[2]?.messageId });
  }
  expect([joined, other].map((one) => one?.headers.get('idempotent-replayed'))).toEqual(['true', 'true']);

  await stack.service.assistants.updateAssistant(assistant.assistantId, { quickMessageSeconds: null });
  await eventually(async () => {
    await accept(assistant, session_id, `another ${randomUUID()}`);
    const row = await stack.service.mongo
      .collection<StoredConversation>('conversations')
      .findOne({ conversationId }, { projection: { 'recent.messageId': 1 } });
    expect(row?.recent.map(({ messageId }) => messageId)).not.toContain(messages[1]?.messageId);
  });
  const late = await keyed();
  expect([late.body, mergedIn(late)]).toEqual([first?.body, messages[2]?.messageId]);
  expect(late.headers.get('idempotent-replayed')).toBe('true');
});

test.concurrent('others do not wait: another session and an assistant without the setting are answered on their own', async ({
  expect,
}) => {
  const assistant = await anAssistantThatWaits();
  const neighbour = await anAssistant(stack, { knowledge: KNOWLEDGE });
  const [one, other] = [randomUUID(), randomUUID()];

  const waits = await accept(assistant, one, 'hi');
  const apart = await accept(assistant, other, 'when are you open');
  await accept(assistant, one, 'on sundays?');
  const session_id = randomUUID();
  const direct = await neighbour.chat({ session_id, message: 'when are you open' });
  await neighbour.chat({ session_id, message: 'on sundays?' });

  const rows = await stack.service.mongo.collection('conversations').find({}).toArray();
  const stored = JSON.stringify(rows.filter((row) => row['assistantId'] === neighbour.assistantId));
  expect(stored).not.toContain('quick');
  expect(direct.headers.get('merged-into')).toBeNull();
  const repliesIn = async (from: TestAssistant, id: string): Promise<string[]> =>
    (await answered(from, id)).messages.filter(({ role }) => role === 'assistant').map(({ content }) => content);
  expect(await repliesIn(neighbour, direct.body.conversationId)).toEqual([
    'From nine to five.',
    'On Sundays we are closed.',
  ]);
  expect(await repliesIn(assistant, waits.conversationId)).toEqual(['On Sundays we are closed.']);
  expect(await repliesIn(assistant, apart.conversationId)).toEqual(['From nine to five.']);
});

test.concurrent('one of the messages asks for a person: all of them are handed over once, and the next ones wait for nobody', async ({
  expect,
}) => {
  const assistant = await anAssistantThatWaits({ holdingText: 'A person will answer.' });
  const session_id = randomUUID();

  const { conversationId } = await accept(assistant, session_id, 'hi');
  await accept(assistant, session_id, 'I want to talk to a human');
  await accept(assistant, session_id, 'when are you open');
  const handed = await answered(assistant, conversationId);
  const held = await Promise.all([
    accept(assistant, session_id, 'hello?'),
    assistant.chat({ session_id, message: 'are you there?' }),
  ]);

  expect(handed.messages.map(({ role, content }) => [role, content]).slice(2)).toEqual([
    ['user', 'when are you open'],
    ['assistant', 'A person will answer.'],
    ['system', 'Handed off to a human: user_requested'],
  ]);
  expect(handed.status).toBe('escalated');
  expect([held[1].body.reply, mergedIn(held[1])]).toEqual(['A person will answer.', null]);
});

test.concurrent('a conversation that is handed over while messages wait answers each of them with the holding text', async ({
  expect,
}) => {
  const assistant = await anAssistantThatWaits({ holdingText: 'A person will answer.' });
  const session_id = randomUUID();

  const turns = [await accept(assistant, session_id, 'hi'), await accept(assistant, session_id, 'when are you open')];
  const conversationId = turns[0]?.conversationId as string;
  await assistant.call(`/api/v1/conversations/${conversationId}/escalate`, { method: 'POST' });
  await answered(assistant, conversationId);

  const [one, other] = await Promise.all(turns.map(({ turnId }) => turnOf(assistant, turnId)));
  expect(one).toMatchObject({ status: 'answered', reply: 'A person will answer.', messageId: other?.messageId });
  expect(one).not.toHaveProperty('mergedInto');
});

test.concurrent('after an erasure those who wait get 404, and the session begins again', async ({ expect }) => {
  const assistant = await anAssistantThatWaits();
  const session_id = randomUUID();

  const { conversationId } = await accept(assistant, session_id, 'hi');
  const waiting = assistant.chat({ session_id, message: 'when are you open' });
  await pending('when are you open', assistant, conversationId);
  await assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });
  const again = await assistant.chat({ session_id, message: 'on sundays?' });

  expect((await waiting).status).toBe(404);
  expect(again.body.reply).toBe('On Sundays we are closed.');
  expect(again.body.conversationId).not.toBe(conversationId);
});
