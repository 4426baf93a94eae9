import type { Response } from 'express';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createWaitForNews } from '../../src/web-channel/access.ts';

const WAIT_MS = 25_000;

/** Reads of visitors whose conversations wait for a person. */
const someReads = () => {
  vi.useFakeTimers();
  const looks = new Map<string, number>();
  const stopping = new AbortController();
  let waiting = 0;
  const find = async (key: string) => {
    const [assistantId = ''] = key.split(' ');
    looks.set(assistantId, (looks.get(assistantId) ?? 0) + 1);
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
    looksInSecond: async () => {
      looks.clear();
      await vi.advanceTimersByTimeAsync(3_000);
      return Object.fromEntries([...looks].map(([assistantId, count]) => [assistantId, count / 3]));
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

test('all waits end at once when the process drains', async () => {
  const { wait, waiting, stop } = someReads();
  wait('a', 100);
  await vi.advanceTimersByTimeAsync(1);
  const before = waiting();

  stop();
  await vi.advanceTimersByTimeAsync(0);

  expect([before, waiting()]).toEqual([100, 0]);
});
