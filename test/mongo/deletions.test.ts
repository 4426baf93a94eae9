import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { expect, inject, onTestFinished, test } from 'vitest';
import { deleteInBatches } from '../../src/platform/mongo/batches.ts';
import { openMongo } from '../../src/platform/mongo/mongo.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { eventually } from '../support/eventually.ts';

type Stored = { _id: string; holder: string };
/** How many documents a statement deletes, and for how many holders at once. */
const AT_ONCE = 50;
const PLACES = 2;

/** Documents of such holders, so many of each. */
const openDocuments = async (holders: string[], count: number): Promise<mongo.Collection<Stored>> => {
  const connection = await openMongo({ url: inject('mongodbUrl') }, createLogger({ name: 'test', level: 'silent' }));
  const collection = connection.collection(`deleted-${randomUUID()}`) as unknown as mongo.Collection<Stored>;
  onTestFinished(async () => {
    await collection.drop();
    await connection.close();
  });
  const rows = holders.flatMap((holder) => Array.from({ length: count }, () => ({ _id: randomUUID(), holder })));
  await collection.insertMany(rows);
  return collection;
};

test('two holders delete at once, and one with few documents does not wait for those with many', async () => {
  const [many, few] = [['a', 'b', 'c'], 'd'];
  const collection = await openDocuments(many, 4 * AT_ONCE);
  await collection.insertOne({ _id: randomUUID(), holder: few });
  const deleted: { holder: string; count: number }[] = [];
  const running = { count: 0, most: 0 };
  const hold = Promise.withResolvers<void>();

  const remove = (holder: string): Promise<void> => {
    const onDeleted = async (ids: string[]): Promise<void> => {
      running.count += 1;
      running.most = Math.max(running.most, running.count);
      await hold.promise;
      running.count -= 1;
      deleted.push({ holder, count: ids.length });
    };
    return deleteInBatches({ collection, filter: { holder }, holder, onDeleted });
  };
  const all = many.map(remove);
  await eventually(() => expect(running.count).toBe(PLACES));
  all.push(remove(few));
  expect(await collection.countDocuments()).toBe(3 * 4 * AT_ONCE + 1 - PLACES * AT_ONCE);
  hold.resolve();
  await Promise.all(all);

  expect(running.most).toBe(PLACES);
  expect(deleted.findIndex(({ holder }) => holder === few)).toBeLessThan(deleted.length / 2);
  expect(deleted.map(({ count }) => count)).toEqual(deleted.map(({ holder }) => (holder === few ? 1 : AT_ONCE)));
  expect(await collection.countDocuments()).toBe(0);
});

test('each part is followed by a rest, as long as it took', async () => {
  const collection = await openDocuments(['a'], 5 * AT_ONCE);
  const parts: { from: number; to: number }[] = [];
  const onDeleted = async (): Promise<void> => {
    const from = performance.now();
    await sleep(30); // as slow as large documents are
    parts.push({ from, to: performance.now() });
  };

  await deleteInBatches({ collection, filter: { holder: 'a' }, holder: 'a', onDeleted });

  expect(parts).toHaveLength(5);
  // A timer may be a millisecond early, and a rest ends after half a second.
  const rested = parts.slice(1).map(({ from: next }, nth) => {
    const { from, to } = parts[nth]!;
    return next - to - Math.min(500, to - from);
  });
  expect(Math.min(...rested)).toBeGreaterThan(-2);
});
