import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { expect, inject, onTestFinished, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createUpdateBatcher, openMongo } from '../../src/platform/mongo/mongo.ts';
import { eventually } from '../support/eventually.ts';

type Stored = { _id: string; text?: string };
const LARGE_BYTES = 128 * 1024;

test('updates of large documents go in batches of their own, eight at a time, once a write was slow', async () => {
  const connection = await openMongo({ url: inject('mongodbUrl') }, createLogger({ name: 'test', level: 'silent' }));
  const collection = connection.collection(`sizes-${randomUUID()}`) as unknown as mongo.Collection<Stored>;
  onTestFinished(async () => {
    await collection.drop();
    await connection.close();
  });
  const large = Array.from({ length: 20 }, (_, nth) => `large ${nth}`);
  const small = Array.from({ length: 20 }, (_, nth) => `small ${nth}`);
  await collection.insertMany([
    ...large.map((_id) => ({ _id, text: 'x'.repeat(LARGE_BYTES) })),
    ...small.map((_id) => ({ _id, text: 'x'.repeat(LARGE_BYTES / 2) })),
  ]);
  let batches: string[][] = [];
  const write = async (keys: string[]): Promise<string[]> => {
    batches.push(keys);
    await sleep(25); // a slow write
    return keys;
  };
  const update = createUpdateBatcher(collection, write, { keyOf: (key: string) => key });
  const round = async () => {
    batches = [];
    expect(await Promise.all([...large, ...small, 'gone'].map(update))).toEqual([...large, ...small, 'gone']);
    return batches.map((keys) => [keys.filter((key) => large.includes(key)).length, keys.length]);
  };

  expect(await round()).toEqual([[20, 41]]);
  await eventually(async () =>
    expect((await round()).toSorted()).toEqual([
      [0, 21],
      [4, 4],
      [8, 8],
      [8, 8],
    ]),
  );
});
