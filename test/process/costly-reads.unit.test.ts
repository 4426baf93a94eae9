import { expect, onTestFinished, test, vi } from 'vitest';
import type { Assistant } from '../../src/assistants/assistant.ts';
import type { KnowledgeEntry } from '../../src/assistants/knowledge/entry.ts';
import { createFindConflicts } from '../../src/assistants/knowledge/search.ts';
import { inParts } from '../../src/platform/mongo/batches.ts';
import { createCostlyReads, createRestedWork, type Within } from '../../src/platform/http/request-slots.ts';

test('many people of one assistant have its share of the costly reads', async () => {
  const costly = createCostlyReads();
  const { signal } = new AbortController();
  const released = Promise.withResolvers<void>();
  let running = 0;
  const theirs = Array.from({ length: 20 }, (_, nth) =>
    costly({ caller: `agent ${nth}`, holder: 'an assistant', tenant: `agent ${nth}`, signal }, async () => {
      running += 1;
      await released.promise;
    }),
  );
  const read = async (): Promise<number> => running;

  const duringOther = await costly({ caller: 'x', holder: 'another', tenant: 'x', signal }, read);
  released.resolve();
  await Promise.all(theirs);

  expect([duringOther, running]).toEqual([2, 20]);
});

test('after a read, only its holder rests, four times as long as it took', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const rested = createRestedWork();
  const { signal } = new AbortController();
  const begun: string[] = [];
  const ended = Promise.withResolvers<void>();
  const read = (name: string) => async (): Promise<void> => {
    begun.push(name);
    await ended.promise;
  };

  const all = ['first', 'second'].map((name) => rested('an assistant', read(name), signal));
  await vi.advanceTimersByTimeAsync(100);
  const other = rested('another', read('other'), signal);
  ended.resolve();
  await all[0];
  await vi.advanceTimersByTimeAsync(399);
  expect(begun).toEqual(['first', 'other']);
  await vi.advanceTimersByTimeAsync(1);

  expect(begun).toEqual(['first', 'other', 'second']);
  await Promise.all([...all, other]);
});

test('a read whose caller leaves is not made', async () => {
  const rested = createRestedWork();
  const left = new AbortController();
  const released = Promise.withResolvers<void>();
  const before = rested('an assistant', () => released.promise, new AbortController().signal);
  const late = rested('an assistant', async () => 'read', left.signal);

  left.abort();

  await expect(late).rejects.toMatchObject({ status: 503 });
  released.resolve();
  await before;
});

test('after a costly read, one of its holder’s places rests as long as the read took', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const costly = createCostlyReads();
  const { signal } = new AbortController();
  const begun: string[] = [];
  const read = (caller: string) =>
    costly({ caller, holder: 'an assistant', tenant: caller, signal }, async () => {
      begun.push(caller);
      await sleepFor(100);
    });
  const sleepFor = (ms: number) => new Promise((resolve) => void setTimeout(resolve, ms));

  const all = ['first', 'second', 'third', 'fourth'].map(read);
  await vi.advanceTimersByTimeAsync(199);
  expect(begun).toEqual(['first', 'second']);
  await vi.advanceTimersByTimeAsync(1);
  expect(begun).toEqual(['first', 'second', 'third', 'fourth']);

  await vi.advanceTimersByTimeAsync(1_000);
  await Promise.all(all);
});

test('the time in which a costly read waits is no part of the rest after it', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const costly = createCostlyReads();
  const { signal } = new AbortController();
  const sleepFor = (ms: number) => new Promise((resolve) => void setTimeout(resolve, ms));
  const read = (holder: string, caller: string, ms: number) =>
    costly({ caller, holder, tenant: caller, signal }, () => sleepFor(ms));
  const long = ['a', 'a', 'b', 'b'].map((holder, nth) => read(holder, `long ${nth}`, 2_000));
  const short = ['first', 'second'].map((caller) => read('c', caller, 5));
  await vi.advanceTimersByTimeAsync(2_020);
  await Promise.all(short);
  let isOver = false;
  const next = read('c', 'third', 5).then(() => (isOver = true));

  await vi.advanceTimersByTimeAsync(20);

  expect(isOver).toBe(true);
  await Promise.all([...long, next]);
});

test('comparisons that wait for each other leave the other costly reads to others', async () => {
  const costly = createCostlyReads();
  const findConflicts = createFindConflicts();
  const { signal } = new AbortController();
  const released = Promise.withResolvers<KnowledgeEntry[]>();
  async function* entries(): AsyncGenerator<KnowledgeEntry[]> {
    yield await released.promise;
  }
  const readerOf = (name: string) => ({ caller: name, holder: name, tenant: name, signal });
  const compare = (name: string) => {
    const inTurn = <Value>(find: () => Promise<Value>, within: Within) => costly(readerOf(name), find, within);
    return findConflicts({ assistantId: name, version: 1 } as Assistant, entries, { inTurn, signal });
  };
  const comparing = ['one', 'two', 'three', 'four'].map(compare);

  const other = costly(readerOf('another'), async () => 'read');
  const first = await Promise.race([other, new Promise((resolve) => void setTimeout(resolve, 500, 'waits'))]);
  released.resolve([]);

  expect(first).toBe('read');
  expect(await Promise.all(comparing)).toEqual([[], [], [], []]);
  await other;
});

test('short reads of one after the other do not wait for many long reads of several others', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const costly = createCostlyReads();
  const { signal } = new AbortController();
  let isOver = false;
  const sleepFor = (ms: number) => new Promise((resolve) => void setTimeout(resolve, ms));
  /** Reads again and again, of eight assistants. */
  const readsLong = (tenant: string, ms: number) =>
    Array.from({ length: 8 }, async (_, nth) => {
      const caller = `${tenant} ${nth}`;
      const read = () => costly({ caller, holder: caller, tenant, signal }, () => sleepFor(ms));
      while (!isOver) await read().catch(() => undefined); // some wait for too long
    });
  const others = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].flatMap((name, nth) => readsLong(name, 1_000 + 70 * nth));
  await vi.advanceTimersByTimeAsync(5_000);

  let done = 0;
  const reads = (async () => {
    for (; done < 20; done += 1) await costly({ caller: 'x', holder: 'x', tenant: 'x', signal }, () => sleepFor(5));
  })();
  await vi.advanceTimersByTimeAsync(20_000);

  // Each waits for one of four reads that take a second, and every fourth turn goes round.
  expect(done).toBe(20);
  isOver = true;
  await vi.advanceTimersByTimeAsync(60_000);
  await Promise.all([...others, reads]);
});

test('small pages are read as one part, for 200 ms or up to a megabyte', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  async function* pagesOf(count: number, ms: number): AsyncGenerator<number[], undefined> {
    for (let nth = 0; nth < count; nth += 1) {
      vi.advanceTimersByTime(ms);
      yield [nth, nth];
    }
  }
  const sizes = async (pages: AsyncGenerator<number[], undefined>, bytes: number) => {
    const read: number[] = [];
    for await (const part of inParts(pages, () => bytes)) read.push(part.length);
    return read;
  };

  expect(await sizes(pagesOf(7, 0), 100)).toEqual([14]);
  expect(await sizes(pagesOf(7, 80), 100)).toEqual([6, 6, 2]);
  expect(await sizes(pagesOf(3, 0), 300_000)).toEqual([4, 2]);
  expect(await sizes(pagesOf(0, 0), 100)).toEqual([]);
});
