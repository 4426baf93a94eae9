import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn, type ErrorBody, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
const CHAT = '/api/v1/chat';
const TOO_LARGE = { body: { ...aTurn(), padding: 'x'.repeat(65_536) } };

/** The counts of what is stored for an assistant. A refused request must not change them. */
const storedFor = async ({ assistantId }: TestAssistant): Promise<number[]> => {
  const { mongo } = stack.service;
  return Promise.all([
    mongo.collection('conversations').countDocuments({ assistantId }),
    mongo.collection('idempotencyKeys').countDocuments({ _id: { $regex: `^${assistantId}` } as never }),
  ]);
};

const channelOf = async (assistant: TestAssistant, token: string | null = 'verify-me'): Promise<string> => {
  await stack.service.assistants.setChannel(assistant.assistantId, { connected: true, token });
  return `/api/v1/channels/webhook/${assistant.assistantId}`;
};

test('a request without a Bearer key gets missing_api_key', async () => {
  const assistant = await anAssistant(stack);
  const { apiKey, call } = assistant;
  const authorizations = ['', 'Bearer', 'Bearer ', apiKey, `Basic ${apiKey}`, `Token ${apiKey}`];

  for (const Authorization of authorizations) {
    const answer = await call<ErrorBody>(CHAT, { body: aTurn(), bearer: null, headers: { Authorization } });
    expect(problemOf(answer)).toBe('401 missing_api_key');
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
  }
  expect(await storedFor(assistant)).toEqual([0, 0]);
});

test('a malformed or unknown key, or one in the wrong case, gets invalid_api_key', async () => {
  const assistant = await anAssistant(stack);
  const { apiKey, call } = assistant;
  const flipped = `${apiKey.slice(0, -1)}${apiKey.endsWith('0') ? '1' : '0'}`;
  const keys = ['sk_', 'nonsense', apiKey.toUpperCase(), flipped, `${apiKey}x`, '$ne', '__proto__'];

  for (const bearer of keys) {
    const answer = await call<ErrorBody>(CHAT, { body: aTurn(), bearer });
    expect(problemOf(answer)).toBe('401 invalid_api_key');
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    expect(answer.headers.get('x-ratelimit-limit')).toBeNull();
  }
  expect(await storedFor(assistant)).toEqual([0, 0]);
});

test('a channel with a token refuses a missing and a wrong one, and the API key of its own assistant', async () => {
  const assistant = await anAssistant(stack);
  const url = `${stack.url}${await channelOf(assistant)}`;

  for (const bearer of [null, 'verify-m', 'verify-mee', 'VERIFY-ME', assistant.apiKey]) {
    const answer = await request(url, { body: aTurn(), bearer });
    expect(problemOf(answer)).toBe('401 invalid_verify_token');
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
  }
  expect(await storedFor(assistant)).toEqual([0, 0]);
});

test.each([
  ['of nobody', randomUUID()],
  ['in capitals', randomUUID().toUpperCase()],
  ['that is no uuid', 'assistant-1'],
  ['with a NUL', '%00'],
  ['that climbs', '..%2f..%2fchat'],
])('a channel %s is not found, whatever the token', async (_name, id) => {
  const answer = await request(`${stack.url}/api/v1/channels/webhook/${id}`, { body: aTurn(), bearer: 'verify-me' });

  expect(problemOf(answer)).toBe('404 not_found');
});

test('malformed, unknown and other assistants’ conversations look the same under every method', async () => {
  const [owner, stranger] = [await anAssistant(stack), await anAssistant(stack)];
  const { body } = await owner.chat(aTurn());
  const ids = [body.conversationId, body.conversationId.toUpperCase(), randomUUID(), 'x', '%00', '$ne', '*'];

  for (const id of ids) {
    const path = `/api/v1/conversations/${id}`;
    for (const answer of [
      await stranger.call(path),
      await stranger.call(path, { method: 'DELETE' }),
      await stranger.call(`${path}/escalate`, { body: {} }),
      await stranger.call(`${path}/escalate`, { body: { reason: 7 } }),
    ]) {
      expect(problemOf(answer)).toBe('404 not_found');
      expect((answer.body as ErrorBody).error.message).toBe('Nothing was found at this address.');
    }
  }
  expect((await owner.history(body.conversationId)).body.status).toBe('open');
});

test.each([
  ['/nowhere', 'GET'],
  ['/api/v1', 'GET'],
  ['/api/v2/chat', 'POST'],
  ['/API/V1/CHAT', 'POST'],
  ['/api/v1/chat/more', 'POST'],
  ['/%E0%A4%A', 'GET'],
  ['/api/v1/conversations/%E0%A4%A', 'GET'],
  ['/api/v1/channels/webhook/%', 'POST'],
  ['//api/v1/chat', 'POST'],
  ['/constructor', 'OPTIONS'],
])('the unknown path %s is not found', async (path, method) => {
  expect(problemOf(await request(`${stack.url}${path}`, { method }))).toBe('404 not_found');
});

test.each([
  [CHAT, ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'], 'POST'],
  [`/api/v1/channels/webhook/${randomUUID()}`, ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS'], 'POST'],
  ['/api/v1/conversations', ['POST', 'DELETE', 'OPTIONS'], 'GET, HEAD'],
  [`/api/v1/conversations/${randomUUID()}`, ['POST', 'PUT', 'PATCH', 'OPTIONS'], 'GET, HEAD, DELETE'],
  [`/api/v1/conversations/${randomUUID()}/escalate`, ['GET', 'DELETE', 'OPTIONS'], 'POST'],
  ['/healthz', ['POST', 'OPTIONS'], 'GET, HEAD'],
  ['/readyz', ['DELETE', 'OPTIONS'], 'GET, HEAD'],
])('%s refuses other methods and lists the allowed ones', async (path, methods, allow) => {
  for (const method of methods) {
    const answer = await request(`${stack.url}${path}`, { method });
    expect(answer.headers.get('allow')).toBe(allow);
    expect(method === 'HEAD' ? answer.status : problemOf(answer)).toBe(
      method === 'HEAD' ? 405 : '405 method_not_allowed',
    );
  }
});

test('HEAD answers like GET, without a body', async () => {
  const { chat, call } = await anAssistant(stack);
  const { body } = await chat(aTurn());

  for (const path of ['/healthz', '/readyz', '/api/v1/conversations', `/api/v1/conversations/${body.conversationId}`]) {
    expect(await call(path, { method: 'HEAD' })).toMatchObject({ status: 200, body: null });
  }
  expect(await call(`/api/v1/conversations/${randomUUID()}`, { method: 'HEAD' })).toMatchObject({ status: 404 });
});

test('404 of the channel comes before 401, 401 before 429, 429 before 413, 413 before 422', async () => {
  const assistant = await anAssistant(stack, { limitPerMinute: 2 });
  const unconnected = `${stack.url}/api/v1/channels/webhook/${assistant.assistantId}`;
  const notJson = { headers: { 'Content-Type': 'text/plain' } };

  const channel = await request(unconnected, { ...TOO_LARGE, bearer: 'wrong' });
  const stranger = await assistant.call(CHAT, { ...TOO_LARGE, ...notJson, bearer: 'wrong' });
  const large = await assistant.call(CHAT, { ...TOO_LARGE, ...notJson });
  const malformed = await assistant.call(CHAT, { body: '{', headers: { 'Idempotency-Key': '' } });
  const limited = await assistant.call(CHAT, { ...TOO_LARGE, ...notJson });

  expect([channel, stranger, large, malformed, limited].map(problemOf)).toEqual([
    '404 not_found',
    '401 invalid_api_key',
    '413 payload_too_large',
    '422 invalid_json',
    '429 rate_limited',
  ]);
  expect(await storedFor(assistant)).toEqual([0, 0]);
});

test('every authenticated answer carries the limit: 200, 404, 413, 422 and 429 alike, open channel included', async () => {
  const assistant = await anAssistant(stack, { limitPerMinute: 5 });
  const { call, chat } = assistant;
  const open = `${stack.url}${await channelOf(assistant, null)}`;

  const answers = [
    await chat(aTurn()),
    await call(`/api/v1/conversations/${randomUUID()}`),
    await call(CHAT, TOO_LARGE),
    await chat({}),
    await call('/api/v1/conversations'),
    await chat(aTurn()),
  ];
  const overOpenChannel = await eventually(async () => {
    const answer = await request(open, { body: {} });
    expect(answer.status).toBe(422);
    return answer;
  });

  expect(answers.map(({ status }) => status)).toEqual([200, 404, 413, 422, 200, 429]);
  expect(answers.map(({ headers }) => headers.get('x-ratelimit-limit'))).toEqual(Array(6).fill('5'));
  expect(answers.map(({ headers }) => headers.get('x-ratelimit-remaining'))).toEqual(['4', '3', '2', '1', '0', '0']);
  for (const { headers } of answers) expect(headers.get('x-ratelimit-reset')).toMatch(/^([1-9]|[1-5]\d|60)$/);
  expect(overOpenChannel.headers.get('x-ratelimit-limit')).toBe('60');
});

test('every answer carries the request id of the caller if it is well-formed, else a new one', async () => {
  const { call } = await anAssistant(stack);
  const ask = async (path: string, id: string) =>
    (await call(path, { headers: { 'X-Request-Id': id } })).headers.get('x-request-id');

  for (const path of ['/healthz', '/nowhere', CHAT, '/api/v1/conversations']) {
    expect(await ask(path, 'my-Request_42')).toBe('my-Request_42');
  }
  for (const id of ['short', 'a'.repeat(65), 'with space', 'semi;colon']) {
    expect(await ask('/api/v1/conversations', id)).toMatch(/^[0-9a-f-]{36}$/);
  }
});

test('an internal error is 500 without details, and is logged once with its cause', async () => {
  const { chat, history, assistantId } = await anAssistant(stack);
  const { body } = await chat(aTurn());
  await stack.service.mongo.collection('conversations').updateOne({ assistantId }, { $set: { texts: null } });

  const answer = await history(body.conversationId);

  expect(problemOf(answer)).toBe('500 internal_error');
  expect(JSON.stringify(answer.body)).not.toMatch(/TypeError|Cannot|null|undefined|\.ts|conversation/);
  const { requestId } = (answer.body as unknown as ErrorBody).error;
  const lines = stack.logs.filter((line) => line.requestId === requestId);
  expect(lines).toMatchObject([{ level: 50, msg: 'request failed', err: { stack: expect.any(String) } }]);
});

test('the log of a failed request has no text of its path', async () => {
  const { chat } = await anAssistant(stack);
  const { conversationId } = (await chat(aTurn())).body;
  const { db } = stack.service.mongo;
  const owner = await anOperator(stack);
  await owner.post(`/conversations/${conversationId}/tags`, { tag: 'zqtag' });
  await db?.command({ collMod: 'conversations', validator: { never: { $exists: true } } });
  onTestFinished(async () => void (await db?.command({ collMod: 'conversations', validator: {} })));

  const answers = await Promise.all(
    ['zqtag', 'zqtag/'].map((tag) => owner.call('DELETE', `/conversations/${conversationId}/tags/${tag}`)),
  );

  expect(answers.map(({ status }) => status)).toEqual([500, 500]);
  const path = `/operator/v1/conversations/${conversationId}/tags/:tag`;
  expect(stack.logs.filter((line) => line['msg'] === 'request failed' && line['path'] === path)).toHaveLength(2);
  expect(JSON.stringify(stack.logs)).not.toContain('zqtag');
});
