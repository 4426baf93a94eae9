import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant, type ErrorBody, type TestAssistant } from '../support/builders.ts';
import { deltasOf, type OpenStream, openStream, spokenOf, type StreamEvent } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

/** Controls the engine's answer to a message: the test says pieces of it, then lets the engine reply or fail. */
type Script = { say: (piece: string) => void; reply: (text: string) => void; fail: () => void };
type Asked = Script & { message: string };
const asked: Asked[] = [];
const scripted = new Set<string>();

const engine: AssistantEngine = {
  name: 'scripted',
  reply: async ({ message, language, onDelta }) => {
    const made = (text: string) => ({ text, suggestedActions: [], confidence: 1, low: false, language, why: {} });
    if (!scripted.has(message)) return made(`echo: ${message}`);
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    asked.push({ message, say: (piece) => onDelta?.(piece), reply: resolve, fail: () => reject(new Error('broken')) });
    return made(await promise);
  },
};

const stack = useStack({ engine, apis: 2, replyWorkers: 2 });

const newMessage = (): string => {
  const message = `scripted ${randomUUID()}`;
  scripted.add(message);
  return message;
};

/** Waits until the engine has started its nth run for this message, and returns the controls of that run. */
const run = (message: string, nth = 1): Promise<Script> =>
  eventually(() => {
    const found = asked.filter((one) => one.message === message)[nth - 1];
    if (!found) throw new Error('not asked yet');
    return found;
  });

const stream = ({ apiKey }: TestAssistant, body: Record<string, unknown>, url = stack.url): Promise<OpenStream> =>
  openStream(`${url}/api/v1/chat`, { body, bearer: apiKey });

const names = ({ events }: OpenStream): string[] => events.map(({ event }) => event);
const until = (open: OpenStream, spoken: string) => eventually(() => expect(spokenOf(open.events)).toBe(spoken));

test('a reply streams as it is made: accepted, deltas, message, over a response no proxy keeps back', async () => {
  const assistant = await anAssistant(stack);
  const message = newMessage();
  const open = await stream(assistant, { session_id: randomUUID(), message });
  const script = await run(message);

  script.say('We are ');
  await until(open, 'We are ');
  expect((await assistant.history(String(open.events[0]?.data.conversationId))).body.messages).toHaveLength(1);
  script.say('open 👋');
  script.say(' now.');
  await until(open, 'We are open 👋 now.');
  script.reply('We are open 👋 now.');
  const events = await open.ended;

  expect(open.status).toBe(200);
  expect(Object.fromEntries(open.headers)).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
    'x-ratelimit-limit': '1000000',
  });
  const { turnId, conversationId } = (events[0] as StreamEvent).data as { turnId: string; conversationId: string };
  expect(events[0]?.event).toBe('accepted');
  expect(new Set(deltasOf(events).map(({ attempt }) => attempt))).toEqual(new Set([1]));
  expect(
    names(open)
      .slice(1, -1)
      .every((name) => name === 'delta'),
  ).toBe(true);
  const { messages } = (await assistant.history(conversationId)).body;
  expect(messages[1]).toMatchObject({ turnId, content: 'We are open 👋 now.' });
  expect(events.at(-1)).toEqual({
    event: 'message',
    data: { reply: 'We are open 👋 now.', conversationId, messageId: messages[1]?.messageId },
  });
});

test('a reply without pieces is one delta, on the channel and on the chat API', async () => {
  const assistant = await anAssistant(stack);
  await stack.service.assistants.setChannel(assistant.assistantId, { connected: true, token: null });
  const body = { session_id: randomUUID(), message: 'hello' };

  const open = await openStream(`${stack.url}/api/v1/channels/webhook/${assistant.assistantId}`, { body });
  const events = await open.ended;

  expect(names(open)).toEqual(['accepted', 'delta', 'message']);
  expect(events[1]?.data).toEqual({ text: 'echo: hello', attempt: 1 });
  expect(events[2]?.data.reply).toBe('echo: hello');
});

test('a fault before a turn is accepted is a normal JSON error', async () => {
  const assistant = await anAssistant(stack);
  const headers = { Accept: 'text/event-stream' };

  const blank = await assistant.call<ErrorBody>('/api/v1/chat', { body: { session_id: 'x', message: ' ' }, headers });
  const stranger = await assistant.call<ErrorBody>('/api/v1/chat', { body: {}, headers, bearer: 'x' });

  expect([blank.status, blank.body.error.code]).toEqual([422, 'validation_failed']);
  expect([stranger.status, stranger.body.error.code]).toEqual([401, 'invalid_api_key']);
});

test('only a caller who asks for a stream gets one, and a stream has precedence over respond-async', async () => {
  const assistant = await anAssistant(stack);
  const send = (headers: Record<string, string>) =>
    openStream(`${stack.url}/api/v1/chat`, {
      body: { session_id: randomUUID(), message: 'hello' },
      bearer: assistant.apiKey,
      headers,
    });
  const typeOf = async (headers: Record<string, string>) => {
    const open = await send(headers);
    open.leave();
    return [open.status, open.headers.get('content-type')?.split(';')[0]];
  };

  expect(await typeOf({ Accept: '*/*' })).toEqual([200, 'application/json']);
  expect(await typeOf({ Accept: 'application/json, text/event-stream;q=0.5' })).toEqual([200, 'application/json']);
  expect(await typeOf({ Accept: `text/event-stream${',a/a'.repeat(300)}` })).toEqual([200, 'application/json']);
  expect(await typeOf({ Accept: 'text/event-stream, application/json;q=0.5' })).toEqual([200, 'text/event-stream']);
  expect(await typeOf({ Prefer: 'respond-async' })).toEqual([200, 'text/event-stream']);
});

test('a caller who joins at any process gets a stream too, and a late one gets the whole text', async () => {
  const assistant = await anAssistant(stack);
  const body = { session_id: randomUUID(), message: newMessage() };
  const blocking = assistant.chat(body);
  const script = await run(body.message);
  script.say('one ');

  const [here, there] = [await stream(assistant, body), await stream(assistant, body, stack.urls[1])];
  // The worker looks for new waiters every second while it streams.
  await eventually(async () => {
    script.say('.');
    await new Promise((resolve) => setTimeout(resolve, 40));
    for (const open of [here, there]) expect(spokenOf(open.events)).toMatch(/^one \.+$/);
  });
  const late = await stream(assistant, body, stack.urls[1]);
  await eventually(() => expect(spokenOf(late.events)).toMatch(/^one \.+$/));
  script.reply('one .... two');
  const { body: answer } = await blocking;

  for (const open of [here, there, late]) {
    const events = await open.ended;
    expect(open.headers.get('idempotent-replayed')).toBe('true');
    expect(events.at(-1)).toEqual({ event: 'message', data: answer });
    expect(spokenOf(events)).toBe(answer.reply);
  }
});

test('of many callers who wait for the same reply, the first ones get its pieces, and the others the whole', async () => {
  const assistant = await anAssistant(stack);
  const body = { session_id: randomUUID(), message: newMessage() };
  const open: OpenStream[] = [];
  for (let nth = 0; nth < 6; nth += 1) {
    open.push(await stream(assistant, body));
    await eventually(() => expect(names(open[nth] as OpenStream)).toContain('accepted'));
  }
  const script = await run(body.message);
  script.say('one ');

  await eventually(() => expect(open.slice(0, 4).map(({ events }) => spokenOf(events))).toEqual(Array(4).fill('one ')));
  expect(open.slice(4).map(({ events }) => spokenOf(events))).toEqual(['', '']);
  script.reply('one two');

  for (const { ended } of open) {
    const events = await ended;
    expect([spokenOf(events), events.at(-1)?.data.reply]).toEqual(['one two', 'one two']);
  }
});

test('a repeated request gets the stored answer as a stream', async () => {
  const assistant = await anAssistant(stack);
  const body = { session_id: randomUUID(), message: 'hello' };
  const { body: answer } = await assistant.chat(body);

  const open = await stream(assistant, body);
  const events = await open.ended;

  expect(open.headers.get('idempotent-replayed')).toBe('true');
  expect(names(open)).toEqual(['accepted', 'delta', 'message']);
  expect(events[2]?.data).toEqual(answer);
});

test('turns of one session stream in their order', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const [first, second] = [newMessage(), newMessage()];
  const one = await stream(assistant, { session_id, message: first });
  const other = await stream(assistant, { session_id, message: second });
  const script = await run(first);

  script.say('first');
  await until(one, 'first');
  expect(names(other)).toEqual(['accepted']);
  expect(asked.some(({ message }) => message === second)).toBe(false);
  script.reply('first');
  await one.ended;
  (await run(second)).reply('second');

  expect((await other.ended).at(-1)?.data.reply).toBe('second');
});

test('a second try starts over with a higher attempt, and late deltas of the first are ignored', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const message = newMessage();
  const open = await stream(assistant, { session_id, message });
  const script = await run(message);
  script.say('half a sen');
  await until(open, 'half a sen');

  // Simulates a killed worker: its lease is gone, and another worker answers the turn.
  const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
  const turnId = String(open.events[0]?.data.turnId);
  await stack.service.redis.del(`{${stack.env.REDIS_PREFIX}-0}:lease:${turnId}`);
  stack.service.turnQueue.enqueue({ key: String(row?._id), turnId });
  const again = await run(message, 2);
  again.say('Another ');
  await until(open, 'Another ');
  script.say('tence, too late');
  again.say('one.');
  await until(open, 'Another one.');
  again.reply('Another one.');
  const events = await open.ended;
  script.reply('half a sentence, too late');

  expect(deltasOf(events).at(-1)?.attempt).toBe(2);
  expect(spokenOf(events)).toBe('Another one.');
  expect(events.at(-1)?.data.reply).toBe('Another one.');
});

test('a different reply replaces the streamed text, and so does the holding text of a handoff', async () => {
  const assistant = await anAssistant(stack);
  const [first, second] = [newMessage(), newMessage()];
  const session_id = randomUUID();
  const fallBack = await stream(assistant, { session_id, message: first });
  const one = await run(first);
  one.say('The provider was ab');
  await until(fallBack, 'The provider was ab');
  one.reply('We are open from 9 to 5.');
  const events = await fallBack.ended;
  const handoff = await stream(assistant, { session_id, message: second });
  const other = await run(second);
  other.say('Let me see');
  await until(handoff, 'Let me see');
  await assistant.call(`/api/v1/conversations/${String(events[0]?.data.conversationId)}/escalate`, { method: 'POST' });
  other.reply('Let me see: no.');
  const held = await handoff.ended;

  expect(deltasOf(events).at(-1)).toEqual({ text: 'We are open from 9 to 5.', attempt: 2 });
  expect(events.at(-1)?.data.reply).toBe('We are open from 9 to 5.');
  expect(held.at(-1)?.data.reply).not.toContain('Let me see');
  expect(spokenOf(held)).toBe(held.at(-1)?.data.reply);
});

test('a caller who leaves before the message gets the stored reply for the same message', async () => {
  const assistant = await anAssistant(stack, { input: { dedupeWindowSeconds: 0 } });
  const session_id = randomUUID();
  const message = newMessage();
  const open = await stream(assistant, { session_id, message });
  const script = await run(message);
  script.say('Half');
  await until(open, 'Half');
  open.leave();
  script.reply('Half and half');
  await assistant.chat({ session_id, message: 'another' });

  const again = await stream(assistant, { session_id, message });
  const events = await again.ended;
  const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
  const another = { key: String(row?._id), turnId: String(row?.recent.at(-1).turnId) };
  await eventually(async () =>
    expect(await stack.service.deliveredReplies.find([another])).toEqual(new Set([another.turnId])),
  );
  const next = await stream(assistant, { session_id, message: 'another' });
  next.leave();

  expect(again.headers.get('idempotent-replayed')).toBe('true');
  expect(events.at(-1)?.data.reply).toBe('Half and half');
  expect(next.headers.get('idempotent-replayed')).toBeNull();
});

test('an erased or failed turn ends the stream with an error event', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const [head, poison] = [newMessage(), newMessage()];
  const erased = await stream(assistant, { session_id, message: head });
  const script = await run(head);
  const { conversationId } = (erased.events[0] as StreamEvent).data as { conversationId: string };
  await assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });

  const other = randomUUID();
  const first = newMessage();
  await stream(assistant, { session_id: other, message: first });
  const failed = await stream(assistant, { session_id: other, message: poison });
  const turnId = String(failed.events[0]?.data.turnId);
  await stack.service.redis.set(`{${stack.env.REDIS_PREFIX}-0}:tries:${turnId}`, '3');
  (await run(first)).reply('done');
  script.fail();

  expect((await erased.ended).at(-1)).toMatchObject({ event: 'error', data: { error: { code: 'not_found' } } });
  expect((await failed.ended).at(-1)).toEqual({
    event: 'error',
    data: {
      error: { code: 'internal_error', message: expect.any(String), requestId: failed.headers.get('x-request-id') },
    },
  });
});

test('a draining process lets its streams end', async () => {
  const assistant = await anAssistant(stack);
  const api = await stack.startApi();
  const message = newMessage();
  const open = await stream(assistant, { session_id: randomUUID(), message }, api.url);
  const script = await run(message);

  const closed = api.close();
  script.say('Just in ');
  await until(open, 'Just in ');
  script.reply('Just in time.');
  const events = await open.ended;
  await closed;

  expect(events.at(-1)?.data.reply).toBe('Just in time.');
});
