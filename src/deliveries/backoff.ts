/** An endpoint with fewer idle streams than this gets no backoff, because waking so few streams again costs little. */
const MANY = 100;
const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 16_000;
const FORGET_AFTER_MS = 60_000;

type Known = { woken: Set<string>; waitMs: number; until: number; seenAt: number };

/**
 * Backoff for endpoints with many streams that make no progress, because the endpoint hangs and its slots are full.
 * Without backoff, every sweep would wake the same streams again. Growing pauses keep these streams from delaying the
 * streams of other endpoints and from filling the queue.
 */
export const createBackoff = (now: () => number = () => performance.now()) => {
  const known = new Map<string, Known>();

  return {
    /** Endpoints whose streams must not be woken now. */
    suspended: (): string[] => {
      const time = now();
      for (const [endpointId, { seenAt, waitMs }] of known) {
        if (time - seenAt > FORGET_AFTER_MS + waitMs) known.delete(endpointId);
      }
      return [...known].filter(([, { until }]) => until > time).map(([endpointId]) => endpointId);
    },

    /**
     * Records the stream heads that a sweep wakes. Returns true if the previous sweep already woke most of these heads;
     * the endpoint is then suspended.
     */
    note: (endpointId: string, heads: string[]): boolean => {
      const before = known.get(endpointId);
      const again = before ? heads.filter((head) => before.woken.has(head)).length : 0;
      if (heads.length < MANY) {
        known.delete(endpointId);
        return false;
      }
      const unmoved = before !== undefined && again > heads.length / 2;
      const waitMs = unmoved ? Math.min(before.waitMs * 2, LONGEST_WAIT_MS) : FIRST_WAIT_MS / 2;
      const time = now();
      known.set(endpointId, { woken: new Set(heads), waitMs, until: unmoved ? time + waitMs : 0, seenAt: time });
      return unmoved;
    },
  };
};
