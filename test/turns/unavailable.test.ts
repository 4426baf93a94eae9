import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openOperatorClient, PASSWORD } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { openRelay, type Relay, through } from '../kit/relay.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const logger = createLogger({ name: 'test', level: 'silent' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
const draining = new AbortController();
let redis: Relay;
let mongodb: Relay;
let url: string;

beforeAll(async () => {
  [redis, mongodb] = await Promise.all([openRelay(inject('redisUrl')), openRelay(inject('mongodbUrl'))]);
  const { REDIS_URL = '', MONGODB_URL = '' } = stack.env;
  const config = readConfig({
    ...stack.env,
    REDIS_URL: through(REDIS_URL, redis),
    MONGODB_URL: through(MONGODB_URL, mongodb),
    REPLY_TIMEOUT_MS: '500',
  });
  const api = await openApi({ config, logger, lifecycle: { ...lifecycle, draining: draining.signal } });
  url = `http://127.0.0.1:${api.port}`;
});
afterAll(async () => {
  await lifecycle.close();
  await Promise.all([redis.cut(), mongodb.cut()]);
});

const countStored = (assistantId: string) =>
  stack.service.mongo.collection('conversations').countDocuments({ assistantId });

const every = (bearer: string, assistantId: string): [string, Parameters<typeof request>[1]][] => [
  ['/api/v1/chat', { body: aTurn(), bearer }],
  ['/api/v1/chat', { body: aTurn(), bearer, headers: { 'Idempotency-Key': 'k' } }],
  [`/api/v1/channels/webhook/${assistantId}`, { body: aTurn(), bearer: 'verify-me' }],
  ['/api/v1/conversations', { bearer }],
];

test.each([
  ['MongoDB', () => mongodb],
  ['Redis', () => redis],
])(
  '%s unavailable: 503 within a second with Retry-After, nothing stored, and recovery without a restart',
  async (_name, relayOf) => {
    const { apiKey, assistantId } = await anAssistant(stack);
    await stack.service.assistants.setChannel(assistantId, { connected: true, token: 'verify-me' });
    const relay = relayOf();
    await relay.cut();
    const times: number[] = [];
    try {
      for (const [path, options] of every(apiKey, assistantId)) {
        const startedAt = performance.now();
        const answer = await request(`${url}${path}`, options);
        times.push(performance.now() - startedAt);
        expect([path, problemOf(answer)]).toEqual([path, '503 unavailable']);
      }
      expect((await request(`${url}/readyz`)).status).toBe(503);
      expect((await request(`${url}/healthz`)).status).toBe(200);
    } finally {
      await relay.mend();
    }
    // The second fastest time is compared, not the slowest, because other test files run on the same machine.
    expect(times.toSorted((a, b) => a - b)[1]).toBeLessThan(atPace(1_000));
    expect(await countStored(assistantId)).toBe(0);

    await eventually(async () => {
      expect((await request(`${url}/readyz`)).status).toBe(200);
      // No worker runs here, so the test only checks that the turn is accepted.
      expect(problemOf(await request(`${url}/api/v1/chat`, { body: aTurn(), bearer: apiKey }))).toBe(
        '500 reply_timeout',
      );
    });
  },
);

test('while MongoDB is unavailable, signing in is 503, and right passwords do not count as wrong ones', async () => {
  const email = `${randomUUID()}@example.com`;
  await stack.service.operators.createOperator({ email, role: 'owner', password: PASSWORD });
  const browser = openOperatorClient(url);
  const tries = Array.from({ length: 8 });
  await mongodb.cut();
  try {
    for (const _ of tries) expect(problemOf(await browser.signIn(email))).toBe('503 unavailable');
    for (const _ of tries) {
      expect(problemOf(await browser.post('/links/read', { token: 'x' }))).toBe('503 unavailable');
    }
  } finally {
    await mongodb.mend();
  }

  await eventually(async () => expect((await browser.signIn(email)).status).toBe(200));
  for (const _ of tries.slice(0, 5)) {
    expect(problemOf(await openOperatorClient(url).signIn(email, 'wrong'))).toBe('401 not_signed_in');
  }
  expect(problemOf(await openOperatorClient(url).signIn(email, 'wrong'))).toBe('429 rate_limited');
});

test('a draining process answers 503 and closes the connection', async () => {
  const { apiKey, assistantId } = await anAssistant(stack);
  draining.abort();

  for (const [path, options] of every(apiKey, assistantId)) {
    const answer = await request(`${url}${path}`, options);
    expect(problemOf(answer)).toBe('503 unavailable');
    expect(answer.headers.get('connection')).toBe('close');
  }
  expect((await request(`${url}/healthz`)).status).toBe(200);
  expect((await request(`${url}/readyz`)).status).toBe(503);
  expect(await countStored(assistantId)).toBe(0);
});
