/** Lines of one endpoint that may wait in memory for a slot; what does not fit stays in MongoDB, for a sweep to find. */
const WAITING_MAX = 1_000;
/** Of all endpoints together: beyond it, each may only hold its share. */
const WAITING_TOTAL = 20_000;

/**
 * How many sends may be under way, to one endpoint and in all; asked for before the claim, so that what waits is still
 * unclaimed. Endpoints take turns, so one with a long line does not hold up the others; and once half of all slots are
 * taken an endpoint may not hold more than its share, so that many hanging ones leave room for those that answer.
 */
export const createSlots = ({ perEndpoint, total }: { perEndpoint: number; total: number }) => {
  const active = new Map<string, number>();
  const waiting = new Map<string, ((granted: boolean) => void)[]>();
  let inUse = 0;
  let closed = false;

  const isFree = (endpointId: string): boolean => {
    const own = active.get(endpointId) ?? 0;
    if (inUse >= total || own >= perEndpoint) return false;
    return inUse < total / 2 || own < Math.max(1, Math.floor(total / active.size));
  };

  const waitingMax = (): number => Math.min(WAITING_MAX, Math.ceil(WAITING_TOTAL / Math.max(1, waiting.size)));

  const occupy = (endpointId: string): void => {
    inUse += 1;
    active.set(endpointId, (active.get(endpointId) ?? 0) + 1);
  };

  const grantNext = (): void => {
    for (const [endpointId, line] of waiting) {
      if (!isFree(endpointId)) continue;
      const grant = line.shift();
      waiting.delete(endpointId);
      if (line.length > 0) waiting.set(endpointId, line); // to the end of the round
      if (!grant) continue;
      occupy(endpointId);
      grant(true);
      return;
    }
  };

  return {
    get inUse(): number {
      return inUse;
    },

    /** True once there is room; false when too many wait already, or the slots were closed. */
    enter: (endpointId: string): Promise<boolean> => {
      if (closed) return Promise.resolve(false);
      const line = waiting.get(endpointId) ?? [];
      // Whoever comes later does not pass those who wait.
      if (line.length === 0 && isFree(endpointId)) {
        occupy(endpointId);
        return Promise.resolve(true);
      }
      if (line.length >= waitingMax()) return Promise.resolve(false);
      waiting.set(endpointId, line);
      return new Promise((resolve) => line.push(resolve));
    },

    leave: (endpointId: string): void => {
      inUse -= 1;
      const left = (active.get(endpointId) ?? 1) - 1;
      if (left === 0) active.delete(endpointId);
      else active.set(endpointId, left);
      grantNext();
    },

    /** Endpoints with so many lines in memory that more are of no use. */
    saturated: (): string[] =>
      [...waiting].filter(([, line]) => line.length >= waitingMax() / 2).map(([endpointId]) => endpointId),

    /** Turns away all who wait, and all who come. */
    close: (): void => {
      closed = true;
      for (const line of waiting.values()) for (const grant of line) grant(false);
      waiting.clear();
    },
  };
};

export type Slots = ReturnType<typeof createSlots>;
