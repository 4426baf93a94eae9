import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Service, startRedis } from '../../scripts/services.ts';
import { runAdmin } from '../support/admin.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { failureOfStart } from '../support/failed-start.ts';
import { problemOf } from '../support/problem.ts';
import { openReceiver } from '../kit/receiver.ts';
import { hintsIn, newEnvironment, openStack, type Stack } from '../support/stack.ts';

const PASSWORD = 'a-password-of-this-test';

let redis: Service;
let admin: Redis;
let stack: Stack;
beforeAll(async () => {
  redis = await startRedis();
  admin = new Redis(redis.url);
  stack = await openStack({ env: { REDIS_URL: redis.url } });
});
afterAll(async () => {
  await stack.close();
  admin.disconnect();
  await redis.dispose();
});

const withUser = (address: string, user: string): string => address.replace('://', `://${user}@`);

test('wrong credentials at the start: the process and the doctor say what to do, and no password is printed', async () => {
  const env = newEnvironment();
  await admin.config('SET', 'requirepass', PASSWORD);
  try {
    const wrongMongo = { ...env, MONGODB_URL: withUser(env['MONGODB_URL'] ?? '', `nobody:${PASSWORD}`) };
    const noPassword = { ...env, REDIS_URL: redis.url };
    const wrongPassword = { ...env, REDIS_URL: withUser(redis.url, `:${PASSWORD}-not`) };
    const cases: [Record<string, string>, string][] = [
      [wrongMongo, 'Hint: Correct both, or add authSource=admin'],
      [noPassword, 'Hint: Put it into REDIS_URL'],
      [wrongPassword, 'Hint: Correct both in REDIS_URL'],
    ];
    const both = { ...wrongMongo, ...wrongPassword, MONGODB_URL: wrongMongo.MONGODB_URL };
    const doctor = runAdmin(both, ['doctor']);
    const start = async ([given, hint]: (typeof cases)[number]) => {
      const printed = await failureOfStart(given);
      expect(printed).toContain(hint);
      expect(printed).not.toContain(PASSWORD);
    };
    await Promise.all(cases.map(start));
    const { status, stdout } = await doctor;
    expect(status).toBe(1);
    expect(stdout).toContain('Correct both, or add authSource=admin');
    expect(stdout).toContain('Correct both in REDIS_URL');
    expect(stdout).not.toContain(PASSWORD);
  } finally {
    await admin.config('SET', 'requirepass', '');
  }
});

/** What Redis does from one moment to the next, and how it is undone. */
const changes: [string, string, () => Promise<unknown>, () => Promise<unknown>][] = [
  [
    'asks for a password',
    'Put it into REDIS_URL',
    async () => {
      await admin.config('SET', 'requirepass', PASSWORD);
      await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    },
    () => admin.config('SET', 'requirepass', ''),
  ],
  [
    'becomes a replica',
    'Name the master',
    () => admin.call('REPLICAOF', '127.0.0.1', '1'),
    () => admin.call('REPLICAOF', 'NO', 'ONE'),
  ],
];

test.each(changes)(
  'Redis %s while the service runs: 503, the log says what to do once, and the service recovers without a restart',
  async (_what, hint, change, undo) => {
    const { apiKey, chat } = await anAssistant(stack);
    expect((await chat(aTurn())).status).toBe(200);

    await change();
    try {
      await eventually(async () => {
        const refused = await request(`${stack.url}/api/v1/chat`, { body: aTurn(), bearer: apiKey });
        expect(problemOf(refused)).toBe('503 unavailable');
        expect(hintsIn(stack.logs).filter((text) => text.startsWith(hint))).toHaveLength(1);
      });
    } finally {
      await undo();
    }

    await eventually(async () => expect((await chat(aTurn())).status).toBe(200));
    expect(hintsIn(stack.logs).filter((text) => text.startsWith(hint))).toHaveLength(1);
  },
);

test('Redis forbids its channels while the service runs: turns are answered, and replies are heard again afterwards', async () => {
  const { chat } = await anAssistant(stack);
  const channels = async () => ((await admin.pubsub('CHANNELS', '*:replies:*')) as string[]).toSorted();
  const before = await channels();

  await admin.call('ACL', 'SETUSER', 'default', 'resetchannels');
  try {
    const hint = expect.stringMatching(/^Allow it all commands, keys and channels/);
    await eventually(() => expect(hintsIn(stack.logs)).toContainEqual(hint));
    expect((await chat(aTurn())).status).toBe(200);
  } finally {
    await admin.call('ACL', 'SETUSER', 'default', 'allchannels');
  }

  await eventually(async () => expect(await channels()).toEqual(before));
  expect(before).toHaveLength(2);
});

test('a worker with a wrong ENCRYPTION_KEY leaves events to the others, and its log says what to do', async () => {
  const timing = { sweepEveryMs: 300, eventStaleMs: 500 };
  const right = await openStack({ deliveryWorkers: 0, timing });
  const ENCRYPTION_KEY = Buffer.alloc(32, 'another key').toString('base64');
  const wrong = await openStack({ env: { ...right.env, ENCRYPTION_KEY }, replyWorkers: 0, timing });
  const receiver = await openReceiver();
  const { assistantId, chat } = await anAssistant(right);
  await right.service.endpoints.addEndpoint(assistantId, { url: receiver.url });

  expect((await chat(aTurn())).status).toBe(200);
  await eventually(() => expect(hintsIn(wrong.logs)).toEqual([expect.stringMatching(/^Add the key /)]));
  expect(receiver.received).toEqual([]);
  await right.startDeliveryWorker();

  await receiver.waitFor((received) => received.length >= 2);
  await wrong.close();
  await right.close();
  await receiver.close();
});
