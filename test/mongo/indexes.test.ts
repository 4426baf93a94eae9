import { createConnection } from 'mongoose';
import { expect, onTestFinished, test } from 'vitest';
import { sized } from '../support/size.ts';
import { newEnvironment, openStack } from '../support/stack.ts';

const APIS_AT_ONCE = sized({ everyday: 3, long: 8 });
const WARN = 40;

test('processes that start together build the indexes of a new database, and indexes of others stay', async () => {
  const env = newEnvironment();
  const database = await createConnection(env['MONGODB_URL']!).asPromise();
  onTestFinished(() => database.close());
  await database.collection('deliveries').createIndex({ assistantId: 1 }, { name: 'monthly_report' });
  const stack = await openStack({ env, replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(() => stack.close());

  await Promise.all(Array.from({ length: APIS_AT_ONCE }, () => stack.startApi()));

  const namesOn = async (collection: string) =>
    (await database.collection(collection).indexes()).map(({ name }) => name);
  expect(await namesOn('deliveries')).toEqual(expect.arrayContaining(['monthly_report', 'failures', 'claimedAt_1']));
  expect(await namesOn('conversations')).toEqual(
    expect.arrayContaining(['by_change', 'outbox_endpoints', 'outbox_full', 'heads_by_assistant']),
  );
  expect(stack.logs.filter(({ level }) => Number(level) >= WARN)).toEqual([]);
});

test('a start makes an index that somebody dropped, also if the list of another process stands', async () => {
  const env = newEnvironment();
  const stack = await openStack({ env, replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(() => stack.close());
  const { mongo } = stack.service;
  const dropAndStart = async (collection: string, name: string) => {
    await mongo.collection(collection).dropIndex(name);
    await stack.startApi();
    expect((await mongo.collection(collection).indexes()).map((index) => index.name)).toContain(name);
  };

  await dropAndStart('deliveries', 'failures');
  await dropAndStart('audit', (await mongo.collection('audit').indexes())[1]?.name ?? '');
  await dropAndStart('conversations', 'heads_by_assistant');
});

test('a start with all indexes asks for none', async () => {
  const stack = await openStack({ env: newEnvironment(), replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(() => stack.close());
  const { mongo } = stack.service;
  await stack.startApi();
  await mongo.db?.command({ profile: 2 });

  await stack.startApi();
  await stack.startReplyWorker();

  const asked = await mongo.collection('system.profile').countDocuments({ 'command.createIndexes': { $exists: true } });
  expect(asked).toBe(0);
  expect(await mongo.collection('system.profile').countDocuments({ ns: /built$/ })).toBeGreaterThan(0);
});
