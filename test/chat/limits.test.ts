import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createRateLimiter } from '../../src/assistants/rate-limit.ts';
import { closeRedis, openRedis } from '../../src/platform/redis/redis.ts';
import { median } from '../kit/quantiles.ts';
import { openWire } from '../kit/raw-http.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator, openOperatorClient } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
const CHAT = '/api/v1/chat';
const FAILING = 60;

const logger = createLogger({ name: 'test', level: 'silent' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
afterAll(() => lifecycle.close());

/** Resets the window of failed requests before every test. */
beforeEach(async () => {
  const keys = await stack.service.redis.keys(`${stack.env.REDIS_PREFIX}:limit:failing:*`);
  if (keys.length > 0) await stack.service.redis.del(keys);
});

/** A second API process with its own settings. */
const anApi = async (env: Record<string, string>): Promise<string> => {
  const { port } = await openApi({ config: readConfig({ ...stack.env, ...env }), logger, lifecycle });
  return `http://127.0.0.1:${port}`;
};

const remaining = ({ headers }: { headers: Headers }) => headers.get('x-ratelimit-remaining');

const fail = (url: string, headers: Record<string, string> = {}) =>
  request(`${url}${CHAT}`, { body: aTurn(), bearer: 'sk_wrong', headers });

const countFailing = async () => {
  const [key = ''] = await stack.service.redis.keys(`${stack.env.REDIS_PREFIX}:limit:failing:*`);
  return Number(await stack.service.redis.get(key));
};

const failOften = async (url: string, headersOf: (count: number) => Record<string, string> = () => ({})) => {
  const answers = [];
  for (let count = 0; count < FAILING; count += 1) answers.push(fail(url, headersOf(count)));
  return (await Promise.all(answers)).map(({ status }) => status);
};

test('two keys of one assistant have a window each, and the channel has another', async () => {
  const assistant = await anAssistant(stack, { limitPerMinute: 2 });
  const { assistantId, chat, call } = assistant;
  const other = await stack.service.assistants.createApiKey({ assistantId, name: 'other', limitPerMinute: 7 });
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: null, limitPerMinute: 3 });
  for (let count = 0; count < 2; count += 1) await chat(aTurn());

  const refused = await chat(aTurn());
  const byOther = await call(CHAT, { body: aTurn(), bearer: other.apiKey });
  const channel = () => request(`${stack.url}/api/v1/channels/webhook/${assistantId}`, { body: aTurn() });
  const byChannel = [await channel(), await channel(), await channel(), await channel()];

  expect(problemOf(refused)).toBe('429 rate_limited');
  expect([byOther.status, remaining(byOther)]).toEqual([200, '6']);
  expect(byChannel.map(({ status }) => status)).toEqual([200, 200, 200, 429]);
  expect(byChannel.map(remaining)).toEqual(['2', '1', '0', '0']);
  expect(byChannel[3]?.headers.get('x-ratelimit-limit')).toBe('3');
});

test('a session has a window for all doors and processes, retries count, and Redis gets no session id', async () => {
  const { assistantId, apiKey, chat } = await anAssistant(stack, { input: { sessionLimitPerMinute: 3 } });
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: null, limitPerMinute: 1_000 });
  const other = await anApi({});
  const turn = aTurn({ session_id: 'phone-0049-170-5551234' });
  const byChannel = (body: unknown) => request(`${stack.url}/api/v1/channels/webhook/${assistantId}`, { body });

  const answers = [
    await chat(turn),
    await request(`${other}${CHAT}`, { body: turn, bearer: apiKey }),
    await byChannel({ ...turn, message: 'And on Sunday?' }),
    await chat(turn),
    await byChannel(turn),
  ];
  const unaffected = await chat(aTurn());

  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429, 429]);
  expect(answers[1]?.headers.get('idempotent-replayed')).toBe('true');
  const refused = answers[3] as (typeof answers)[number];
  expect(problemOf(refused)).toBe('429 rate_limited');
  const seconds = Number(refused.headers.get('retry-after'));
  expect([seconds > 0, seconds <= 60]).toEqual([true, true]);
  expect(['limit', 'remaining', 'reset'].map((one) => refused.headers.get(`x-ratelimit-${one}`))).toEqual([
    '3',
    '0',
    String(seconds),
  ]);
  expect([unaffected.status, remaining(unaffected) !== '0']).toEqual([200, true]);
  const keys = await stack.service.redis.keys(`${stack.env.REDIS_PREFIX}:limit:visitor:*`);
  expect(keys.length).toBeGreaterThanOrEqual(2);
  for (const key of keys) {
    expect(key).not.toContain('5551234');
    expect(await stack.service.redis.pttl(key)).toBeGreaterThan(0);
  }
  expect(await stack.service.mongo.collection('conversations').countDocuments({ assistantId })).toBe(2);
});

test('requests of one key that come at once each have their own place in the window, and the rest are refused', async () => {
  const { call } = await anAssistant(stack, { limitPerMinute: 5 });

  const answers = await Promise.all(Array.from({ length: 9 }, () => call('/api/v1/conversations')));

  const accepted = answers.filter(({ status }) => status === 200);
  expect(accepted.map(remaining).toSorted()).toEqual(['0', '1', '2', '3', '4']);
  expect(answers.filter(({ status }) => status === 429).map(remaining)).toEqual(['0', '0', '0', '0']);
});

test('refused, replayed and read requests count like any other', async () => {
  const { chat, call } = await anAssistant(stack, { limitPerMinute: 50 });
  const turn = aTurn();
  const first = await chat(turn);

  const path = `/api/v1/conversations/${first.body.conversationId}`;
  const answers = [
    await chat(turn),
    await chat({}),
    await call(CHAT, { body: '{' }),
    await call('/api/v1/conversations'),
    await call(path),
    await call(path, { method: 'HEAD' }),
    await call(`${path}/escalate`, { body: {} }),
    await call(`/api/v1/conversations/${randomUUID()}`),
    await call(path, { method: 'DELETE' }),
  ];

  expect(answers[0]?.headers.get('idempotent-replayed')).toBe('true');
  expect(answers.map(({ status }) => status)).toEqual([200, 422, 422, 200, 200, 200, 200, 404, 204]);
  expect([first, ...answers].map(remaining)).toEqual(['49', '48', '47', '46', '45', '44', '43', '42', '41', '40']);
});

test('a caller who goes on after 100 refusals waits for each further one, and another caller is answered', async () => {
  const [{ chat }, neighbour] = [await anAssistant(stack, { limitPerMinute: 1 }), await anAssistant(stack)];
  const timed = async (send: () => Promise<{ status: number }>) => {
    const since = performance.now();
    const { status } = await send();
    return { status, took: performance.now() - since };
  };
  const first = await Promise.all(Array.from({ length: 101 }, () => chat(aTurn())));

  const waiting = Promise.all(Array.from({ length: 20 }, () => timed(() => chat(aTurn()))));
  const other = await neighbour.chat(aTurn());

  expect(first.filter(({ status }) => status === 429)).toHaveLength(100);
  expect(other.status).toBe(200);
  for (const { status, took } of await waiting) expect([status, took > 950]).toEqual([429, true]);
});

test('a long poll has its own window, but only if it may wait', async () => {
  const { chat, call } = await anAssistant(stack, { limitPerMinute: 2 });
  const { body } = await chat(aTurn());
  const path = `/api/v1/conversations/${body.conversationId}?after_seq=0&wait=1`;

  const polls = [await call(path), await call(path), await call(path)];
  const others = [await call(`${CHAT}?wait=1`, { body: aTurn() }), await call('/api/v1/conversations?wait=1')];

  expect(polls.map(({ status }) => status)).toEqual([200, 200, 429]);
  expect(others.map(({ status }) => status)).toEqual([200, 429]);
});

test('a long poll of events takes nothing from the limit of messages', async () => {
  const { chat, call } = await anAssistant(stack, { limitPerMinute: 2 });
  const path = '/api/v1/events';

  const polls = [await call(`${path}?wait=1`), await call(`${path}?wait=1`), await call(`${path}?wait=1`)];
  const others = [await chat(aTurn()), await call(`${path}?wait=0`), await call(path)];

  expect(polls.map(({ status }) => status)).toEqual([200, 200, 429]);
  expect(others.map(({ status }) => status)).toEqual([200, 200, 429]);
});

test.each(['wait=1', 'wait=25&after_seq=', 'wait=1&after_seq=x', 'wait=1e1&after_seq=0', 'wait=0&after_seq=0'])(
  'a query that does not make the request wait (%s) counts like any other request',
  async (query) => {
    const { chat, call } = await anAssistant(stack, { limitPerMinute: 2 });
    const { body } = await chat(aTurn());
    const path = `/api/v1/conversations/${body.conversationId}?${query}`;

    const answers = [await call(path), await call(path)];

    expect(answers.map(({ status }) => status).at(-1)).toBe(429);
  },
);

test('requests without a valid key or method do not count against a key', async () => {
  const { apiKey, chat, call } = await anAssistant(stack, { limitPerMinute: 5 });
  await chat(aTurn());

  for (const bearer of [null, `${apiKey}x`, apiKey.toLowerCase()]) await call(CHAT, { body: aTurn(), bearer });
  await call(CHAT, { method: 'PUT', body: {} });
  await call('/api/v1/nothing');

  expect(remaining(await chat(aTurn()))).toBe('3');
});

test('the 61st failing request of an address is 429, and a valid key or token from there still works', async () => {
  const { assistantId, chat, call } = await anAssistant(stack);
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: 'verify-me' });
  const channel = (id: string, bearer: string | null) =>
    request(`${stack.url}/api/v1/channels/webhook/${id}`, { body: aTurn(), bearer });
  expect(await failOften(stack.url)).toEqual(Array(FAILING).fill(401));

  const refused = [
    await fail(stack.url),
    await call('/api/v1/conversations', { bearer: null }),
    await channel(randomUUID(), null),
    await channel(assistantId, 'wrong'),
  ];
  const valid = [await chat(aTurn()), await call('/api/v1/conversations'), await channel(assistantId, 'verify-me')];

  expect(refused.map(problemOf)).toEqual(Array(4).fill('429 rate_limited'));
  expect(refused[0]?.headers.get('x-ratelimit-limit')).toBe(String(FAILING));
  expect(valid.map(({ status }) => status)).toEqual([200, 200, 200]);
});

test('a request to the operator API without a session counts as failing, and those with one go on', async () => {
  const operator = await anOperator(stack);
  const stranger = openOperatorClient(stack.url);
  const answers = await Promise.all(Array.from({ length: FAILING }, () => stranger.get('/inbox')));

  const refused = [await stranger.get('/inbox'), await stranger.get('/session'), await fail(stack.url)];
  const others = [await operator.get('/inbox'), await stranger.get('/session/current')];

  expect([...new Set(answers.map(problemOf))]).toEqual(['401 not_signed_in']);
  expect(refused.map(problemOf)).toEqual(Array(3).fill('429 rate_limited'));
  expect(others.map(({ status }) => status)).toEqual([200, 200]);
});

test('an unknown conversation or path is not a failing request', async () => {
  const { call } = await anAssistant(stack);

  for (let count = 0; count < FAILING + 5; count += 1) {
    const path = count % 2 === 0 ? `/api/v1/conversations/${randomUUID()}` : '/api/v1/nothing';
    expect((await call(path)).status).toBe(404);
  }

  expect((await fail(stack.url)).status).toBe(401);
});

test('without TRUST_PROXY invented addresses do not evade the limit', async () => {
  await failOften(stack.url, (count) => ({ 'X-Forwarded-For': `203.0.113.${count}` }));

  expect(problemOf(await fail(stack.url, { 'X-Forwarded-For': '198.51.100.1' }))).toBe('429 rate_limited');
});

test('behind one trusted proxy the last forwarded address counts, not what the caller wrote before it', async () => {
  const url = await anApi({ TRUST_PROXY: '1' });
  await failOften(url, (count) => ({ 'X-Forwarded-For': `198.51.100.${count}, 203.0.113.7` }));

  expect(problemOf(await fail(url, { 'X-Forwarded-For': '203.0.113.7' }))).toBe('429 rate_limited');
  expect(problemOf(await fail(url, { 'X-Forwarded-For': '203.0.113.8' }))).toBe('401 invalid_api_key');
});

test('an IPv6 network of 64 bits counts as one client', async () => {
  const url = await anApi({ TRUST_PROXY: '1' });
  const from = (address: string) => ({ 'X-Forwarded-For': address });
  await failOften(url, (count) => from(`2001:db8:9:9:${count + 1}::${count}`));

  expect(problemOf(await fail(url, from('2001:db8:9:9:abcd::1')))).toBe('429 rate_limited');
  expect(problemOf(await fail(url, from('2001:db8:9:a::1')))).toBe('401 invalid_api_key');
});

test('only a proxy with a trusted address is believed', async () => {
  const believed = await anApi({ TRUST_PROXY: 'loopback' });
  const ignored = await anApi({ TRUST_PROXY: '192.0.2.1' });

  await failOften(believed, () => ({ 'X-Forwarded-For': '203.0.113.9' }));
  expect(problemOf(await fail(believed, { 'X-Forwarded-For': '203.0.113.9' }))).toBe('429 rate_limited');
  expect(problemOf(await fail(ignored, { 'X-Forwarded-For': '203.0.113.9' }))).toBe('401 invalid_api_key');
});

test('all API processes count into the same window', async () => {
  const { apiKey, chat } = await anAssistant(stack, { limitPerMinute: 3 });
  const other = await anApi({});
  await chat(aTurn());

  const elsewhere = await request(`${other}${CHAT}`, { body: aTurn(), bearer: apiKey });

  expect(remaining(elsewhere)).toBe('1');
});

test('of 100 concurrent requests exactly as many pass as the limit allows', async () => {
  const { call } = await anAssistant(stack, { limitPerMinute: 40 });

  const answers = await Promise.all(Array.from({ length: 100 }, () => call('/api/v1/conversations')));

  expect(answers.filter(({ status }) => status === 200)).toHaveLength(40);
  expect(answers.filter(({ status }) => status === 429)).toHaveLength(60);
});

test('an address whose refusals are late gets a hundred a second, and its known keys do not wait', async () => {
  const url = await anApi({ TRUST_PROXY: '1' });
  const { assistantId, apiKey } = await anAssistant(stack);
  const { apiKey: unknown } = await stack.service.assistants.createApiKey({ assistantId, name: 'new' });
  const headers = { 'X-Forwarded-For': '203.0.113.77' };
  const list = (bearer: string) => request(`${url}/api/v1/conversations`, { bearer, headers });
  const failing = (count: number) => Promise.all(Array.from({ length: count }, () => fail(url, headers)));
  await list(apiKey);
  await failing(FAILING + 100);

  const since = performance.now();
  const late = failing(100);
  await eventually(async () => expect(await countFailing()).toBe(FAILING + 200));
  const ended: string[] = [];
  const [known, other, refused] = await Promise.all([
    list(apiKey).finally(() => ended.push('known')),
    list(unknown).finally(() => ended.push('new')),
    late.finally(() => ended.push('refused')),
  ]);

  expect(performance.now() - since).toBeGreaterThan(1_900);
  expect(ended).toEqual(['known', 'refused', 'new']);
  expect([known.status, other.status]).toEqual([200, 200]);
  expect(new Set(refused.map(problemOf))).toEqual(new Set(['429 rate_limited']));
});

test('an address leaves a hundred megabytes of requests that wait, and takes nothing from others', async () => {
  const url = await anApi({ TRUST_PROXY: '1' });
  const { apiKey } = await anAssistant(stack);
  const headers = { 'X-Forwarded-For': '203.0.113.78' };
  await Promise.all(Array.from({ length: FAILING + 100 }, () => fail(url, headers)));
  const head = `POST ${CHAT} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.78\r\nAuthorization: Bearer sk_wrong\r\n`;
  const statuses: string[] = [];
  const since = performance.now();

  const sockets = Array.from({ length: 800 }, () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write(`${head}Content-Length: 1000000\r\n\r\n`);
    socket.once('data', (answer: Buffer) => statuses.push(answer.toString('latin1', 9, 12)));
    return socket.on('error', () => undefined);
  });
  onTestFinished(() => sockets.forEach((socket) => socket.destroy()));
  const countOf = (status: string) => statuses.filter((one) => one === status).length;
  await eventually(() => expect(countOf('503')).toBeGreaterThan(10));
  expect(performance.now() - since).toBeGreaterThan(990); // a client who comes again after each comes seldom
  const other = await request(`${url}${CHAT}`, { body: aTurn(), bearer: apiKey });

  expect(other.status).toBe(200);
  expect(countOf('503')).toBeLessThan(100);
  await eventually(() => expect(countOf('429')).toBeGreaterThan(0));
});

test('a refusal that waits ends when its client leaves', async () => {
  const url = await anApi({ TRUST_PROXY: '1' });
  const headers = { 'X-Forwarded-For': '203.0.113.79' };
  await Promise.all(Array.from({ length: FAILING + 100 }, () => fail(url, headers)));
  const countTimers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = countTimers();
  const leaving = new AbortController();
  const send = () => fetch(`${url}${CHAT}`, { method: 'POST', headers, signal: leaving.signal }).catch(() => undefined);
  const since = performance.now();

  const waiting = Array.from({ length: 1_000 }, send);
  await eventually(() => expect(countTimers()).toBeGreaterThan(before + 300));
  leaving.abort();
  await Promise.all(waiting);

  await eventually(() => expect(countTimers()).toBeLessThan(before + 100));
  expect(performance.now() - since).toBeLessThan(8_000); // the last one is due after ten seconds
});

test('requests of an address with many connections begin in turns with those of others', async () => {
  const port = Number(new URL(stack.url).port);
  let answered = 0;
  const attackers = Array.from({ length: 400 }, () => {
    const ask = () => wire.send('GET /operator/v1/session/current HTTP/1.1\r\nHost: x\r\n\r\n');
    const onAnswer = () => {
      answered += 1;
      ask();
    };
    const wire = openWire(port, { onOpen: ask, onAnswer, onLost: () => undefined }, { localAddress: '127.0.0.9' });
    return wire;
  });
  const visitor = connect({ port, host: '127.0.0.1' });
  onTestFinished(() => {
    visitor.destroy();
    for (const { close } of attackers) close();
  });
  const visit = async () => {
    const before = answered;
    visitor.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(visitor, 'data');
    return answered - before;
  };
  await visit();
  await eventually(async () => expect(answered).toBeGreaterThan(2 * attackers.length));

  const meanwhile: number[] = [];
  for (let nth = 0; nth < 11; nth += 1) meanwhile.push(await visit());

  expect(median(meanwhile)).toBeLessThan(attackers.length / 2);
});

test('the first request of a process is counted, also while other commands wait to be sent', async () => {
  const { REDIS_URL: url, REDIS_PREFIX: prefix } = readConfig(stack.env);
  const redis = await openRedis({ url, role: 'api' }, logger);
  lifecycle.add('redis', redis, closeRedis);
  const limiter = createRateLimiter(redis, { prefix, onRefused: () => undefined });

  const [other, state] = await Promise.all([redis.get('nothing'), limiter.forApiKey(randomUUID(), 7, 'assistant')]);

  expect([other, state]).toEqual([null, { limit: 7, remaining: 6, resetSeconds: 60 }]);
});
