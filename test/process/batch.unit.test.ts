import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createBatcher, ItemFailure } from '../../src/platform/process/batch.ts';

const settle = (items: number[], batcher: (item: number) => Promise<number>) =>
  Promise.allSettled(items.map(batcher)).then((all) => all.map(({ status }) => status));

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index);

test('an item that makes its batch throw fails alone', async () => {
  const batches: number[][] = [];
  const batcher = createBatcher(async (items: number[]) => {
    batches.push(items);
    if (items.some((item) => item === 13 || item === 77)) throw new Error('poison');
    return items;
  });

  const statuses = await settle(numbers(100), batcher);

  expect(statuses.flatMap((status, index) => (status === 'rejected' ? [index] : []))).toEqual([13, 77]);
  // A failing batch is halved, because trying item by item would need more batches.
  expect(batches.length).toBeLessThan(30);
});

test('a failure that does not depend on the items is shared and not tried again', async () => {
  let writes = 0;
  const batcher = createBatcher<number, number>(
    async () => {
      writes += 1;
      throw new Error('away');
    },
    { isShared: () => true },
  );

  const statuses = await settle(numbers(50), batcher);

  expect(statuses.every((status) => status === 'rejected')).toBe(true);
  expect(writes).toBe(1);
});

test('a write can report single failed items', async () => {
  const batcher = createBatcher<number, number>(async (items) =>
    items.map((item) => (item === 3 ? new ItemFailure(new Error('refused')) : item)),
  );

  expect(await settle(numbers(5), batcher)).toEqual(['fulfilled', 'fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
});

test('a batch rests for as long as it took, and its items do not wait for that', async () => {
  const [begun, ended]: [number[], number[]] = [[], []];
  const batcher = createBatcher<number, number>(
    async (items) => {
      begun.push(performance.now());
      await sleep(40);
      ended.push(performance.now());
      return items;
    },
    { maxItems: 1, maxInFlight: 1, rests: true },
  );

  const [first, second] = numbers(2).map(batcher);
  await first;
  expect(begun).toHaveLength(1);
  await second;

  expect(begun[1]! - ended[0]!).toBeGreaterThan(0.8 * (ended[0]! - begun[0]!));
});

test('a batch ends before its texts exceed 4 MB, and a longer item goes alone', async () => {
  const batches: number[][] = [];
  const batcher = createBatcher<number, number>(
    async (items) => {
      batches.push(items);
      return items;
    },
    { lengthOf: (item) => (item === 0 ? 5_000_000 : 100_000) },
  );

  await Promise.all(numbers(31).map(batcher));

  expect(batches[0]).toEqual([0]);
  expect(Math.max(...batches.map((batch) => batch.length))).toBe(13);
  expect(batches.flat()).toEqual(numbers(31));
});
