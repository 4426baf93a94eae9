/** Fewer lines than this cost nothing to ask for again and again. */
const MANY = 100;
const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 16_000;
const FORGET_AFTER_MS = 60_000;

type Known = { asked: Set<string>; waitMs: number; until: number; seenAt: number };

/**
 * For a sweep that meets the same heads of an endpoint's many lines again and again, since whoever works on them has a
 * hanging endpoint's full, or paused, line: it asks for them ever more seldom, so that they neither take the places of
 * other endpoints' lines nor pile up as wake-ups.
 */
export const createPatience = (now: () => number = () => performance.now()) => {
  const known = new Map<string, Known>();

  return {
    /** Endpoints not to be asked for at present. */
    resting: (): string[] => {
      const time = now();
      for (const [endpointId, { seenAt, waitMs }] of known) {
        if (time - seenAt > FORGET_AFTER_MS + waitMs) known.delete(endpointId);
      }
      return [...known].filter(([, { until }]) => until > time).map(([endpointId]) => endpointId);
    },

    /** These heads of its lines are being asked for now. True: they were already, and it rests from here on. */
    note: (endpointId: string, heads: string[]): boolean => {
      const before = known.get(endpointId);
      const again = before ? heads.filter((head) => before.asked.has(head)).length : 0;
      if (heads.length < MANY) {
        known.delete(endpointId);
        return false;
      }
      const unmoved = before !== undefined && again > heads.length / 2;
      const waitMs = unmoved ? Math.min(before.waitMs * 2, LONGEST_WAIT_MS) : FIRST_WAIT_MS / 2;
      const time = now();
      known.set(endpointId, { asked: new Set(heads), waitMs, until: unmoved ? time + waitMs : 0, seenAt: time });
      return unmoved;
    },
  };
};
