import { setImmediate as settled } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import {
  createSlots,
  LEAST_TIME_FIRST,
  oneAtLeast,
  oneEach,
  UNBOUNDED,
  whatRemains,
} from '../../src/platform/process/slots.ts';

test('holders that take all slots they get, one after the other, leave one for each that has none', () => {
  const slots = createSlots(whatRemains(256));
  for (let nth = 0; nth < 16; nth += 1) {
    for (let before = -1; before < slots.inUse; ) {
      before = slots.inUse;
      void slots.acquire(`greedy ${nth}`);
    }
  }
  const taken = slots.inUse;

  for (let nth = 0; nth < 50; nth += 1) void slots.acquire(`other ${nth}`);

  expect(taken).toBeGreaterThan(180);
  expect(slots.inUse - taken).toBe(50);
  slots.close();
});

test('a holder without a slot gets one at once, although sixteen others have all', async () => {
  const slots = createSlots(oneAtLeast(16));
  for (let nth = 0; nth < 16; nth += 1) for (let own = 0; own < 4; own += 1) void slots.acquire(`greedy ${nth}`);

  const slot = await slots.acquire('other');

  expect(slot?.hasWaited).toBe(false);
  expect(slots.inUse).toBe(12 + 2 + 12 + 1); // of three, of the fourth, of those who came late, and of the other
  slots.close();
});

const times = (count: number, text: string): string[] => Array.from({ length: count }, () => text);

/** Slots that are all taken. `waits`: how many requests of each holder wait. */
const takenSlots = (bounds?: { most: number; total: number }) => {
  const slots = createSlots(() => false, bounds);
  const waits = new Map<string, number>();
  const add = (holder: string, change: number) => waits.set(holder, (waits.get(holder) ?? 0) + change);
  const ask = (holder: string, count: number): void => {
    for (let nth = 0; nth < count; nth += 1) {
      add(holder, 1);
      void slots.acquire(holder).then(() => add(holder, -1));
    }
  };
  return { slots, waits, ask, total: () => [...waits.values()].reduce((sum, count) => sum + count, 0) };
};

test('as many requests wait as the total, however many holders come one after the other, and all have their share', async () => {
  const { slots, waits, ask, total } = takenSlots();
  const seen = [];

  for (let nth = 1; nth <= 160; nth += 1) {
    ask(`holder ${nth}`, 2_000);
    await settled();
    seen.push(total());
  }

  expect(seen.slice(0, 20)).toEqual(Array.from({ length: 20 }, (_, nth) => (nth + 1) * 1_000));
  expect(Math.max(...seen)).toBe(20_000);
  expect(new Set(waits.values())).toEqual(new Set([20_000 / 160]));
  expect(slots.saturated()).toHaveLength(160);
  slots.close();
});

test('a holder with few requests has them beside others that fill the total, until more holders wait than that', async () => {
  const { slots, waits, ask, total } = takenSlots({ most: 10, total: 10 });
  ask('greedy', 10);
  for (const holder of ['one', 'other', 'third']) ask(holder, 3);
  await settled();
  const shared = [...waits.values()];

  for (let nth = 1; nth <= 10; nth += 1) ask(`late ${nth}`, 1);
  await settled();

  expect(Math.min(...shared)).toBe(2);
  expect(shared.reduce((sum, count) => sum + count, 0)).toBe(10);
  expect([total(), ...waits.values()]).toEqual([10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
  slots.close();
});

test('a request that leaves or gets its slot makes room, and one that was refused leaves nothing', async () => {
  const slots = createSlots(oneEach(1), { most: 4, total: 4 });
  const taken = await slots.acquire('first');
  const leaving = new AbortController();
  const answers: string[] = [];
  const ask = (holder: string, signal?: AbortSignal) =>
    void slots.acquire(holder, signal && { signal }).then(
      (slot) => answers.push(`${holder} ${slot ? 'has a slot' : 'is refused'}`),
      () => answers.push(`${holder} left`),
    );
  for (const signal of [undefined, undefined, undefined, leaving.signal]) ask('greedy', signal);

  ask('late');
  await settled();
  leaving.abort(); // it was refused before
  taken?.release();
  ask('late');
  await settled();

  expect(answers).toEqual(['greedy is refused', 'greedy has a slot']);
  slots.close();
  await settled();
  expect(answers.slice(2).toSorted()).toEqual([...times(2, 'greedy is refused'), ...times(2, 'late is refused')]);
});

test('any number may wait without bounds, and a request is told that it waits', async () => {
  const slots = createSlots(oneEach(1), UNBOUNDED);
  const told: string[] = [];
  const ask = (holder: string) => void slots.acquire(holder, { onWait: () => told.push(holder) });

  ask('first');
  for (let nth = 0; nth < 30_000; nth += 1) ask('other');

  expect(told).toHaveLength(30_000);
  expect(told).not.toContain('first');
  expect(slots.saturated()).toEqual([]);
  slots.close();
});

test('a holder with little work waits for a piece of work or two, however many always have long ones', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const slots = createSlots(oneEach(1), LEAST_TIME_FIRST);
  const order: string[] = [];
  const work = async (holder: string, ms: number): Promise<void> => {
    const slot = await slots.acquire(holder);
    order.push(holder);
    vi.advanceTimersByTime(ms);
    slot?.release();
  };
  const greedy = Array.from({ length: 16 }, (_, nth) => `greedy ${nth}`);
  const round = () => greedy.map((holder) => work(holder, 5_000));
  await Promise.all(round());
  order.length = 0;

  const all = round();
  const little: number[] = [];
  for (let nth = 0; nth < 3; nth += 1) {
    const before = order.length;
    await work('little', 100);
    little.push(order.length - before);
  }
  await Promise.all(all);

  expect(Math.max(...little)).toBeLessThanOrEqual(3);
  expect(new Set(order)).toEqual(new Set([...greedy, 'little']));
});

test('what is expected to take longer comes later, and also has its turn', async () => {
  const slots = createSlots(oneEach(1), LEAST_TIME_FIRST);
  const order: string[] = [];
  const work = async (holder: string, expectedMs: number): Promise<void> => {
    const slot = await slots.acquire(holder, { expectedMs });
    await settled();
    order.push(holder);
    slot?.release();
  };

  await Promise.all([work('running', 0), work('long', 1e9), ...['a', 'b', 'c', 'd', 'e'].map((one) => work(one, 1e6))]);

  expect(order.slice(0, 2)).toEqual(['running', 'a']);
  expect(order.indexOf('long')).toBe(4);
});
