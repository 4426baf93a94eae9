import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { freePort, type Service, startMongod, startRedis } from '../../scripts/services.ts';
import { openService, type Service as Stores } from '../../src/service.ts';
import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { type ChatBody, type HistoryBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { type Kind, type RealProcess, startRealProcess } from '../support/processes.ts';
import { openReceiver, type Receiver } from '../support/receiver.ts';
import { atPace } from '../support/pace.ts';

// This file has its own services and processes, because it kills them.
let redis: Service;
let mongod: Service;
let env: Record<string, string>;
let stores: Stores;
let closeStores: () => Promise<void>;
const processes: RealProcess[] = [];

const start = async (kind: Kind, port?: number): Promise<RealProcess> => {
  const started = await startRealProcess(kind, env, port);
  processes.push(started);
  return started;
};

beforeAll(async () => {
  [redis, mongod] = await Promise.all([startRedis({ persistent: false }), startMongod()]);
  env = { NODE_ENV: 'test', REDIS_URL: redis.url, MONGODB_URL: mongod.url, WEBHOOK_ALLOW_PRIVATE: 'true' };
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  stores = await openService({ config: readConfig(env), logger, lifecycle, redisRole: 'worker' });
  closeStores = lifecycle.close;
});

afterAll(async () => {
  await Promise.all(processes.map((one) => one.kill()));
  await closeStores();
  await Promise.all([redis.dispose(), mongod.dispose()]);
});

const anAssistantWithReceiver = async () => {
  const { assistantId } = await stores.assistants.createAssistant({ name: 'Faults', sessionLimitPerMinute: 1_000_000 });
  const { apiKey } = await stores.assistants.createApiKey({ assistantId, name: 'k', limitPerMinute: 1_000_000 });
  const receiver = await openReceiver();
  await stores.endpoints.addEndpoint(assistantId, { url: receiver.url });
  return { assistantId, apiKey, receiver };
};

/** A caller that follows the contract: it repeats a request until it has an answer. */
const sayUntilAnswered = async (
  url: () => string,
  apiKey: string,
  body: { session_id: string; message: string },
): Promise<ChatBody> => {
  const until = performance.now() + 60_000;
  for (;;) {
    const answer = await request<ChatBody>(`${url()}/api/v1/chat`, { body, bearer: apiKey }).catch(() => null);
    if (answer?.status === 200) return answer.body;
    if (answer && answer.status < 500) throw new Error(`refused with ${answer.status}`);
    if (performance.now() > until) throw new Error('no answer within 60 s');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

type Load = { answered: Map<string, ChatBody>; done: Promise<void> };

const startLoad = (
  url: () => string,
  apiKey: string,
  { sessions, turns }: { sessions: number; turns: number },
): Load => {
  const answered = new Map<string, ChatBody>();
  const talk = async (): Promise<void> => {
    const session_id = randomUUID();
    for (let turn = 0; turn < turns; turn += 1) {
      const message = `${session_id}#${turn}`;
      answered.set(message, await sayUntilAnswered(url, apiKey, { session_id, message }));
    }
  };
  return { answered, done: Promise.all(Array.from({ length: sessions }, talk)).then(() => undefined) };
};

const expectEachOnce = async (url: string, apiKey: string, { answered }: Load, turns: number): Promise<void> => {
  const ids = new Set([...answered.values()].map(({ conversationId }) => conversationId));
  for (const conversationId of ids) {
    const { body } = await request<HistoryBody>(`${url}/api/v1/conversations/${conversationId}`, { bearer: apiKey });
    const expected = Array.from({ length: turns }, (_, turn) => `${body.sessionId}#${turn}`);
    expect(body.messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(expected);
    const replies = body.messages.filter(({ role }) => role === 'assistant').map(({ messageId }) => messageId);
    expect(replies).toEqual(expected.map((message) => answered.get(message)?.messageId));
  }
};

const expectNoEventTwice = ({ received }: Receiver): void => {
  const ids = received.map(({ headers }) => headers['x-factory-event-id']);
  expect(new Set(ids).size).toBe(ids.length);
};

const count = (load: Load): number => load.answered.size;

test('every turn is answered exactly once while reply worker and API are killed and Redis is wiped under load, twice', async () => {
  const { apiKey, receiver } = await anAssistantWithReceiver();
  const port = await freePort();
  let api = await start('api', port);
  let reply = await start('reply');
  await start('delivery');
  const url = () => `http://127.0.0.1:${port}`;
  const turns = 20;
  const load = startLoad(url, apiKey, { sessions: 10, turns });

  for (let round = 1; round <= 2; round += 1) {
    const progress = async (): Promise<void> => {
      const before = count(load);
      await eventually(() => {
        const now = count(load);
        if (now - before >= 30 || now === 10 * turns) return;
        throw new Error([`${before} turns, then ${now}`, ...processes.map((one) => one.describe())].join('\n'));
      });
    };
    await progress();
    await reply.kill();
    reply = await start('reply');
    await progress();
    await api.kill();
    api = await start('api', port);
    await progress();
    await stores.redis.flushall();
  }
  await load.done;

  await expectEachOnce(url(), apiKey, load, turns);
  await receiver.waitFor((all) => all.length >= 10 * (turns + 1));
  expectNoEventTwice(receiver);
  expect(receiver.received).toHaveLength(10 * (turns + 1));
  await Promise.all(processes.splice(0).map((one) => one.kill('SIGTERM')));
  await receiver.close();
});

test('a reply worker that is stopped for longer than its lease and then continues answers nothing twice', async () => {
  const { apiKey, receiver } = await anAssistantWithReceiver();
  const api = await start('api');
  const stopped = await start('reply');
  await start('delivery');
  const turns = 15;
  const load = startLoad(() => api.url, apiKey, { sessions: 8, turns });
  await eventually(() => expect(count(load)).toBeGreaterThan(20));

  stopped.child.kill('SIGSTOP');
  await start('reply');
  await load.done;
  stopped.child.kill('SIGCONT');
  await eventually(async () => expect((await fetch(`${stopped.url}/readyz`)).ok).toBe(true));

  await expectEachOnce(api.url, apiKey, load, turns);
  await receiver.waitFor((all) => all.length >= 8 * (turns + 1));
  expectNoEventTwice(receiver);
  await Promise.all(processes.splice(0).map((one) => one.kill('SIGTERM')));
  await receiver.close();
});

test('a delivery worker killed mid-send leaves every event with one outcome, and none is received twice', async () => {
  const { assistantId, apiKey, receiver } = await anAssistantWithReceiver();
  const api = await start('api');
  await start('reply');
  let delivery = await start('delivery');
  const turns = 20;
  const load = startLoad(() => api.url, apiKey, { sessions: 8, turns });
  for (let kill = 0; kill < 3; kill += 1) {
    const before = receiver.received.length;
    await eventually(() => expect(receiver.received.length - before >= 20 || count(load) === 8 * turns).toBe(true));
    await delivery.kill();
    delivery = await start('delivery');
  }
  await load.done;

  const total = 8 * (turns + 1);
  await eventually(async () => {
    const rows = await stores.mongo.collection('deliveries').find({ assistantId }).toArray();
    expect(rows.filter(({ outcome }) => ['delivered', 'unknown'].includes(outcome))).toHaveLength(total);
  });
  expectNoEventTwice(receiver);
  // The test waits, because an event is removed from its outbox only a moment after it has ended.
  await eventually(async () => {
    const left = { assistantId, 'outbox.0': { $exists: true } };
    expect(await stores.mongo.collection('conversations').countDocuments(left)).toBe(0);
  });
  await Promise.all(processes.splice(0).map((one) => one.kill('SIGTERM')));
  await receiver.close();
});

test('an unavailable Redis or MongoDB is 503 within a second, and the service recovers by itself', async () => {
  const { apiKey, receiver } = await anAssistantWithReceiver();
  const api = await start('api');
  await start('reply');
  const say = () =>
    request<ChatBody & { error?: { code: string } }>(`${api.url}/api/v1/chat`, {
      body: { session_id: randomUUID(), message: 'hello' },
      bearer: apiKey,
    });
  expect((await say()).status).toBe(200);

  for (const service of [redis, mongod]) {
    await service.kill();
    const times: number[] = [];
    for (let tries = 0; tries < 4; tries += 1) {
      const startedAt = performance.now();
      const refused = await say();
      times.push(performance.now() - startedAt);
      expect(refused).toMatchObject({ status: 503, body: { error: { code: 'unavailable' } } });
      expect(refused.headers.get('retry-after')).toBe('1');
    }
    // The third of the four times is compared, not the slowest, because other test files run on the same machine.
    expect(times.toSorted((a, b) => a - b)[2]).toBeLessThan(atPace(1_000));
    expect((await fetch(`${api.url}/readyz`)).status).toBe(503);
    await service.restart();
    await eventually(async () => expect((await say()).status).toBe(200));
  }
  await Promise.all(processes.splice(0).map((one) => one.kill('SIGTERM')));
  await receiver.close();
});
