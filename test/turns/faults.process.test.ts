import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Service, startMongod, startRedis } from '../../scripts/services.ts';
import { anAssistant, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { type Kind, type RealProcess, startRealProcess } from '../kit/processes.ts';
import {
  countOf,
  expectAllEventsEnded,
  expectEachOnce,
  expectNoEventTwice,
  type Load,
  startLoad,
} from '../support/load.ts';
import { openReceiver } from '../kit/receiver.ts';
import { atPace } from '../support/pace.ts';
import { QUICK } from '../support/quick.ts';
import { longTest, sized } from '../support/size.ts';
import { openStack, type Stack } from '../support/stack.ts';

// This file has its own services and processes, because it kills them. The stack survives, and does what they leave.
let redis: Service;
let mongod: Service;
let stack: Stack;
const processes: RealProcess[] = [];

const start = async (kind: Kind): Promise<RealProcess> => {
  const started = await startRealProcess(kind, stack.env);
  processes.push(started);
  return started;
};

beforeAll(async () => {
  [redis, mongod] = await Promise.all([startRedis({ persistent: false }), startMongod()]);
  stack = await openStack({ env: { REDIS_URL: redis.url, MONGODB_URL: mongod.url }, timing: QUICK });
});

afterAll(async () => {
  await Promise.all(processes.map((one) => one.kill()));
  await stack.close();
  await Promise.all([redis.dispose(), mongod.dispose()]);
});

const anAssistantWithReceiver = async () => {
  const { assistantId, apiKey } = await anAssistant(stack, { knowledge: [] }); // an unsure answer would hand over
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  return { assistantId, apiKey, receiver };
};

const expectEachAnsweredOnce = (apiKey: string, load: Load, turns: number): Promise<void> =>
  expectEachOnce({ url: stack.url, apiKey, load, turns });

test('every turn is answered exactly once while reply worker and API are killed and Redis is wiped under load', async () => {
  const { apiKey, receiver } = await anAssistantWithReceiver();
  const { sessions, turns, step } = sized({
    everyday: { sessions: 6, turns: 10, step: 12 },
    long: { sessions: 10, turns: 60, step: 20 },
  });
  let [api, reply] = await Promise.all([start('api'), start('quickReply')]);
  let { url } = api;
  const load = startLoad(apiKey, { sessions, turns, url: () => url });

  for (let round = 1; ; round += 1) {
    const progress = async (): Promise<void> => {
      const before = countOf(load);
      await eventually(() => {
        const now = countOf(load);
        if (now - before >= step || now === sessions * turns) return;
        throw new Error([`${before} turns, then ${now}`, ...processes.map((one) => one.describe())].join('\n'));
      });
    };
    await progress();
    await reply.kill();
    await progress();
    await api.kill();
    ({ url } = stack);
    await progress();
    await stack.service.redis.flushall();
    if (round === sized({ everyday: 1, long: 3 })) break;
    [api, reply] = await Promise.all([start('api'), start('quickReply')]);
    ({ url } = api);
  }
  await load.done;

  await expectEachAnsweredOnce(apiKey, load, turns);
  await receiver.waitFor((all) => all.length >= sessions * (turns + 1));
  expectNoEventTwice(receiver);
  expect(receiver.received).toHaveLength(sessions * (turns + 1));
  await receiver.close();
});

longTest(
  'a reply worker that is stopped for longer than its lease and then continues answers nothing twice',
  async () => {
    const { apiKey, receiver } = await anAssistantWithReceiver();
    const stopped = await start('quickReply');
    const turns = 15;
    const load = startLoad(apiKey, { sessions: 8, turns, url: () => stack.url });
    await eventually(() => expect(countOf(load)).toBeGreaterThan(20));

    stopped.child.kill('SIGSTOP');
    await load.done;
    stopped.child.kill('SIGCONT');
    await eventually(async () => expect((await fetch(`${stopped.url}/readyz`)).ok).toBe(true));

    await expectEachAnsweredOnce(apiKey, load, turns);
    await receiver.waitFor((all) => all.length >= 8 * (turns + 1));
    expectNoEventTwice(receiver);
    await stopped.kill('SIGTERM');
    await receiver.close();
  },
);

test('a delivery worker killed mid-send leaves every event with one outcome, and none is received twice', async () => {
  const { assistantId, apiKey, receiver } = await anAssistantWithReceiver();
  const turns = sized({ everyday: 6, long: 30 });
  let delivery = await start('delivery');
  const load = startLoad(apiKey, { sessions: 8, turns, url: () => stack.url });
  for (let kill = 1; ; kill += 1) {
    const before = receiver.received.length;
    await eventually(() => expect(receiver.received.length - before >= 20 || countOf(load) === 8 * turns).toBe(true));
    await delivery.kill();
    if (kill === sized({ everyday: 1, long: 3 })) break;
    delivery = await start('delivery');
  }
  await load.done;

  await expectAllEventsEnded(stack, { assistantId, receiver, total: 8 * (turns + 1) });
  await receiver.close();
});

test('an unavailable Redis or MongoDB is 503 within a second, and the service recovers by itself', async () => {
  const { apiKey, receiver } = await anAssistantWithReceiver();
  const say = () =>
    request<ChatBody & { error?: { code: string } }>(`${stack.url}/api/v1/chat`, {
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
    expect((await fetch(`${stack.url}/readyz`)).status).toBe(503);
    await service.restart();
    await eventually(async () => expect((await say()).status).toBe(200));
  }
  await receiver.close();
});
