import { LRUCache } from 'lru-cache';

/** One that is forgotten, or removed, would otherwise stay for as long as the process. */
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
 * A circuit breaker for each key: so many failures in a row suspend it, then one probe at a time goes out until one
 * succeeds. A permit is taken and recorded apart, which the known libraries do not allow: they wrap one call, and between
 * the two a delivery is claimed, possibly by another process.
 */
export const createBreaker = ({
  threshold = 5,
  pauseMs = 30_000,
  now = () => performance.now(),
}: BreakerOptions = {}) => {
  const states = new LRUCache<string, State>({ max: MAX_KEYS });

  /** `tryAcquire` would refuse: the key is suspended, or its probe is in flight. Unlike that, asking changes nothing. */
  const isSuspended = (key: string): boolean => {
    const state = states.get(key);
    if (!state || state.suspendedUntil === null) return false;
    const time = now();
    // A probe that was never recorded must not suspend the key for ever.
    return time < state.suspendedUntil || (state.probeSince !== null && time - state.probeSince < pauseMs);
  };

  return {
    isSuspended,

    /** True is a permit: of a suspended key, the first to ask after the pause is the probe. Record how it went. */
    tryAcquire: (key: string): boolean => {
      if (isSuspended(key)) return false;
      const state = states.get(key);
      if (state && state.suspendedUntil !== null) state.probeSince = now();
      return true;
    },

    /** Gives back a permit from which nothing was learnt: the probe is still to be made. */
    release: (key: string): void => {
      const state = states.get(key);
      if (state) state.probeSince = null;
    },

    succeeded: (key: string): void => void states.delete(key),

    failed: (key: string): void => {
      const state = states.get(key) ?? { failures: 0, suspendedUntil: null, probeSince: null };
      states.set(key, state);
      state.failures += 1;
      // What was already in flight when the pause began does not lengthen it.
      const isWaiting = state.suspendedUntil !== null && state.probeSince === null;
      if (isWaiting || state.failures < threshold) return;
      state.suspendedUntil = now() + pauseMs;
      state.probeSince = null;
    },

    /** Suspends it without a failure. */
    suspend: (key: string): void => {
      const failures = states.get(key)?.failures ?? 0;
      states.set(key, { failures, suspendedUntil: now() + pauseMs, probeSince: null });
    },

    /** On `now`'s clock; null when the key is not suspended. */
    suspendedUntil: (key: string): number | null => {
      const until = states.get(key)?.suspendedUntil ?? null;
      return until !== null && until > now() ? until : null;
    },

    suspended: (): string[] => [...states.keys()].filter(isSuspended),
  };
};

export type Breaker = ReturnType<typeof createBreaker>;
