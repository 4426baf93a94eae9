/** Lines of one endpoint that may wait in memory for a slot; what does not fit stays in MongoDB, for a sweep to find. */
const WAITING_MAX = 1_000;

/**
 * How many sends may be under way, to one endpoint and in all; asked for before the claim, so that what waits is still
 * unclaimed. Endpoints take turns, so one with a long line does not hold up the others.
 */
export const createSlots = ({ perEndpoint, total }: { perEndpoint: number; total: number }) => {
  const active = new Map<string, number>();
  const waiting = new Map<string, ((granted: boolean) => void)[]>();
  let inUse = 0;

  const isFree = (endpointId: string): boolean => inUse < total && (active.get(endpointId) ?? 0) < perEndpoint;

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
      if (isFree(endpointId)) {
        occupy(endpointId);
        return Promise.resolve(true);
      }
      const line = waiting.get(endpointId) ?? [];
      if (line.length >= WAITING_MAX) return Promise.resolve(false);
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

    /** Turns away all who wait. */
    close: (): void => {
      for (const line of waiting.values()) for (const grant of line) grant(false);
      waiting.clear();
    },
  };
};

export type Slots = ReturnType<typeof createSlots>;
