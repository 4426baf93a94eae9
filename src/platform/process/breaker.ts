import { createLru } from './lru.ts';

/** The maximum number of keys in memory. The keys used longest ago are removed. */
const MAX_KEYS = 10_000;

export interface BreakerOptions {
  threshold?: number;
  pauseMs?: number;
  now?: () => number;
}

interface State {
  failures: number;
  suspendedUntil: number | null;
  probeSince: number | null;
}

/**
 * A circuit breaker for each key. After `threshold` failures in a row, the key is suspended. After a pause, one probe
 * at a time is allowed until a probe succeeds. No library is used, because libraries wrap a single call, but a delivery
 * is claimed after its permit is acquired and before its result is recorded.
 */
export type Breaker = {
  /** True when `tryAcquire` would refuse, because the key is suspended or its probe is in flight. Changes no state. */
  isSuspended: (key: string) => boolean;

  /**
   * Returns true as a permit. The result of the permitted call must be recorded. After the pause, the first permit
   * for a suspended key is its probe.
   */
  tryAcquire: (key: string) => boolean;

  /** Releases a permit without a result, so that another probe can be made. */
  release: (key: string) => void;

  succeeded: (key: string) => void;
  failed: (key: string) => void;

  /** Suspends the key immediately, without counting a failure. */
  suspend: (key: string) => void;

  /** The end of the pause as a time of the clock `now`, or null when the key is not suspended. */
  suspendedUntil: (key: string) => number | null;

  suspended: () => string[];
};

export const createBreaker = ({
  threshold = 5,
  pauseMs = 30_000,
  now = () => performance.now(),
}: BreakerOptions = {}): Breaker => {
  const states = createLru<State>({ most: MAX_KEYS });

  const isSuspended = (key: string): boolean => {
    const state = states.get(key);
    if (!state || state.suspendedUntil === null) return false;
    const time = now();
    // A probe that never reports a result must not suspend the key for ever, so it counts only for the length of a
    // pause.
    return time < state.suspendedUntil || (state.probeSince !== null && time - state.probeSince < pauseMs);
  };

  return {
    isSuspended,

    tryAcquire: (key) => {
      if (isSuspended(key)) return false;
      const state = states.get(key);
      if (state && state.suspendedUntil !== null) state.probeSince = now();
      return true;
    },

    release: (key) => {
      const state = states.get(key);
      if (state) state.probeSince = null;
    },

    succeeded: (key) => void states.delete(key),

    failed: (key) => {
      const state = states.get(key) ?? { failures: 0, suspendedUntil: null, probeSince: null };
      states.set(key, state);
      state.failures += 1;
      // Failures of requests that began before the pause do not extend the pause.
      const isWaiting = state.suspendedUntil !== null && state.probeSince === null;
      if (isWaiting || state.failures < threshold) return;
      state.suspendedUntil = now() + pauseMs;
      state.probeSince = null;
    },

    suspend: (key) => {
      const failures = states.get(key)?.failures ?? 0;
      states.set(key, { failures, suspendedUntil: now() + pauseMs, probeSince: null });
    },

    suspendedUntil: (key) => {
      const until = states.get(key)?.suspendedUntil ?? null;
      return until !== null && until > now() ? until : null;
    },

    suspended: () => [...states.keys()].filter(isSuspended),
  };
};
