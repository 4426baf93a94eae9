import { randomUUID } from 'node:crypto';
import { Agent, get } from 'node:http';
import { afterAll, afterEach, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import type { Timing } from '../../src/platform/process/time-limits.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { problemOf } from '../support/problem.ts';
import { openRelay, type Relay, through } from '../kit/relay.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const REPLY_TIMEOUT_MS = 5_000;
/** Every day, the callers of one process wait less, and their replies are sooner looked for in MongoDB. */
const SOON = sized({
  everyday: { timing: { checkStoreAfterMs: 500, checkStoreEveryMs: 200 }, replyTimeoutMs: 3_000 },
  long: { timing: {}, replyTimeoutMs: REPLY_TIMEOUT_MS },
});
/** Every day, other test files share the machine, so a call may take longer. In the long suite, it runs alone. */
const ABOUT_A_SECOND_MS = sized({ everyday: 6_000, long: 1_500 });
const LONGEST_MS = sized({ everyday: 10_000, long: 3_000 });
const PUNCTUAL_MS = sized({ everyday: 10_000, long: 1_000 });

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const lifecycle = createLifecycle(createLogger({ name: 'test', level: 'silent' }), { deadlineMs: 5_000 });
let redis: Relay;
let mongodb: Relay;
let url: string;
let soonUrl: string;

beforeAll(async () => {
  [redis, mongodb] = await Promise.all([openRelay(inject('redisUrl')), openRelay(inject('mongodbUrl'))]);
  const env = {
    ...stack.env,
    REDIS_URL: through(stack.env['REDIS_URL'] ?? '', redis),
    MONGODB_URL: through(stack.env['MONGODB_URL'] ?? '', mongodb),
  };
  const open = async (replyTimeoutMs: number, timing?: Partial<Timing>): Promise<string> => {
    const config = readConfig({ ...env, REPLY_TIMEOUT_MS: String(replyTimeoutMs) }, timing);
    const { port } = await openApi({ config, logger: createLogger({ name: 'test', level: 'silent' }), lifecycle });
    return `http://127.0.0.1:${port}`;
  };
  url = await open(REPLY_TIMEOUT_MS);
  soonUrl = await open(SOON.replyTimeoutMs, SOON.timing);
});
afterEach(() => {
  for (const relay of [redis, mongodb]) relay.thaw();
});
afterAll(async () => {
  await lifecycle.close();
  await Promise.all([redis.cut(), mongodb.cut()]);
});

const stores = [
  ['Redis', () => redis],
  ['MongoDB', () => mongodb],
] as const;

const timed = async <Answer>(work: Promise<Answer>): Promise<{ answer: Answer; ms: number }> => {
  const since = performance.now();
  const answer = await work;
  return { answer, ms: performance.now() - since };
};

const owner = { email: 'silent@parley.example', password: 'correct horse battery' };
const signIn = () =>
  request(`${url}/operator/v1/session`, { body: owner, headers: { Origin: url } }).then((answer) => ({
    ...answer,
    cookie: answer.headers.get('set-cookie')?.split(';')[0] ?? '',
  }));

test.each(stores)(
  '%s silent: 503 in about a second, nothing accepted, and recovery without a restart',
  async (name, of) => {
    const { apiKey, assistantId } = await anAssistant(stack);
    const worker = await stack.startReplyWorker(aScriptedEngine().engine);
    await stack.service.assistants.setChannel(assistantId, { connected: true, token: 'verify-me' });
    if (name === 'Redis') await stack.service.operators.createOperator({ ...owner, role: 'owner' });
    const { cookie } = await signIn();
    const channel = `/api/v1/channels/webhook/${assistantId}`;
    const calls: [string, Parameters<typeof request>[1]][] = [
      ['/api/v1/chat', { body: aTurn(), bearer: apiKey, headers: { 'Idempotency-Key': 'k' } }],
      [channel, { body: aTurn(), bearer: 'verify-me' }],
      ['/api/v1/conversations', { bearer: apiKey }],
      [`/api/v1/turns/${randomUUID()}`, { bearer: apiKey }],
      ['/operator/v1/session', { body: owner, headers: { Origin: url } }],
    ];
    const ofMongo: typeof calls = [['/operator/v1/session', { headers: { Cookie: cookie } }]];

    of().freeze();
    // All calls run at once, while the assistant is not cached and the API has not yet noticed the silence.
    const all = name === 'Redis' ? calls : [...calls, ...ofMongo];
    const answers = await Promise.all(all.map(([path, options]) => timed(request(`${url}${path}`, options))));
    const again = await timed(request(`${url}/api/v1/chat`, { body: aTurn(), bearer: apiKey }));
    const ready = await timed(request(`${url}/readyz`));
    of().thaw();

    for (const { answer, ms } of [...answers, again]) {
      expect(problemOf(answer)).toBe('503 unavailable');
      expect(answer.headers.get('retry-after')).toBe('1');
      expect(ms).toBeLessThan(atPace(ABOUT_A_SECOND_MS));
    }
    expect(ready.answer.status).toBe(503);
    expect(ready.ms).toBeLessThan(atPace(LONGEST_MS));
    expect(await stack.service.mongo.collection('conversations').countDocuments({ assistantId })).toBe(0);
    await eventually(async () => {
      expect((await request(`${url}/readyz`)).status).toBe(200);
      const answer = await request(`${url}/api/v1/chat`, { body: aTurn(), bearer: apiKey });
      expect(answer.status).toBe(200);
      expect((await signIn()).status).toBe(200);
    });
    await worker.close();
  },
);

test('a read that settles after its 503 neither ends the connection nor breaks the next request on it', async () => {
  const AT_ONCE = 5;
  const { apiKey } = await anAssistant(stack);
  const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE, scheduling: 'fifo' });
  onTestFinished(() => agent.destroy());
  const read = () =>
    new Promise<{ status: number; port: number }>((resolve, reject) => {
      const options = { agent, headers: { Authorization: `Bearer ${apiKey}` } };
      get(`${url}/api/v1/conversations`, options, (answer) => {
        const { localPort = 0 } = answer.socket;
        answer.resume().on('end', () => resolve({ status: answer.statusCode ?? 0, port: localPort }));
      }).on('error', reject);
    });
  const readAll = () => Promise.all(Array.from({ length: AT_ONCE }, read));
  const portsOf = (answers: Awaited<ReturnType<typeof readAll>>) => answers.map(({ port }) => port).toSorted();

  const before = await readAll();
  mongodb.freeze();
  const silent = await readAll();
  const again = await readAll();
  mongodb.thaw();
  const after = await eventually(async () => {
    const answers = await readAll();
    expect(answers.map(({ status }) => status)).toEqual(Array(AT_ONCE).fill(200));
    return answers;
  });

  expect([...silent, ...again].map(({ status }) => status)).toEqual(Array(2 * AT_ONCE).fill(503));
  for (const answers of [silent, again, after]) expect(portsOf(answers)).toEqual(portsOf(before));
});

test('Redis silent after turns are accepted: answered turns are found in MongoDB, others are 500 at the deadline', async () => {
  const { apiKey } = await anAssistant(stack);
  const say = (message: string) =>
    timed(request(`${soonUrl}/api/v1/chat`, { body: aTurn({ message }), bearer: apiKey }));
  const { engine, hold, asked } = aScriptedEngine();
  const release = hold('held for a moment');
  const worker = await stack.startReplyWorker(engine);
  const found = say('held for a moment');
  await eventually(() => expect(asked).toContain('held for a moment'));

  redis.freeze();
  release();
  const { answer, ms } = await found;
  redis.thaw();

  expect([answer.status, answer.body.reply]).toEqual([200, 'echo: held for a moment']);
  expect(ms).toBeLessThan(atPace(SOON.replyTimeoutMs));
  await worker.close();

  const slow = await stack.startReplyWorker(engine);
  const releaseLate = hold('held for long');
  const late = say('held for long');
  await eventually(() => expect(asked).toContain('held for long'));
  redis.freeze();
  const told = await late;
  redis.thaw();
  expect(problemOf(told.answer)).toBe('500 reply_timeout');
  expect(told.ms).toBeGreaterThan(SOON.replyTimeoutMs - 100);
  expect(told.ms).toBeLessThan(SOON.replyTimeoutMs + atPace(PUNCTUAL_MS));
  releaseLate();
  await slow.close();
});

test('MongoDB silent while a turn is accepted: 500, and the retry finds the same turn', async () => {
  const { apiKey, history } = await anAssistant(stack);
  const { engine } = aScriptedEngine();
  const worker = await stack.startReplyWorker(engine);
  const body = aTurn({ message: 'What are your opening hours?' });
  const say = () => request(`${url}/api/v1/chat`, { body, bearer: apiKey });
  const { answer, ms } = await eventually(async () => {
    // This caches the key and the assistant. The first use of the silent MongoDB is then the write that accepts the turn,
    // unless a busy machine takes longer than they are cached.
    expect((await request(`${url}/api/v1/chat`, { body: aTurn(), bearer: apiKey })).status).toBe(200);
    mongodb.freeze();
    const told = await timed(say()).finally(() => mongodb.thaw());
    expect(told.answer.status).not.toBe(503);
    return told;
  });

  expect(problemOf(answer)).toBe('500 internal_error');
  expect(ms).toBeLessThan(atPace(9_000));
  const retried = await eventually(async () => {
    const one = await say();
    expect(one.status).toBe(200);
    return one;
  });
  const { messages } = (await history(retried.body.conversationId)).body;
  expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant']);
  await worker.close();
});

test('Redis connections that go silent one by one are replaced, and replies in flight arrive again', async () => {
  const { apiKey } = await anAssistant(stack);
  const { engine } = aScriptedEngine();
  const worker = await stack.startReplyWorker(engine);
  /** Streams a reply and measures the time. Only pub/sub brings a reply this soon, because MongoDB is polled later. */
  const hear = async () => {
    const since = performance.now();
    const headers = {
      Authorization: `Bearer ${apiKey}`,
      Accept: 'text/event-stream',
      'Content-Type': 'application/json',
    };
    const answer = await fetch(`${url}/api/v1/chat`, { method: 'POST', headers, body: JSON.stringify(aTurn()) });
    const text = await answer.text();
    return { text, ms: performance.now() - since };
  };

  redis.strand();

  await eventually(async () => {
    const { text, ms } = await hear();
    expect(text).toContain('event: message');
    expect(ms).toBeLessThan(atPace(1_000));
  });
  redis.thaw();
  await worker.close();
});
