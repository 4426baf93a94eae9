import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import mongoose from 'mongoose';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type Service, startMongod, startRedis } from '../../scripts/services.ts';
import { anAssistant, anEntry, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver, contentOf } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { watchPool } from '../support/pool.ts';
import { hintsIn, openStack, type Stack } from '../support/stack.ts';
import { problemOf } from '../support/problem.ts';

const OUT_OF_DISK_SPACE = 14031;
const WARN = 40;
const NO_PRIMARY_S = 4;
const UNAUTHORIZED = 13;
const MAX_TIME_EXPIRED = 50;
const AUTHENTICATION_FAILED = 18;
const SNAPSHOT_TOO_OLD = 239;

const { engine, hold, asked } = aScriptedEngine();
let redis: Service;
let mongod: Service;
let admin: Redis;
let stack: Stack;
beforeAll(async () => {
  [redis, mongod] = await Promise.all([startRedis(), startMongod({ failPoints: true })]);
  admin = new Redis(redis.url);
  stack = await openStack({ engine, env: { REDIS_URL: redis.url, MONGODB_URL: mongod.url } });
});
afterAll(async () => {
  await stack.close();
  admin.disconnect();
  await Promise.all([redis.dispose(), mongod.dispose()]);
});

test('Redis out of memory: 503 with Retry-After, accepted turns and events are not lost, and the log says what to do', async () => {
  const { assistantId, apiKey, chat } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const session_id = randomUUID();
  const first = await chat({ session_id, message: 'before' });
  expect(first.status).toBe(200);

  await admin.config('SET', 'maxmemory', '1');
  const refused = await request(`${stack.url}/api/v1/chat`, {
    body: { session_id, message: 'meanwhile' },
    bearer: apiKey,
  });
  expect(problemOf(refused)).toBe('503 unavailable');
  expect(refused.headers.get('retry-after')).toBe('1');
  await eventually(() => expect(hintsIn(stack.logs)).toEqual([expect.stringMatching(/^Raise maxmemory /)]));
  // An operator's message needs no Redis to be stored; its wake-up is lost and found by a sweep.
  const { transitions } = stack.service.conversations;
  await transitions.escalate({ conversationId: first.body.conversationId }, {});
  await admin.config('SET', 'maxmemory', '0');

  const again = await eventually(async () => {
    const answer = await chat({ session_id, message: 'meanwhile' });
    expect(answer.status).toBe(200);
    return answer;
  });
  expect(again.body.conversationId).toBe(first.body.conversationId);
  await receiver.waitFor((received) => received.length >= 4);
  const events = receiver.received.map(
    ({ json, ...rest }) => contentOf({ json }) ?? (json as { event: string }).event ?? rest.path,
  );
  expect(events).toEqual(['conversation.created', 'before', 'conversation.escalated', 'meanwhile']);
  await receiver.close();
});

test('a list of the inbox that takes too long says which filter covers too much, or is 503', async () => {
  await anAssistant(stack);
  const owner = await anOperator(stack);
  const slow = {
    errorCode: MAX_TIME_EXPIRED,
    failCommands: ['find'],
    namespace: `${stack.service.mongo.name}.conversations`,
  };
  const problems: string[] = [];

  await withFailPoint(mongod.url, slow, async () => {
    for (const filter of [`search=${randomUUID()}`, 'attribute=plan:pro&channel=api', 'tag=vip'])
      problems.push(problemOf(await owner.get(`/inbox?${filter}`)));
    problems.push(problemOf(await owner.get('/inbox')));
  });

  const refused = ['search', 'attribute', 'tag'].map((field) => `422 validation_failed ${field}`);
  expect(problems).toEqual([...refused, '503 unavailable']);
});

/** Lets each read of a collection take this long while `during` runs. */
const slowReads = (
  collection: string,
  blockTimeMS: number,
  during: Parameters<typeof withFailPoint>[2],
  { service } = stack,
) => {
  const namespace = `${service.mongo.name}.${collection}`;
  return withFailPoint(mongod.url, { failCommands: ['find'], namespace, blockConnection: true, blockTimeMS }, during);
};

test('the erasure of an old conversation does not wait for its long purge', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  await chat({ session_id: randomUUID(), message: 'long ago' });
  const { conversations, mongo } = stack.service;
  const old = { assistantId, since: new Date(Date.now() + 60_000), most: 1 };
  const order: string[] = [];

  await slowReads('messages', 3_000, async (reached) => {
    const read = mongo.collection('messages').findOne();
    await reached();
    await Promise.all([
      read.then(() => order.push('messages read')),
      conversations.eraseUnchanged(old, () => order.push('erased')).then((count) => order.push(`${count} done`)),
    ]);
  });

  expect(order).toEqual(['erased', '1 done', 'messages read']);
});

test('while turns wait for knowledge that takes long to read, the turns of others are answered', async () => {
  const database = new URL(mongod.url);
  database.pathname = '/own'; // a stack empties its database when it closes
  const env = { REDIS_URL: redis.url, MONGODB_URL: database.href, SEMANTIC: 'off', REPLY_CONCURRENCY: '2' };
  const own = await openStack({ env, deliveryWorkers: 0 });
  onTestFinished(own.close);
  const slow = await anAssistant(own);
  const neighbour = await anAssistant(own);
  const order: string[] = [];
  const ask = async (name: string, { chat }: Pick<typeof slow, 'chat'>) => {
    const { status } = await chat({ session_id: randomUUID(), message: 'What are your opening hours?' });
    order.push(`${name} ${status}`);
  };
  await ask('neighbour', neighbour);

  const edit = async (): Promise<void> => {
    await ask('slow', slow);
    // It returns after another read, when no process has the settings of before any more.
    await own.service.assistants.addKnowledge(slow.assistantId, [anEntry({ question: 'What is new?' })]);
  };
  await slowReads('knowledge', 1_000, edit, own);

  const askAll = async (reached: () => Promise<unknown>): Promise<void> => {
    const asked = Array.from({ length: 8 }, () => ask('slow', slow));
    await reached();
    await Promise.all([ask('neighbour', neighbour), ...asked]);
  };
  await slowReads('knowledge', 1_500, askAll, own);

  expect(order).toEqual(['neighbour 200', 'slow 200', 'neighbour 200', ...Array.from({ length: 8 }, () => 'slow 200')]);
});

test('a session whose callers leave is worked on no more at once than one whose callers wait', async () => {
  await anAssistant(stack);
  const owner = await anOperator(stack);
  const ask = (signal: AbortSignal) =>
    fetch(`${stack.url}/operator/v1/session`, { headers: { Cookie: owner.cookie() ?? '' }, signal }).catch(() => null);

  await slowReads('assistants', 1_000, async () => {
    const stop = watchPool(stack.service.aside.mongo);
    await Promise.all(Array.from({ length: 20 }, (_, nth) => ask(AbortSignal.timeout(25 * (nth + 1)))));
    expect(stop()).toBeLessThan(8);
  });
});

test('lists that wait for their turn among those of their assistant take no place for large answers', async () => {
  // All places, one each. After a list, the next one of the assistant waits for half a second.
  const others = await Promise.all(Array.from({ length: 16 }, () => anAssistant(stack, { knowledge: [] })));
  const neighbour = await anAssistant(stack, { knowledge: [] });
  const order: string[] = [];
  const read = async (name: string, { apiKey }: { apiKey: string }, path: string) => {
    const { status } = await request(`${stack.url}/api/v1/${path}`, { bearer: apiKey });
    order.push(`${name} ${status}`);
  };

  await slowReads('conversations', 1_500, async () => {
    const lists = [...others, ...others].map((one) => read('list', one, 'conversations'));
    await eventually(() => expect(order).toHaveLength(16));
    await Promise.all([read('neighbour', neighbour, 'events'), ...lists]);
  });

  expect(order.indexOf('neighbour 200')).toBe(16);
});

test('evaluations that look for real questions in many conversations leave costly reads to others', async () => {
  const owner = await anOperator(stack);
  const order: string[] = [];
  const conversations = stack.service.mongo.collection('conversations');
  const assistants = await Promise.all(Array.from({ length: 4 }, () => anAssistant(stack)));
  for (const { assistantId, chat } of assistants) {
    await chat({ session_id: randomUUID(), message: 'hello' });
    const one = await conversations.findOne({ assistantId });
    const copies = Array.from({ length: 149 }, (_, nth) => ({ ...one, _id: `${String(one?._id)} ${nth}`, outbox: [] }));
    await conversations.insertMany(copies.map((copy) => ({ ...copy, conversationId: randomUUID() })) as never[]);
  }
  const people = await Promise.all(assistants.map(() => anOperator(stack)));
  const neighbour = await anAssistant(stack);

  await slowReads('conversations', 500, async (reached) => {
    const evaluations = people.map(async (person, nth) => {
      const real = { only: 'escalated', limit: 500 };
      const path = `/assistants/${assistants[nth]?.assistantId}/evaluations`;
      order.push(problemOf(await person.post(path, { against: 'live', real })));
    });
    await reached();
    const { status } = await owner.get(`/assistants/${neighbour.assistantId}/overview`);
    order.push(`overview ${status}`);
    await Promise.all(evaluations);
  });

  expect(order).toEqual(['overview 200', ...people.map(() => '422 validation_failed real')]);
});

test('an assistant’s repeated turns are looked for in old messages one at a time', async () => {
  const { apiKey } = await anAssistant(stack);
  const session_id = randomUUID();
  const ask = async (message: string, key: string) => {
    const headers = { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json', 'Idempotency-Key': key };
    const body = JSON.stringify({ session_id, message });
    const answer = await fetch(`${stack.url}/api/v1/chat`, { method: 'POST', headers, body });
    return `${answer.status} ${answer.headers.get('Idempotent-Replayed')}`;
  };
  await ask('old', 'old');
  for (let nth = 0; nth < 40; nth += 1) await ask(`later ${nth}`, randomUUID());

  await slowReads('messages', 200, async () => {
    const begun = performance.now();
    const answers = await Promise.all(Array.from({ length: 3 }, () => ask('old', 'old')));
    // Each is followed by a rest of half a second.
    expect(performance.now() - begun).toBeGreaterThan(3 * 200 + 2 * 450);
    expect(answers).toEqual(answers.map(() => '200 true'));
  });
});

const ANY = 'application/json, text/event-stream';
const WRONG_CALL = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'ask', arguments: {} } };

test.each([
  ['message in OpenAI’s protocol', '/v1/chat/completions', {}],
  ['call of a tool', '/mcp', WRONG_CALL],
])('a %s that is refused waits for its turn among the requests of its assistant', async (_what, path, body) => {
  const { apiKey } = await anAssistant(stack);
  const order: string[] = [];
  const headers = { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json', Accept: ANY };
  const ask = async (name: string, address: string, sent: RequestInit = {}) => {
    await (await fetch(`${stack.url}${address}`, { headers, ...sent })).arrayBuffer();
    order.push(name);
  };

  await slowReads('conversations', 300, async (reached) => {
    const reads = Array.from({ length: 8 }, () => ask('read', `/api/v1/conversations/${randomUUID()}`));
    await reached();
    await Promise.all([ask('refused', path, { method: 'POST', body: JSON.stringify(body) }), ...reads]);
  });

  expect(order.slice(0, 4)).toEqual(['read', 'read', 'read', 'read']);
});

test('an answer whose reads fail after its first piece ends midway, and the process answers on', async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  // Of the first batch of MongoDB, fifty entries, the first piece has a megabyte.
  const large = { answer: 'a'.repeat(3_000), variants: Array.from({ length: 50 }, () => 'b'.repeat(500)) };
  const entries = Array.from({ length: 100 }, (_, nth) => anEntry({ question: `question ${nth}`, ...large }));
  await stack.service.assistants.addKnowledge(assistantId, entries);
  const owner = await anOperator(stack);
  const failing = {
    errorCode: SNAPSHOT_TOO_OLD,
    failCommands: ['getMore'],
    namespace: `${stack.service.mongo.name}.knowledge`,
  };

  await withFailPoint(mongod.url, failing, async () => {
    await expect(owner.get(`/assistants/${assistantId}/knowledge`)).rejects.toThrow('terminated');
  });

  const { status, body } = await owner.get(`/assistants/${assistantId}/knowledge`);
  expect([status, (body as { entries: unknown[] }).entries.length]).toEqual([200, 100]);
});

/** Lets all writes of MongoDB fail with this code while `during` runs. */
const failWrites = (errorCode: number, during: () => Promise<void>): Promise<void> =>
  withFailPoint(mongod.url, { errorCode, failCommands: ['insert', 'update', 'findAndModify'] }, during);

test.each([
  ['a full disk', OUT_OF_DISK_SPACE, 'Free space on the volume'],
  ['a user who may only read', UNAUTHORIZED, 'Grant the user the role readWrite'],
  ['a user whose password has changed', AUTHENTICATION_FAILED, 'Correct both'],
])(
  'MongoDB with %s: 503 and nothing is accepted, the log says what to do once, and a retry succeeds afterwards',
  async (_name, code, hint) => {
    const { apiKey, chat, history } = await anAssistant(stack);
    const session_id = randomUUID();
    const first = await chat({ session_id, message: 'before' });

    await failWrites(code, async () => {
      const body = { session_id, message: 'meanwhile' };
      for (const _ of [1, 2, 3]) {
        const refused = await request(`${stack.url}/api/v1/chat`, { body, bearer: apiKey });
        expect(problemOf(refused)).toBe('503 unavailable');
        expect(refused.headers.get('retry-after')).toBe('1');
      }
      await eventually(() => expect(JSON.stringify(stack.logs)).toContain(`"code":${code}`));
      expect(hintsIn(stack.logs).filter((text) => text.startsWith(hint))).toHaveLength(1);
      const { messages } = (await history(first.body.conversationId)).body;
      expect(messages.map(({ content }) => content)).not.toContain('meanwhile');
    });

    expect((await chat({ session_id, message: 'meanwhile' })).status).toBe(200);
    const { messages } = (await history(first.body.conversationId)).body;
    expect(messages.filter(({ content }) => content === 'meanwhile')).toHaveLength(1);
  },
);

test('a turn whose reply MongoDB does not accept waits for better times, and is then answered', async () => {
  const { chat } = await anAssistant(stack);
  const letGo = hold('in flight');
  const waiting = chat({ session_id: randomUUID(), message: 'in flight' });
  await eventually(() => expect(asked).toContain('in flight'));

  await failWrites(OUT_OF_DISK_SPACE, async () => {
    letGo();
    await eventually(() => {
      const failures = stack.logs.filter(({ msg }) => msg === 'a turn was not answered');
      expect(failures.map(({ level }) => level)).toContain(WARN);
    });
  });

  const { status, body } = await waiting;
  expect([status, body.reply]).toEqual([200, 'echo: in flight']);
});

test('MongoDB without a primary: 503, the log says what to do once, and the service recovers by itself', async () => {
  const { apiKey, chat } = await anAssistant(stack);
  const hint = expect.stringContaining('rs.status() shows a primary') as string;
  const client = await mongoose.mongo.MongoClient.connect(mongod.url);
  // The only member steps down, and does not stand for election again for some seconds.
  await client.db('admin').command({ replSetStepDown: NO_PRIMARY_S, force: true });
  await client.close();

  await eventually(async () => {
    const refused = await request(`${stack.url}/api/v1/chat`, {
      body: { session_id: randomUUID(), message: 'hello' },
      bearer: apiKey,
    });
    expect(problemOf(refused)).toBe('503 unavailable');
    expect(hintsIn(stack.logs)).toContainEqual(hint);
  });

  await eventually(async () => {
    expect((await chat({ session_id: randomUUID(), message: 'hello' })).status).toBe(200);
  });
  expect(hintsIn(stack.logs).filter((text) => text.includes('rs.status()'))).toHaveLength(1);
});
