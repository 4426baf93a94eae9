import type { Response } from 'express';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createWaitForNews } from '../../src/web-channel/access.ts';

const WAIT_MS = 25_000;

/** Reads of visitors whose conversations wait for a person. `tookMs`: how long a look takes. */
const someReads = (tookMs = 0) => {
  vi.useFakeTimers();
  const looks = new Map<string, number>();
  const stopping = new AbortController();
  let waiting = 0;
  const find = async (key: string) => {
    const [assistantId = ''] = key.split(' ');
    looks.set(assistantId, (looks.get(assistantId) ?? 0) + 1);
    if (tookMs > 0) await new Promise((resolve) => setTimeout(resolve, tookMs));
    return { seq: 1, status: 'escalated' };
  };
  const waitForNews = createWaitForNews({ find, draining: stopping.signal });
  const known = { after: 1, status: 'escalated', waitMs: WAIT_MS, res: { closed: false } as Response };
  onTestFinished(async () => {
    stopping.abort();
    await vi.advanceTimersByTimeAsync(2 * WAIT_MS);
    vi.useRealTimers();
  });
  return {
    wait: (assistantId: string, reads: number) => {
      for (let nth = 0; nth < reads; nth += 1) {
        waiting += 1;
        void waitForNews({ key: `${assistantId} ${nth}`, assistantId }, known).finally(() => (waiting -= 1));
      }
    },
    /** How often the reads of each assistant look in a second. */
    looksInSecond: async (seconds = 3) => {
      looks.clear();
      await vi.advanceTimersByTimeAsync(seconds * 1_000);
      return Object.fromEntries([...looks].map(([assistantId, count]) => [assistantId, count / seconds]));
    },
    waiting: () => waiting,
    stop: () => stopping.abort(),
  };
};

test('many reads that wait for a person look less often, but every second', async () => {
  const { wait, looksInSecond } = someReads();
  wait('a', 2_000);
  wait('b', 1_000);
  wait('c', 500);
  wait('d', 250);

  const looks = await looksInSecond();

  // 12,500 if each looked every 0.3 s.
  expect(Object.values(looks).reduce((sum, one) => sum + one, 0)).toBeLessThan(5_500);
  expect(looks['a']).toBeGreaterThanOrEqual(2_000);
});

test('few reads that wait for a person look as often as ever, also beside an assistant with many', async () => {
  const { wait, looksInSecond } = someReads();
  wait('few', 10);
  const before = await looksInSecond();
  wait('many', 1_900);

  const beside = await looksInSecond();

  expect(before).toEqual({ few: (10 * 10) / 3 });
  expect(beside['few']).toEqual((10 * 10) / 3);
  expect(beside['many']).toBeLessThan(1_900 / 0.4);
});

test.each([
  [3, 1 / 0.303],
  [15, 1 / 0.765],
  [100, 1 / 1.1],
])('a read whose look takes %i ms waits fifty times as long before the next, at most a second', async (ms, most) => {
  const { wait, looksInSecond } = someReads(ms);
  wait('slow', 10);

  const looks = await looksInSecond(20);

  expect(looks['slow']).toBeGreaterThan(10 * most - 1);
  expect(looks['slow']).toBeLessThan(10 * most + 1);
});

test('a read whose looks are slow ends at its time', async () => {
  const { wait, waiting } = someReads(60);
  wait('slow', 1);

  await vi.advanceTimersByTimeAsync(WAIT_MS - 1);
  const before = waiting();
  await vi.advanceTimersByTimeAsync(100);

  expect([before, waiting()]).toEqual([1, 0]);
});

test('all waits end at once when the process drains', async () => {
  const { wait, waiting, stop } = someReads();
  wait('a', 100);
  await vi.advanceTimersByTimeAsync(1);
  const before = waiting();

  stop();
  await vi.advanceTimersByTimeAsync(0);

  expect([before, waiting()]).toEqual([100, 0]);
});
