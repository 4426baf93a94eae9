import { expect, test } from 'vitest';
import { createRandom } from '../../chaos/support/random.ts';
import { createWaitingTurns, type WaitingTurn } from '../../src/turns/overload.ts';
import { atPace } from '../support/pace.ts';

const REPLY_LIMIT_MS = 30_000;
/** How long a turn takes if no other turn waits. */
const WORK_MS = 15;

type Load = {
  seconds: number;
  /** Turns that can be answered in a second, at a time in seconds. */
  capacity: (second: number) => number;
  /** Turns that come in a second. */
  offered: (second: number) => number;
  /** Every such turn is never answered. */
  stuckEvery?: number;
};
type Second = { accepted: number; refused: number; slowestMs: number };

/** Runs a service that answers turns in order, in steps of a millisecond. */
const simulate = ({ seconds, capacity, offered, stuckEvery = Number.POSITIVE_INFINITY }: Load): Second[] => {
  const turns = createWaitingTurns();
  const waiting: { at: number; turn: WaitingTurn }[] = [];
  const stuck: typeof waiting = [];
  const figures: Second[] = [];
  let [due, canAnswer, count] = [0, 0, 0];
  for (let now = 0; now < seconds * 1000; now += 1) {
    const second = Math.floor(now / 1000);
    const figure = (figures[second] ??= { accepted: 0, refused: 0, slowestMs: 0 });
    for (due += offered(second) / 1000; due >= 1; due -= 1) {
      if (turns.refuses(turns.waitMs(now))) figure.refused += 1;
      else {
        figure.accepted += 1;
        count += 1;
        (count % stuckEvery === 0 ? stuck : waiting).push({ at: now, turn: turns.enter(now) });
      }
    }
    for (const some of [waiting, stuck])
      while (some[0] && now - some[0].at > REPLY_LIMIT_MS) some.shift()?.turn.leave();
    for (canAnswer = Math.min(canAnswer + capacity(second) / 1000, 20); canAnswer >= 1; canAnswer -= 1) {
      if (!waiting[0] || now - waiting[0].at < WORK_MS) break;
      figure.slowestMs = Math.max(figure.slowestMs, now - waiting[0].at);
      waiting.shift()?.turn.answered();
    }
  }
  return figures;
};
const sum = (figures: Second[], of: (figure: Second) => number): number =>
  figures.reduce((total, figure) => total + of(figure), 0);

test('with three times as many turns as can be answered, all capacity is used and no accepted turn waits long', () => {
  const figures = simulate({ seconds: 60, capacity: () => 300, offered: () => 900 });

  expect(sum(figures, ({ accepted }) => accepted)).toBeGreaterThan(60 * 300);
  expect(Math.max(...figures.map(({ slowestMs }) => slowestMs))).toBeLessThan(atPace(3_000));
  expect(Math.max(...figures.slice(10).map(({ slowestMs }) => slowestMs))).toBeLessThan(atPace(1_500));
});

test('after an overload, a light load is fast and not refused', () => {
  const offered = (second: number) => (second < 20 ? 900 : 30);

  const after = simulate({ seconds: 30, capacity: () => 300, offered }).slice(20);

  expect(sum(after.slice(1), ({ refused }) => refused)).toBe(0);
  expect(Math.max(...after.slice(5).map(({ slowestMs }) => slowestMs))).toBeLessThan(atPace(100));
});

test.each([3, 10])('turns go on while one in %i is stuck', (stuckEvery) => {
  const figures = simulate({ seconds: 70, capacity: () => 1_000, offered: () => 300, stuckEvery });

  expect(sum(figures, ({ refused }) => refused)).toBe(0);
});

test('a burst is bounded, and is answered inside the reply limit', () => {
  const offered = (second: number) => (second === 0 ? 1_000_000 : 30);

  const [first, ...later] = simulate({ seconds: 20, capacity: () => 300, offered });

  expect(first?.accepted).toBeLessThan(2_500);
  expect(Math.max(...later.map(({ slowestMs }) => slowestMs))).toBeLessThan(atPace(10_000));
  expect(sum(later.slice(-10), ({ refused }) => refused)).toBe(0);
});

test('a stall of 0.9 s is no overload', () => {
  const capacity = (second: number) => (second === 2 ? 60 : 600);

  const figures = simulate({ seconds: 6, capacity, offered: () => 300 });

  expect(sum(figures, ({ refused }) => refused)).toBe(0);
});

test('a stall of 0.7 s at a high rate is no overload', () => {
  const turns = createWaitingTurns();
  const waiting: WaitingTurn[] = [];
  let refused = 0;
  for (let now = 0; now < 5_000; now += 1) {
    const isStalled = now >= 2_000 && now < 2_700;
    if (turns.refuses(turns.waitMs(now))) refused += 1;
    else waiting.push(turns.enter(now));
    for (let count = 0; count < 2 && !isStalled; count += 1) waiting.shift()?.answered();
  }

  expect(refused).toBe(0);
});

test.each([
  ['three seconds', 3],
  ['ten seconds', 10],
  ['longer than callers wait', 40],
])('while no turn is answered for %s, few are accepted, and afterwards all', (_, dead) => {
  const capacity = (second: number) => (second >= 2 && second < 2 + dead ? 0 : 900);

  const figures = simulate({ seconds: 50, capacity, offered: () => 300 });

  expect(sum(figures.slice(3, 2 + dead), ({ accepted }) => accepted)).toBeLessThan(400);
  expect(sum(figures.slice(2 + dead + 2), ({ refused }) => refused)).toBe(0);
});

test('few turns that wait for ever are no overload', () => {
  const turns = createWaitingTurns();
  for (let count = 0; count < 99; count += 1) turns.enter(0);

  expect(turns.refuses(turns.waitMs(REPLY_LIMIT_MS))).toBe(false);
});

test('turns that leave without an answer do not count, however many they are', () => {
  const turns = createWaitingTurns();
  for (let now = 0; now < 10_000; now += 1) {
    turns.enter(now).leave();
    expect(turns.refuses(turns.waitMs(now))).toBe(false);
  }
});

test('after every turn left, in whatever order and way, no turn is refused', () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    const random = createRandom(seed);
    const turns = createWaitingTurns();
    const open: WaitingTurn[] = [];
    const comes = 20 + random.below(60);
    let now = 0;
    for (let step = 0; step < 2_000; step += 1) {
      now += random.below(20);
      if (random.below(100) < comes) {
        if (!turns.refuses(turns.waitMs(now))) open.push(turns.enter(now));
        continue;
      }
      const [turn] = open.splice(random.below(open.length), 1);
      if (random.below(2) === 0) turn?.answered();
      if (random.below(4) > 0) turn?.leave();
      else if (turn) open.push(turn);
    }
    for (const turn of open) turn.leave();

    expect(turns.refuses(turns.waitMs(now)), `seed ${seed}`).toBe(false);
    expect(turns.refuses(turns.waitMs(now + REPLY_LIMIT_MS))).toBe(false);
  }
});
