/** Waking fewer streams than this again and again costs nothing. */
const MANY = 100;
const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 16_000;
const FORGET_AFTER_MS = 60_000;

type Known = { woken: Set<string>; waitMs: number; until: number; seenAt: number };

/**
 * The backoff of a sweep that finds the same heads of an endpoint's many streams each time, because the endpoint hangs and
 * its slots are full. The sweep wakes them less and less often, so that they do not crowd out the streams of other
 * endpoints, nor pile up as wake-ups.
 */
export const createBackoff = (now: () => number = () => performance.now()) => {
  const known = new Map<string, Known>();

  return {
    /** Endpoints whose streams are not to be woken now. */
    suspended: (): string[] => {
      const time = now();
      for (const [endpointId, { seenAt, waitMs }] of known) {
        if (time - seenAt > FORGET_AFTER_MS + waitMs) known.delete(endpointId);
      }
      return [...known].filter(([, { until }]) => until > time).map(([endpointId]) => endpointId);
    },

    /** These heads are being woken now. True: most of them were woken before, so the endpoint is suspended from now on. */
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
