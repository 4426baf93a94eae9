import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, aTurn, type ErrorBody } from '../support/builders.ts';
import { anOperator } from '../support/operator-client.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

type Attributes = { conversationId: string; attributes: Record<string, unknown> };

const aConversation = async (options: Parameters<typeof anAssistant>[1] = {}) => {
  const assistant = await anAssistant(stack, options);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const path = `/api/v1/conversations/${conversationId}`;
  const set = <Body = Attributes>(body: unknown, of = path) =>
    assistant.call<Body>(`${of}/attributes`, { method: 'POST', body });
  return { ...assistant, conversationId, path, set };
};

test('attributes are merged, removed by null, and shown in the history and to operators', async () => {
  const { conversationId, set, history } = await aConversation();
  const owner = await anOperator(stack);

  const first = await set({ plan: 'pro', orders: 3, vip: false, empty: '' });
  const second = await set({ plan: 'team', orders: null, gone: null, zero: 0 });

  expect(first).toMatchObject({ status: 200, body: { conversationId } });
  expect(first.body.attributes).toEqual({ plan: 'pro', orders: 3, vip: false, empty: '' });
  const now = { plan: 'team', vip: false, empty: '', zero: 0 };
  expect(second.body).toEqual({ conversationId, attributes: now });
  expect((await history(conversationId)).body.attributes).toEqual(now);
  expect((await owner.get(`/conversations/${conversationId}`)).body).toMatchObject({ attributes: now });
  const stored = await stack.service.mongo.collection('conversations').findOne({ conversationId });
  expect(stored?.['attributes']).toContainEqual({ name: 'plan', value: 'team' });
});

test('a name that means something to JavaScript or MongoDB is a name like any other', async () => {
  const { set, history, conversationId } = await aConversation();

  const { status, body } = await set('{"__proto__":"a","constructor":1,"_id":true}');

  expect([status, JSON.stringify(body.attributes)]).toEqual([200, '{"__proto__":"a","constructor":1,"_id":true}']);
  const read = (await history(conversationId)).body.attributes;
  expect(JSON.stringify(read)).toBe('{"__proto__":"a","constructor":1,"_id":true}');
});

/** One conversation for all that is refused, because none of it is stored. */
let untouched: ReturnType<typeof aConversation> | undefined;

test.each<[string, unknown, string]>([
  ['a name in capitals', { Plan: 1 }, 'attributes'],
  ['a dotted name', { 'a.b': 1 }, 'attributes'],
  ['an empty name', { '': 1 }, 'attributes'],
  ['a name of 65 characters', { ['x'.repeat(65)]: 1 }, 'attributes'],
  ['a text of 501 characters', { plan: 'x'.repeat(501) }, 'plan'],
  ['a text with NUL', { plan: 'a\0' }, 'plan'],
  ['a lone surrogate', '{"plan":"\\ud800"}', 'plan'],
  ['a number that is infinite', '{"plan":1e999}', 'plan'],
  ['a list', { plan: [] }, 'plan'],
  ['an object', { plan: {} }, 'plan'],
  ['51 attributes', Object.fromEntries(Array.from({ length: 51 }, (_, at) => [`a${at}`, 1])), 'attributes'],
  ['9 KiB', Object.fromEntries(Array.from({ length: 18 }, (_, at) => [`a${at}`, 'x'.repeat(500)])), 'attributes'],
])('%s is refused, and nothing is stored', async (_name, body, field) => {
  const { set, history, conversationId } = await (untouched ??= aConversation());

  const refused = await set<ErrorBody>(body);

  expect([refused.status, refused.body.error.code, refused.body.error.field]).toEqual([
    422,
    'validation_failed',
    field,
  ]);
  expect((await history(conversationId)).body.attributes).toEqual({});
});

test('the largest allowed attributes are stored, and what is merged counts', async () => {
  const { set } = await aConversation();
  const fifty = Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`a${at}`, '😀'.repeat(30)]));

  expect((await set(fifty)).status).toBe(200);
  expect((await set({ one_more: 1 })).status).toBe(422);
  expect((await set({ a0: null, one_more: 1 })).status).toBe(200);
  expect((await set({ a1: '😀'.repeat(500) })).status).toBe(422);
});

test('concurrent changes are all kept', async () => {
  const { set, history, conversationId } = await aConversation();

  await Promise.all(Array.from({ length: 10 }, (_, at) => set({ [`a${at}`]: at })));

  const { attributes } = (await history(conversationId)).body;
  expect(Object.keys(attributes).toSorted()).toEqual(Array.from({ length: 10 }, (_, at) => `a${at}`).toSorted());
});

test('changes that arrive together read neither the texts of the conversation nor it again and again', async () => {
  const { chat, set } = await aConversation();
  const long = await chat(aTurn({ message: '😀'.repeat(8_000), language: 'en' }));
  const path = `/api/v1/conversations/${long.body.conversationId}`;
  const many = Array.from({ length: 40 }, (_, nth) => ({ nth }));

  const statements = await profileStatements(stack, () => Promise.all(many.map((body) => set(body, path))));

  const own = statements.filter((one) => collectionIn(one) === 'conversations' && one.op !== 'getmore');
  const changes = own.filter(({ command }) => 'findAndModify' in command);
  expect(changes.length).toBe(many.length);
  const bytes = own.reduce((sum, { responseLength = 0 }) => sum + responseLength, 0);
  expect(bytes / many.length).toBeLessThan(8_000);
});

test('only the own assistant’s key may set attributes, and each request counts', async () => {
  const { path, conversationId } = await aConversation();
  const other = await anAssistant(stack, { limitPerMinute: 2 });
  const send = (bearer: string | null, body: unknown = {}) =>
    other.call<ErrorBody>(`${path}/attributes`, { method: 'POST', body, bearer });

  expect((await send(null)).status).toBe(401);
  expect((await send(other.apiKey, { A: 1 })).status).toBe(404);
  const second = await send(other.apiKey);
  expect([second.status, second.headers.get('x-ratelimit-remaining')]).toEqual([404, '0']);
  expect((await send(other.apiKey)).status).toBe(429);
  expect(conversationId).toBeTruthy();
});

test('attributes are no event, and they are erased with the conversation', async () => {
  const assistant = await anAssistant(stack);
  const receiver = await openReceiver();
  const kinds = ['conversation.resolved', 'conversation.escalated', 'message.sent'] as const;
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url, events: [...kinds] });
  const session_id = randomUUID();
  const { conversationId } = (await assistant.chat(aTurn({ session_id }))).body;
  const path = `/api/v1/conversations/${conversationId}`;

  await assistant.call(`${path}/attributes`, { method: 'POST', body: { plan: 'pro' } });
  await assistant.call(`${path}/escalate`, { method: 'POST', body: {} });
  await receiver.waitFor((all) => all.length >= 3);
  await assistant.call(path, { method: 'DELETE' });
  const again = (await assistant.chat(aTurn({ session_id }))).body;

  const events = receiver.received.map(({ json }) => (json as { event: string }).event);
  expect(events.slice(0, 3)).toEqual(['message.sent', 'conversation.escalated', 'message.sent']);
  expect((await assistant.history(again.conversationId)).body.attributes).toEqual({});
});

test('the inbox finds conversations by an attribute', async () => {
  const { assistantId, chat, call, conversationId, set } = await aConversation();
  const owner = await anOperator(stack);
  await set({ plan: 'pro', orders: 3 });
  const other = (await chat(aTurn())).body.conversationId;
  await call(`/api/v1/conversations/${other}/attributes`, { method: 'POST', body: { plan: 'free', orders: '3' } });

  const find = async (attribute: string) => {
    type Page = { conversations: { conversationId: string }[] };
    const query = `assistantId=${assistantId}&attribute=${encodeURIComponent(attribute)}`;
    const { body } = await owner.get<Page>(`/inbox?${query}`);
    return body.conversations.map((one) => one.conversationId).toSorted();
  };

  expect(await find('plan:pro')).toEqual([conversationId]);
  expect(await find('orders:3')).toEqual([conversationId, other].toSorted());
  expect(await find('plan:none')).toEqual([]);
});
