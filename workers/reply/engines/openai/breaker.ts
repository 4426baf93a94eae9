import { LRUCache } from 'lru-cache';

const OPEN_AFTER = 5;
const REST_MS = 30_000;
/** Addresses are what owners write; of one that is forgotten, the next calls tell again. */
const REMEMBERED = 10_000;

type State = { failures: number; openUntil: number };

/** So many failures in a row and a provider is left alone for a while; then one call tries, and the others wait for it. */
export const createBreaker = ({ now = () => performance.now() }: { now?: () => number } = {}) => {
  const states = new LRUCache<string, State>({ max: REMEMBERED });

  return {
    /** Whether this address may be called now. */
    allows: (address: string): boolean => {
      const state = states.get(address);
      if (!state || state.failures < OPEN_AFTER) return true;
      if (now() < state.openUntil) return false;
      state.openUntil = now() + REST_MS;
      return true;
    },
    succeeded: (address: string): void => {
      states.delete(address);
    },
    failed: (address: string): void => {
      const failures = (states.get(address)?.failures ?? 0) + 1;
      states.set(address, { failures, openUntil: failures >= OPEN_AFTER ? now() + REST_MS : 0 });
    },
  };
};

export type Breaker = ReturnType<typeof createBreaker>;
