import mongoose from 'mongoose';
import { expect, inject, onTestFinished, test } from 'vitest';
import { createReader } from '../../src/platform/mongo/mongo.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import { createSlices, workFor } from '../../src/platform/process/slices.ts';

const HOLDERS = 16;
const SLICE_MS = 4;
const ROWS = 40;

const workFully = (ms: number): void => {
  const until = performance.now() + ms;
  while (performance.now() < until);
};

test('a read that many share waits for no slice of the caller that came first, unless its rows are large', async () => {
  const connection = await mongoose.createConnection(inject('mongodbUrl'), { dbName: newToken() }).asPromise();
  onTestFinished(async () => {
    await connection.dropDatabase();
    await connection.destroy();
  });
  const collection = connection.collection<{ _id: string }>('rows');
  const ids = Array.from({ length: ROWS }, (_, nth) => `${nth}`);
  await collection.insertMany(ids.map((_id) => ({ _id })));
  const read = createReader(collection as unknown as mongoose.mongo.Collection<{ _id: string }>, { _id: 1 });

  let slices = 0;
  let isOver = false;
  const compute = (nth: number): Promise<void> =>
    workFor(`holder ${nth % HOLDERS}`, async () => {
      const own = createSlices(0);
      while (!isOver) {
        await own.next();
        workFully(SLICE_MS);
        slices += 1;
      }
    });
  const computing = Promise.all(Array.from({ length: HOLDERS * ROWS }, (_, nth) => compute(nth)));
  const readAll = (): Promise<unknown> => workFor('holder 0', () => Promise.all(ids.map(read)));
  await readAll();
  const before = slices;
  await readAll();
  const during = slices - before;
  isOver = true;
  await computing;

  expect(during).toBeLessThan(HOLDERS);
});
