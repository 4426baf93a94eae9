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
    expect.arrayContaining(['by_change', 'outbox_endpoints', 'outbox_full', 'waiting_heads']),
  );
  expect(stack.logs.filter(({ level }) => Number(level) >= WARN)).toEqual([]);
});
