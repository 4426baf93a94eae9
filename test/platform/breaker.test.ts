import { describe, expect, it } from 'vitest';
import { createBreaker } from '../../workers/delivery/breaker.ts';

const PAUSE = 30_000;
const REFUSED = { outcome: 'not_sent', errorKind: 'connect' };
const DELIVERED = { outcome: 'delivered', errorKind: null };

const aBreaker = () => {
  const clock = { time: 1000 };
  const breaker = createBreaker({ threshold: 5, pauseMs: PAUSE, now: () => clock.time });
  const record = (times: number, result: { outcome: string; errorKind: string | null }) => {
    for (let nth = 0; nth < times; nth += 1) breaker.record('e', result);
  };
  return { ...breaker, clock, fail: (times: number) => record(times, REFUSED), note: record };
};

describe('a breaker', () => {
  it.each(['dns', 'connect', 'tls'])('pauses after five failures in a row of kind %s', (errorKind) => {
    const { mayStart, note, pausedUntil, clock } = aBreaker();

    note(4, { outcome: 'not_sent', errorKind });
    const before = [mayStart('e'), pausedUntil('e')];
    note(1, { outcome: 'not_sent', errorKind });

    expect(before).toEqual([true, null]);
    expect([mayStart('e'), pausedUntil('e'), mayStart('other')]).toEqual([false, clock.time + PAUSE, true]);
  });

  it.each([
    DELIVERED,
    { outcome: 'rejected', errorKind: null },
    { outcome: 'unknown', errorKind: 'timeout' },
    { outcome: 'unknown', errorKind: 'reset' },
  ])('counts anew after $outcome $errorKind, which reached the receiver', (result) => {
    const { mayStart, fail, note } = aBreaker();

    fail(4);
    note(1, result);
    fail(4);

    expect(mayStart('e')).toBe(true);
  });

  it.each(['address_refused', 'too_late', 'shutdown', 'expired'])('takes no notice of not_sent %s', (errorKind) => {
    const { mayStart, fail, note } = aBreaker();

    note(10, { outcome: 'not_sent', errorKind });
    fail(4);
    const before = mayStart('e');
    note(1, { outcome: 'not_sent', errorKind });
    fail(1);

    expect([before, mayStart('e')]).toEqual([true, false]);
  });

  it('lets one probe out after the pause; its success resumes all', () => {
    const { mayStart, fail, note, clock } = aBreaker();

    fail(5);
    clock.time += PAUSE - 1;
    const during = mayStart('e');
    clock.time += 1;
    const probes = [mayStart('e'), mayStart('e'), mayStart('e')];
    note(1, DELIVERED);

    expect([during, ...probes]).toEqual([false, true, false, false]);
    expect([mayStart('e'), mayStart('e')]).toEqual([true, true]);
  });

  it('pauses again when the probe fails, once', () => {
    const { mayStart, fail, pausedUntil, clock } = aBreaker();

    fail(5);
    clock.time += PAUSE;
    mayStart('e');
    fail(1);

    expect([mayStart('e'), pausedUntil('e')]).toEqual([false, clock.time + PAUSE]);
    clock.time += PAUSE;
    expect([mayStart('e'), mayStart('e')]).toEqual([true, false]);
  });

  it('is not held longer by failures that were already under way', () => {
    const { fail, pausedUntil, clock } = aBreaker();

    fail(5);
    const until = pausedUntil('e');
    clock.time += 4000;
    fail(15);

    expect(pausedUntil('e')).toBe(until);
  });

  it('gives the probe to another when the first ended without connecting, or was never recorded', () => {
    const { mayStart, fail, note, clock } = aBreaker();

    fail(5);
    clock.time += PAUSE;
    const first = mayStart('e');
    note(1, { outcome: 'not_sent', errorKind: 'too_late' });
    const second = mayStart('e');
    clock.time += PAUSE;

    expect([first, second, mayStart('e')]).toEqual([true, true, true]);
  });
});
