import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { expect, inject, onTestFinished, test, vi } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createUpdate, createUpdateBatcher, openMongo } from '../../src/platform/mongo/mongo.ts';
import { eventually } from '../support/eventually.ts';

type Stored = { _id: string; text?: string };
/** An update, as its document and whose that is. */
type Update = { key: string; holder: string };
const LARGE_BYTES = 128 * 1024;

/** A collection with documents of such lengths. */
const openCollection = async (lengths: Record<string, number>): Promise<mongo.Collection<Stored>> => {
  const connection = await openMongo({ url: inject('mongodbUrl') }, createLogger({ name: 'test', level: 'silent' }));
  const collection = connection.collection(`sizes-${randomUUID()}`) as unknown as mongo.Collection<Stored>;
  onTestFinished(async () => {
    await collection.drop();
    await connection.close();
  });
  await collection.insertMany(Object.entries(lengths).map(([_id, length]) => ({ _id, text: 'x'.repeat(length) })));
  return collection;
};

/** Documents of such lengths, and what makes updates of them. A round gives its batches. */
const openDocuments = async (lengths: Record<string, number>) => {
  const collection = await openCollection(lengths);
  let batches: string[][] = [];
  const write = async (updates: Update[]): Promise<string[]> => {
    const keys = updates.map(({ key }) => key);
    batches.push(keys);
    await sleep(25); // a slow write
    return keys;
  };
  const update = createUpdateBatcher(collection, write, { documentOf: ({ key, holder }) => [key, holder] });
  return async (updates: Update[]): Promise<string[][]> => {
    batches = [];
    expect(await Promise.all(updates.map(update))).toEqual(updates.map(({ key }) => key));
    return batches;
  };
};

const named = (name: string, count: number): string[] => Array.from({ length: count }, (_, nth) => `${name} ${nth}`);
const lengthsOf = (keys: string[], length: number): Record<string, number> =>
  Object.fromEntries(keys.map((key) => [key, length]));

test('updates of large documents go in batches of their own, eight at a time, once a write was slow', async () => {
  const [large, small] = [named('large', 20), named('small', 20)];
  const update = await openDocuments({ ...lengthsOf(large, LARGE_BYTES), ...lengthsOf(small, LARGE_BYTES / 2) });
  const round = async () => {
    const batches = await update([...large, ...small, 'gone'].map((key) => ({ key, holder: key })));
    return batches.map((keys) => [keys.filter((key) => large.includes(key)).length, keys.length]);
  };

  expect(await round()).toEqual([[20, 41]]);
  await eventually(async () => {
    expect((await round()).toSorted()).toEqual([
      [0, 21],
      [4, 4],
      [8, 8],
      [8, 8],
    ]);
  });
});

test('other documents of a holder with large ones go apart too, until they are known', async () => {
  const [large, small] = [named('large', 4), named('small', 40)];
  const update = await openDocuments({ ...lengthsOf(large, LARGE_BYTES), ...lengthsOf(small, 1), other: LARGE_BYTES });
  const of = (key: string): Update => ({ key, holder: 'one' });
  const ofOther = (key: string): Update => ({ key, holder: 'another' });
  await update([...large.map(of), ofOther('other')]);
  await eventually(async () => expect((await update([...large.map(of), ofOther('other')])).length).toBeGreaterThan(1));

  const batches = await update([...small.slice(0, 20).map(of), ...small.slice(20).map(ofOther)]);
  const sizes = batches.map(({ length }) => length);
  expect(sizes).toContain(20); // one large document sends no others apart
  expect(sizes.filter((size) => size > 8)).toHaveLength(1);
  await eventually(async () => expect((await update(small.map(of))).map(({ length }) => length)).toEqual([40]));
});

test('the documents of a holder with large ones still go apart after a pause', async () => {
  const large = named('large', 20).map((key) => ({ key, holder: 'one' }));
  const update = await openDocuments(lengthsOf(named('large', 20), LARGE_BYTES));
  const largest = async () => Math.max(...(await update(large)).map(({ length }) => length));
  expect(await largest()).toBe(20);
  await eventually(async () => expect(await largest()).toBeLessThan(9));
  const now = performance.now.bind(performance);
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + 120_000);
  onTestFinished(() => clock.mockRestore());
  await update([{ key: 'other', holder: 'another' }]);

  expect(await largest()).toBeLessThan(9);
});

test('holders take turns with their large documents', async () => {
  const keys = named('large', 40);
  const update = await openDocuments({ ...lengthsOf(keys, LARGE_BYTES), last: LARGE_BYTES });
  const round = () => update([...keys.map((key) => ({ key, holder: 'many' })), { key: 'last', holder: 'one' }]);

  expect(await round()).toHaveLength(1);
  await eventually(async () => {
    const batches = await round();
    expect(batches.length).toBeGreaterThan(5);
    expect(batches.findIndex((batch) => batch.includes('last'))).toBeLessThan(2);
  });
});

test('other updates of large documents are made two at a time, one of each holder, and each rests as long as it took', async () => {
  const large = named('large', 8);
  const update = createUpdate(await openCollection({ ...lengthsOf(large, LARGE_BYTES), small: 1 }));
  const inWork = new Set<string>();
  let most: string[] = [];
  const write = (key: string, holder: string, work = () => sleep(25)) =>
    update([key, holder], async () => {
      inWork.add(key);
      if (inWork.size > most.length) most = [...inWork];
      await work(); // a slow write
      inWork.delete(key);
    });
  const round = async (): Promise<number> => {
    most = [];
    const since = performance.now();
    await Promise.all(large.map((key, nth) => write(key, nth < 6 ? 'many' : key)));
    return performance.now() - since;
  };

  await round();
  expect(most).toEqual(large);
  await eventually(async () => {
    const ms = await round();
    expect(most).toHaveLength(2);
    expect(most).toContain('large 0');
    expect(ms).toBeGreaterThan(6 * 25 + 5 * 25); // six of one holder, and a rest after all but the last
  });

  most = [];
  const all = large.map((key) => write(key, 'many'));
  await write('small', 'another', () => eventually(() => expect(most.toSorted()).toEqual(['large 0', 'small'])));
  await Promise.all(all);
});
