import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, aTurn, type ErrorBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack();

test('a first message gets a reply, opens a conversation and is in its history', async () => {
  const { chat, history } = await anAssistant(stack);

  const { status, headers, body } = await chat(aTurn({ session_id: 'visitor-1' }));

  expect(status).toBe(200);
  expect(body).toEqual({
    reply: 'We are open from 9 to 5.',
    conversationId: expect.any(String),
    messageId: expect.any(String),
  });
  expect(headers.get('x-request-id')).toMatch(/^[\w-]{8,64}$/);
  const { body: record } = await history(body.conversationId);
  expect(record).toMatchObject({
    sessionId: 'visitor-1',
    channel: 'api',
    language: 'en',
    status: 'open',
    hasMore: false,
    nextCursor: null,
  });
  expect(record.messages.map(({ seq, role, content }) => [seq, role, content])).toEqual([
    [1, 'user', 'What are your opening hours?'],
    [1, 'assistant', 'We are open from 9 to 5.'],
  ]);
  expect(record.messages[1]?.messageId).toBe(body.messageId);
});

test('ten turns over chat API and channel are one conversation, announced by eleven signed events in order', async () => {
  // Without knowledge, no answer counts as low confidence, so no conversation is handed off.
  const { assistantId, chat, history } = await anAssistant(stack, { knowledge: [] });
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: 'open sesame'.replace(' ', '-') });
  const secrets: string[] = [];
  const receiver = await openReceiver({ secret: secrets });
  const { secret } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  secrets.push(secret);
  const ids = new Set<string>();

  for (let turn = 1; turn <= 10; turn += 1) {
    const body = { session_id: 'both-ways', message: `question ${turn}` };
    const path = `/api/v1/channels/webhook/${assistantId}`;
    const { status, body: answer } =
      turn % 2 === 0 ? await request(`${stack.url}${path}`, { body, bearer: 'open-sesame' }) : await chat(body);
    expect(status).toBe(200);
    ids.add(answer.conversationId);
  }

  expect(ids.size).toBe(1);
  const [conversationId] = [...ids];
  const received = await receiver.waitFor((all) => all.length >= 11);
  expect(
    received.map(({ json }) => (json as { event: string; payload: { content?: string } }).payload.content ?? null),
  ).toEqual([null, ...Array.from({ length: 10 }, (_, index) => `question ${index + 1}`)]);
  expect(received.every(({ verdict }) => verdict?.ok)).toBe(true);
  expect(received[0]?.json).toMatchObject({
    event: 'conversation.created',
    payload: { conversation_id: conversationId, session_id: 'both-ways', channel: 'api', language: expect.any(String) },
  });
  const first = received[1];
  expect(first?.json).toEqual({
    event: 'message.received',
    event_id: first?.headers['x-factory-event-id'],
    timestamp: expect.any(Number),
    payload: {
      conversation_id: conversationId,
      role: 'user',
      content: 'question 1',
      channel: 'api',
      language: expect.any(String),
    },
  });
  expect(first?.headers['x-factory-event']).toBe('message.received');
  const { body: record } = await history(conversationId as string);
  expect(record.messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(
    Array.from({ length: 10 }, (_, index) => `question ${index + 1}`),
  );
  expect(record.channel).toBe('api');
});

test('every delivery is recorded with its outcome', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const receiver = await openReceiver({
    respond: (_request, nth) => (nth === 1 ? { status: 500, body: 'oh no' } : {}),
  });
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });

  await chat(aTurn());

  const { deliveries } = await eventually(async () => {
    const list = await stack.service.deliveries.listRecords({ assistantId });
    expect(list.deliveries.filter(({ outcome }) => outcome === 'delivered' || outcome === 'rejected')).toHaveLength(2);
    return list;
  });
  const byEvent = new Map(deliveries.map((delivery) => [delivery.event, delivery]));
  const outcomes = [byEvent.get('conversation.created')?.outcome, byEvent.get('message.received')?.outcome];
  expect(outcomes.toSorted((a, b) => String(a).localeCompare(String(b)))).toEqual(['delivered', 'rejected']);
  const { _id: id = '' } = deliveries.find(({ outcome }) => outcome === 'rejected') ?? {};
  const rejected = await stack.service.deliveries.getDelivery(id);
  expect(rejected).toMatchObject({ status: 500, responseBody: 'oh no' });
  expect(receiver.received).toHaveLength(2);
});

test('a channel without a token is open, one with a token requires it, an unknown one is not found', async () => {
  const { assistantId } = await anAssistant(stack);
  const url = `${stack.url}/api/v1/channels/webhook/${assistantId}`;
  const unconnected = await request<ErrorBody>(url, { body: aTurn() });
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: null });

  const open = await eventually(async () => {
    const answer = await request(url, { body: aTurn() });
    expect(answer.status).toBe(200);
    return answer;
  });
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: 'verify-me' });
  const refused = await eventually(async () => {
    const answer = await request<ErrorBody>(url, { body: aTurn() });
    expect(answer.status).toBe(401);
    return answer;
  });
  const accepted = await request(url, { body: aTurn(), bearer: 'verify-me' });
  const unknown = await request<ErrorBody>(`${stack.url}/api/v1/channels/webhook/${randomUUID()}`, { body: aTurn() });

  expect(unconnected).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
  expect(open.headers.get('x-ratelimit-limit')).toBe('60');
  expect(refused.body.error.code).toBe('invalid_verify_token');
  expect(refused.headers.get('www-authenticate')).toBe('Bearer');
  expect(accepted.status).toBe(200);
  expect(unknown.status).toBe(404);
});

test('the 61st request within a minute is refused, and one after the wait succeeds', async () => {
  const { chat, call } = await anAssistant(stack, { limitPerMinute: 60 });
  for (let count = 0; count < 60; count += 1) {
    const answer = await call('/api/v1/conversations?limit=1');
    expect(answer.headers.get('x-ratelimit-remaining')).toBe(String(59 - count));
  }

  const refused = await chat(aTurn());

  expect(refused).toMatchObject({ status: 429, body: { error: { code: 'rate_limited' } } });
  const wait = refused.headers.get('retry-after');
  expect(wait).toMatch(/^[1-9]\d?$/);
  expect(refused.headers.get('x-ratelimit-remaining')).toBe('0');
  // The window ends when its key expires in Redis, so the test waits for Redis and not for the local clock.
  const keys = await stack.service.redis.keys(`${stack.env.REDIS_PREFIX}:limit:key:*`);
  const ttl = Math.max(...(await Promise.all(keys.map((key) => stack.service.redis.pttl(key)))));
  expect(ttl).toBeLessThanOrEqual(Number(wait) * 1000);
  await Promise.all(keys.map((key) => stack.service.redis.pexpire(key, 1)));
  await eventually(async () => expect((await chat(aTurn())).status).toBe(200));
});

test('a revoked key stops working in every process within a second', async () => {
  const { chat, keyId } = await anAssistant(stack);
  expect((await chat(aTurn())).status).toBe(200);

  await stack.service.assistants.revokeApiKey(keyId);
  const revokedAt = performance.now();

  let lastTaken = revokedAt;
  await eventually(async () => {
    const startedAt = performance.now();
    const { status } = await chat(aTurn());
    if (status === 200) lastTaken = startedAt;
    expect(status).toBe(401);
  });
  expect(lastTaken - revokedAt).toBeLessThan(atPace(1_000));
});

test('text that looks like database operators is stored and announced exactly', async () => {
  const { assistantId, chat, history } = await anAssistant(stack, { knowledge: [] });
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const texts = [
    '$salt',
    '$$ROOT',
    '$',
    '__proto__',
    '{"$ne":null}',
    'مرحبا كيف حالك',
    '\u202Eright-to-left',
    '😀'.repeat(8000),
  ];
  let conversationId = '';

  for (const message of texts) {
    const { status, body } = await chat({ session_id: '$session.__proto__', message });
    expect(status).toBe(200);
    conversationId = body.conversationId;
  }

  const { body: record } = await history(conversationId);
  expect(record.messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(texts);
  const received = await receiver.waitFor((all) => all.length >= texts.length + 1);
  const contents = received.slice(1).map(({ json }) => (json as { payload: { content: string } }).payload.content);
  expect(contents).toEqual(texts.map((text) => [...text].slice(0, 500).join('')));
});

test('no key, token or visitor text is in any log line', async () => {
  const { apiKey, chat } = await anAssistant(stack);
  const message = `my secret wish ${randomUUID()}`;

  await chat(aTurn({ message }));

  const text = JSON.stringify(stack.logs);
  expect(text).toContain('turn ended');
  expect(text).not.toContain(apiKey);
  expect(text).not.toContain(message);
});
