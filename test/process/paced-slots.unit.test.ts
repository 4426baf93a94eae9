import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createPaces, type Paces } from '../../src/platform/process/paced-slots.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

const [FAST, SLOW, HANGING] = [20, 1_200, 9_000];

/** The holder does work of these lengths, one after the other. How it counts after each. */
const paceAfter = async (paces: Paces, ...lengths: number[]): Promise<string[]> => {
  const seen: string[] = [];
  for (const ms of lengths) {
    const done = paces.watch('one', new Promise((resolve) => setTimeout(resolve, ms)));
    await vi.advanceTimersByTimeAsync(ms);
    await done;
    seen.push(paces.of('one'));
  }
  return seen;
};
const times = (count: number, ms: number): number[] => Array.from({ length: count }, () => ms);
const aHolder = () => createPaces({ slowMs: 1_000, hangsMs: 3_000 });

test('a holder is slow until ten pieces of work in a row were fast, however often it was slow before', async () => {
  const paces = aHolder();

  for (let time = 0; time < 5; time += 1) {
    const seen = await paceAfter(paces, ...times(3, SLOW), ...times(10, FAST));
    expect(seen).toEqual([...times(12, 0).map(() => 'slow'), 'fast']);
  }
});

test('a holder that hangs is slow after ten shorter pieces of work, and after twice as many each time', async () => {
  const paces = aHolder();

  for (const needed of [10, 20, 40]) {
    const seen = await paceAfter(paces, HANGING, HANGING, ...times(needed, SLOW));
    expect(seen).toEqual([...times(needed + 1, 0).map(() => 'hanging'), 'slow']);
  }
});

test('work counts as soon as it has taken too long', async () => {
  const paces = aHolder();
  void paces.watch('one', new Promise(() => undefined));
  const seen = [];
  for (const ms of [999, 1, 1_999, 1]) {
    await vi.advanceTimersByTimeAsync(ms);
    seen.push(paces.of('one'));
  }
  expect([seen, paces.slow()]).toEqual([['fast', 'slow', 'slow', 'hanging'], ['one']]);
});

test('work is not slow because the process stood still', async () => {
  const paces = aHolder();
  void paces.watch('one', new Promise(() => undefined));
  const begun = performance.now();
  vi.spyOn(performance, 'now').mockReturnValue(begun + 20_000);

  await vi.advanceTimersByTimeAsync(HANGING);

  expect(paces.of('one')).toBe('fast');
});
