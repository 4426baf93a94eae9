import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { MAX_PENDING } from '../../src/conversations/conversation.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { watchPool } from '../support/pool.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
/** More than the connections to MongoDB, and many times what the keys of an assistant may use of them. */
const FLOOD = sized({ everyday: 40, long: 80 });
const KEYS = 4;
const ASYNC = { Prefer: 'respond-async' };
type Sending = { signal?: AbortSignal; headers?: Record<string, string> };

/** An assistant with several keys, and so many conversations. */
const aCaller = async (conversationCount = FLOOD) => {
  const { assistantId, apiKey, chat } = await anAssistant(stack);
  const makeKey = (name: string) =>
    stack.service.assistants.createApiKey({ assistantId, name, limitPerMinute: 1_000_000 });
  const made = await Promise.all(Array.from({ length: KEYS }, (_, nth) => makeKey(`key ${nth}`)));
  const keys = [apiKey, ...made.map((one) => one.apiKey)];
  const accepted = await Promise.all(
    Array.from({ length: conversationCount }, () => chat(aTurn({ session_id: randomUUID() }), { headers: ASYNC })),
  );
  const conversations = accepted.map(({ body }) => (body as { conversationId: string }).conversationId);
  const ask = async (path: string, nth = 0, body?: object, { signal, headers: more }: Sending = {}) => {
    const key = keys[nth % keys.length];
    const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', ...more };
    const sent = body && { method: 'POST', body: JSON.stringify(body) };
    const answer = await fetch(`${stack.url}${path}`, { headers, ...sent, ...(signal && { signal }) });
    await answer.arrayBuffer();
    return answer.status;
  };
  for (const [nth] of keys.entries()) await ask('/v1/models', nth); // the keys are known
  return { conversations, ask };
};

test('of many messages of an assistant that are not simply new, a few are looked at, at once', async () => {
  const { ask } = await aCaller(0);
  const session_id = randomUUID();
  const send = (nth: number) =>
    ask('/api/v1/chat', nth, aTurn({ session_id, message: `message ${nth}` }), { headers: ASYNC });
  for (let nth = 0; nth < MAX_PENDING; nth += 1) await send(nth);
  const stop = watchPool(stack.service.mongo);

  const statuses = await Promise.all(Array.from({ length: FLOOD }, (_, nth) => send(100 + nth)));

  expect(stop()).toBeLessThan(12);
  expect(new Set(statuses)).toEqual(new Set([429]));
});

const attributes = { plan: 'pro' };

test.each([
  ['change conversations', (id: string): string => `/api/v1/conversations/${id}/attributes`, attributes],
  ['read turns', (id: string): string => `/api/v1/turns/${id}`, undefined],
  ['list conversations', (): string => '/api/v1/conversations', undefined],
])('of many requests of an assistant’s keys that %s a few are worked on at once', async (_what, pathOf, body) => {
  const { conversations, ask } = await aCaller();
  const stop = watchPool(stack.service.mongo);

  const statuses = await Promise.all(conversations.map((id, nth) => ask(pathOf(id), nth, body)));

  expect(stop()).toBeLessThan(8);
  expect(statuses.filter((status) => status >= 500)).toEqual([]);
});

const LONG_BODY = { values: Array.from({ length: 5_000 }, (_, nth) => ({ [`a${nth}`]: 0 })) };

test('a long body of an assistant is parsed after a rest of four times as long as the one before took', async () => {
  const { ask } = await aCaller(0);
  const text = JSON.stringify(LONG_BODY);
  const times = Array.from({ length: 20 }, () => {
    const since = performance.now();
    JSON.parse(text);
    return performance.now() - since;
  });

  const begun = performance.now();
  const statuses = await Promise.all(Array.from({ length: FLOOD }, (_, nth) => ask('/api/v1/chat', nth, LONG_BODY)));

  expect(performance.now() - begun).toBeGreaterThan(3 * FLOOD * Math.min(...times));
  expect([...new Set(statuses)]).toEqual([422]);
});

test('long polls do not hold up other requests of their assistant', async () => {
  const { conversations, ask } = await aCaller();
  const leaving = new AbortController();
  const polls = conversations
    .slice(0, 10)
    .map((id, nth) =>
      ask(`/api/v1/conversations/${id}?after_seq=1&wait=25`, nth, undefined, { signal: leaving.signal }),
    );

  const status = await ask(`/api/v1/conversations/${conversations[0]}`);

  expect(status).toBe(200);
  leaving.abort();
  await Promise.allSettled(polls);
});
