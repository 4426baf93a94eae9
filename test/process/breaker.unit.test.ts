import { describe, expect, it } from 'vitest';
import { createDeliveryBreaker } from '../../src/events/sending/dispatch.ts';

const PAUSE = 30_000;
const REFUSED = { outcome: 'not_sent', errorKind: 'connect' };
const DELIVERED = { outcome: 'delivered', errorKind: null };

const aBreaker = () => {
  const clock = { time: 1000 };
  const breaker = createDeliveryBreaker({ threshold: 5, pauseMs: PAUSE, now: () => clock.time });
  const record = (times: number, result: { outcome: string; errorKind: string | null }) => {
    for (let nth = 0; nth < times; nth += 1) breaker.record('e', result);
  };
  return { ...breaker, clock, fail: (times: number) => record(times, REFUSED), note: record };
};

describe('a breaker', () => {
  it.each(['dns', 'connect', 'tls'])('pauses after five failures in a row of kind %s', (errorKind) => {
    const { tryAcquire, note, suspendedUntil, clock } = aBreaker();

    note(4, { outcome: 'not_sent', errorKind });
    const before = [tryAcquire('e'), suspendedUntil('e')];
    note(1, { outcome: 'not_sent', errorKind });

    expect(before).toEqual([true, null]);
    expect([tryAcquire('e'), suspendedUntil('e'), tryAcquire('other')]).toEqual([false, clock.time + PAUSE, true]);
  });

  it.each([
    DELIVERED,
    { outcome: 'rejected', errorKind: null },
    { outcome: 'unknown', errorKind: 'timeout' },
    { outcome: 'unknown', errorKind: 'reset' },
  ])('starts counting again after $outcome $errorKind, which reached the receiver', (result) => {
    const { tryAcquire, fail, note } = aBreaker();

    fail(4);
    note(1, result);
    fail(4);

    expect(tryAcquire('e')).toBe(true);
  });

  it.each(['address_refused', 'too_late', 'shutdown', 'expired'])('ignores not_sent %s', (errorKind) => {
    const { tryAcquire, fail, note } = aBreaker();

    note(10, { outcome: 'not_sent', errorKind });
    fail(4);
    const before = tryAcquire('e');
    note(1, { outcome: 'not_sent', errorKind });
    fail(1);

    expect([before, tryAcquire('e')]).toEqual([true, false]);
  });

  it('lets one probe out after the pause, and resumes after its success', () => {
    const { tryAcquire, fail, note, clock } = aBreaker();

    fail(5);
    clock.time += PAUSE - 1;
    const during = tryAcquire('e');
    clock.time += 1;
    const probes = [tryAcquire('e'), tryAcquire('e'), tryAcquire('e')];
    note(1, DELIVERED);

    expect([during, ...probes]).toEqual([false, true, false, false]);
    expect([tryAcquire('e'), tryAcquire('e')]).toEqual([true, true]);
  });

  it('pauses again after one failed probe', () => {
    const { tryAcquire, fail, suspendedUntil, clock } = aBreaker();

    fail(5);
    clock.time += PAUSE;
    tryAcquire('e');
    fail(1);

    expect([tryAcquire('e'), suspendedUntil('e')]).toEqual([false, clock.time + PAUSE]);
    clock.time += PAUSE;
    expect([tryAcquire('e'), tryAcquire('e')]).toEqual([true, false]);
  });

  it('does not extend the pause for failures that were already in flight', () => {
    const { fail, suspendedUntil, clock } = aBreaker();

    fail(5);
    const until = suspendedUntil('e');
    clock.time += 4000;
    fail(15);

    expect(suspendedUntil('e')).toBe(until);
  });

  it('allows another probe when the first ended without connecting or was never recorded', () => {
    const { tryAcquire, fail, note, clock } = aBreaker();

    fail(5);
    clock.time += PAUSE;
    const first = tryAcquire('e');
    note(1, { outcome: 'not_sent', errorKind: 'too_late' });
    const second = tryAcquire('e');
    clock.time += PAUSE;

    expect([first, second, tryAcquire('e')]).toEqual([true, true, true]);
  });
});
