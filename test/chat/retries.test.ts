import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { NewTurn } from '../../src/conversations/accept.ts';
import { conversationKeyOf, newPrefixedId } from '../../src/platform/process/ids.ts';
import { NO_SPAN } from '../../src/platform/process/tracing.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const { engine, hold } = aScriptedEngine();

const stack = useStack({ engine, apis: 2 });

/** Requests that are sent at once. */
const CROWD = sized({ everyday: 40, long: 200 });

const usersOf = (messages: { role: string }[]) => messages.filter(({ role }) => role === 'user');

test(`${CROWD} identical requests at once over two API processes are one turn, announced once, with equal answers`, async () => {
  const { assistantId, apiKey, history } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const message = `hold ${randomUUID()}`;
  const body = aTurn({ message });
  const release = hold(message);

  const sent = Array.from({ length: CROWD }, (_, index) =>
    request(`${stack.urls[index % 2]}/api/v1/chat`, { body, bearer: apiKey }),
  );
  await eventually(async () => {
    const { conversations } = await stack.service.conversations.list({ assistantId });
    expect(conversations).toHaveLength(1);
  });
  release();
  const answers = await Promise.all(sent);

  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect(new Set(answers.map((answer) => JSON.stringify(answer.body))).size).toBe(1);
  expect(answers.filter(({ headers }) => headers.get('idempotent-replayed') === 'true')).toHaveLength(CROWD - 1);
  const { body: record } = await history(answers[0]?.body.conversationId as string);
  expect(record.messages.map(({ seq, role }) => [seq, role])).toEqual([
    [1, 'user'],
    [1, 'assistant'],
  ]);
  // Events arrive in order. When the event of this later message arrives, all events of the first message have arrived.
  await request(`${stack.url}/api/v1/chat`, { body: { ...body, message: 'the end' }, bearer: apiKey });
  const received = await receiver.waitFor((all) =>
    all.some(({ json }) => (json as { payload: { content?: string } }).payload.content === 'the end'),
  );
  expect(
    received.filter(({ json }) => (json as { payload: { content?: string } }).payload.content === message),
  ).toHaveLength(1);
});

test('a repeated message gets the stored answer while its turn is the latest, and is a new turn afterwards', async () => {
  const { chat, history } = await anAssistant(stack);
  const session_id = randomUUID();
  const first = await chat({ session_id, message: 'yes' });

  const again = await chat({ session_id, message: 'yes' });
  await chat({ session_id, message: 'something else' });
  const later = await chat({ session_id, message: 'yes' });

  expect(again.headers.get('idempotent-replayed')).toBe('true');
  expect(again.body).toEqual(first.body);
  expect(later.headers.get('idempotent-replayed')).toBeNull();
  expect(later.body.messageId).not.toBe(first.body.messageId);
  const { body: record } = await history(first.body.conversationId);
  expect(usersOf(record.messages)).toHaveLength(3);
});

test('a repeated message reads of its conversation only its own turn, however long the messages before are', async () => {
  const { chat } = await anAssistant(stack);
  const session_id = randomUUID();
  const long = (nth: number) => ({ session_id, message: `${nth} ${'😀'.repeat(7_990)}`, language: 'en' });
  for (let nth = 1; nth <= 6; nth += 1) await chat(long(nth));

  const statements = await profileStatements(stack, async () => {
    const { headers } = await chat(long(6));
    expect(headers.get('idempotent-replayed')).toBe('true');
  });

  const own = statements.filter((one) => collectionIn(one) === 'conversations');
  const bytes = own.reduce((sum, { responseLength = 0 }) => sum + responseLength, 0);
  expect(own.length).toBeGreaterThan(1);
  expect(bytes).toBeLessThan(3 * Buffer.byteLength(long(6).message));
});

test('with a window of 0 a delivered answer is never replayed', async () => {
  const { chat } = await anAssistant(stack, { input: { dedupeWindowSeconds: 0 } });
  const session_id = randomUUID();
  const first = await chat({ session_id, message: 'yes' });

  await eventually(async () => {
    const second = await chat({ session_id, message: 'yes' });
    expect(second.body.messageId).not.toBe(first.body.messageId);
  });
});

test('a retry gets an answer that reached no caller, also after other turns', async () => {
  const { assistantId, chat } = await anAssistant(stack, { input: { dedupeWindowSeconds: 0 } });
  const session_id = randomUUID();
  const message = `abandoned ${randomUUID()}`;
  const release = hold(message);
  const caller = new AbortController();
  const abandoned = fetch(`${stack.url}/api/v1/chat`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      Authorization: `Bearer ${(await stack.service.assistants.createApiKey({ assistantId, name: 'x' })).apiKey}`,
    },
    body: JSON.stringify({ session_id, message }),
    signal: caller.signal,
  }).catch(() => 'gone');
  await eventually(async () => {
    const { conversations } = await stack.service.conversations.list({ assistantId });
    expect(conversations).toHaveLength(1);
  });
  caller.abort();
  expect(await abandoned).toBe('gone');
  release();
  await chat({ session_id, message: 'another' });

  const retried = await chat({ session_id, message });

  expect(retried.body.reply).toBe(`echo: ${message}`);
  expect(retried.headers.get('idempotent-replayed')).toBe('true');
});

test('an Idempotency-Key makes one turn of equal requests, and two of equal texts under different keys', async () => {
  const { chat, history } = await anAssistant(stack);
  const body = aTurn({ message: 'pay 10' });
  const keyed = (key: string, rest = {}) => chat({ ...body, ...rest }, { headers: { 'Idempotency-Key': key } });

  const [one, same] = await Promise.all([keyed('a'), keyed('a')]);
  const later = await keyed('a');
  const other = await keyed('b');
  const unkeyed = await chat(body);
  const reused = await keyed('a', { message: 'pay 20' });

  expect(same.body).toEqual(one.body);
  expect(later.body).toEqual(one.body);
  expect(later.headers.get('idempotent-replayed')).toBe('true');
  expect(other.body.messageId).not.toBe(one.body.messageId);
  expect(unkeyed.body.messageId).not.toBe(other.body.messageId);
  expect(reused).toMatchObject({ status: 422, body: { error: { code: 'idempotency_key_reused' } } });
  const { body: record } = await history(one.body.conversationId);
  expect(usersOf(record.messages)).toHaveLength(3);
});

test('a key still decides after its turn has left the list of recent ones', async () => {
  const { chat } = await anAssistant(stack);
  const session_id = randomUUID();
  const first = await chat({ session_id, message: 'keep me' }, { headers: { 'Idempotency-Key': 'old' } });
  for (let count = 0; count < 30; count += 1) await chat({ session_id, message: `filler ${count}` });

  const again = await chat({ session_id, message: 'keep me' }, { headers: { 'Idempotency-Key': 'old' } });

  expect(again.body).toEqual(first.body);
});

test('a session has at most 20 pending turns; the next message gets session_busy and is not stored', async () => {
  const { chat, assistantId } = await anAssistant(stack);
  const session_id = randomUUID();
  const head = `head ${randomUUID()}`;
  const release = hold(head);
  const sent = [chat({ session_id, message: head })];
  await eventually(async () =>
    expect((await stack.service.conversations.list({ assistantId })).conversations).toHaveLength(1),
  );
  for (let count = 1; count < 20; count += 1) sent.push(chat({ session_id, message: `waiting ${count}` }));
  await eventually(async () => {
    const row = await stack.service.mongo
      .collection('conversations')
      .findOne({ assistantId, 'waiting.19': { $exists: true } });
    expect(row).not.toBeNull();
  });

  const busy = await chat({ session_id, message: 'one too many' });
  const joined = chat({ session_id, message: 'waiting 5' });

  expect(busy).toMatchObject({ status: 429, body: { error: { code: 'session_busy' } } });
  expect(busy.headers.get('retry-after')).toBe('1');
  release();
  const answers = await Promise.all(sent);
  expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200));
  expect((await joined).body.reply).toBe('echo: waiting 5');
});

test('the key of a refused request is erased with its conversation, and no other key of its time', async () => {
  const { chat, call, assistantId } = await anAssistant(stack);
  const { mongo, conversations } = stack.service;
  const keys = mongo.collection<{ _id: string; createdAt: Date }>('idempotencyKeys');
  const tombstones = mongo.collection<{ _id: string; erasedAt: Date }>('tombstones');
  const keyed = (key: string) => ({ headers: { 'Idempotency-Key': key } });
  const [session_id, neighbour] = [randomUUID(), randomUUID()];
  const { body: kept } = await chat({ session_id: neighbour, message: 'kept' }, keyed('neighbour'));
  const { body: erased } = await chat({ session_id, message: 'answered' }, keyed('answered'));
  // As a request leaves it that was refused after it had reserved its key, here and in the neighbour's session.
  for (const [key, of] of [
    ['refused', 'answered'],
    ['refused-too', 'neighbour'],
  ]) {
    const { _id, ...reserved } = (await keys.findOne({ _id: `${assistantId}:${of}` })) ?? {
      _id: '',
      createdAt: new Date(),
    };
    await keys.insertOne({ ...reserved, _id: `${assistantId}:${key}`, conversationId: null } as never);
  }
  const purge = async () => {
    await tombstones.updateOne({ _id: erased.conversationId }, { $set: { purgeAt: new Date(0) } });
    await conversations.purgeAgain();
  };
  const left = async () =>
    (await keys.find({ _id: { $regex: `^${assistantId}` } }).toArray()).map(({ _id }) => _id.split(':')[1]).toSorted();

  await call(`/api/v1/conversations/${erased.conversationId}`, { method: 'DELETE' });
  await eventually(async () => expect(await left()).not.toContain('answered'));
  const { body: again } = await chat({ session_id, message: 'again' }, keyed('again'));
  await eventually(async () => {
    await purge();
    expect(await left()).toEqual(['again', 'neighbour', 'refused-too']);
  });

  const [replayed, alike] = [
    await chat({ session_id: neighbour, message: 'kept' }, keyed('neighbour')),
    await chat({ session_id, message: 'again' }, keyed('again')),
  ];
  expect([replayed.body, alike.body]).toEqual([kept, again]);
});

test('a reply that takes too long is 500 reply_timeout, and a retry joins it', async () => {
  const slow = await anAssistant(stack);
  const session_id = randomUUID();
  const message = `slow ${randomUUID()}`;
  const release = hold(message);
  const config = { ...stack.env, REPLY_TIMEOUT_MS: '300' };
  const { readConfig } = await import('../../src/platform/process/config.ts');
  const { createLifecycle } = await import('../../src/platform/process/lifecycle.ts');
  const { createLogger } = await import('../../src/platform/process/logger.ts');
  const { openApi } = await import('../../src/api.ts');
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  const { port } = await openApi({ config: readConfig(config), logger, lifecycle });

  const late = await request<{ error: { code: string } }>(`http://127.0.0.1:${port}/api/v1/chat`, {
    body: { session_id, message },
    bearer: slow.apiKey,
  });
  const retry = slow.chat({ session_id, message });
  release();

  expect(late).toMatchObject({ status: 500, body: { error: { code: 'reply_timeout' } } });
  expect((await retry).body.reply).toBe(`echo: ${message}`);
  expect((await retry).headers.get('idempotent-replayed')).toBe('true');
  await lifecycle.close();
});

test('a request that reserved a key joins the turn that another request created under it', async () => {
  const { assistantId } = await anAssistant(stack);
  const { assistants, conversations } = stack.service;
  const { sessionKey } = await assistants.getAssistant(assistantId);
  const sessionId = randomUUID();
  const key = conversationKeyOf({ sessionKey, sessionId, playground: false });
  const turnId = newPrefixedId(key);
  const aRequest = (reservation: 'new' | 'known', replyTo: string): NewTurn => ({
    key,
    turnId,
    conversationId: newPrefixedId(key),
    assistantId,
    sessionId,
    channel: 'api',
    messageId: randomUUID(),
    message: 'yes',
    language: 'en',
    dedupeKey: null,
    reservation,
    async: false,
    replyTo,
    acceptedAt: new Date(),
  });
  const options = { windowMs: 0, readBack: true, watch: () => undefined, span: NO_SPAN };

  const brought = await conversations.accept(aRequest('known', 'one process'), options);
  const joined = await conversations.accept(aRequest('new', 'another'), options);

  expect([brought.kind, joined.kind]).toEqual(['accepted', 'joined']);
  expect((await conversations.findForAnswer(key))?.waiting[0]?.replyTo).toEqual(['one process', 'another']);
});
