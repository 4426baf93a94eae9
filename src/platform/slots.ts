/** Of one holder, so many may wait in memory for a slot; what does not fit stays in MongoDB, for a sweep to find. */
const WAITING_MAX = 1_000;
/** Of all holders together: beyond it, each may only hold its share. */
const WAITING_TOTAL = 20_000;

/** Slots in use: the holder's own, everybody's, and how many hold any. */
export type Occupancy = { own: number; inUse: number; holders: number };

/**
 * What may be under way at once, for one holder (an endpoint, an assistant) and in all, as `hasRoom` decides. Holders take
 * turns, so one with a long line does not hold up the others.
 */
export const createSlots = (hasFreeSlot: (occupancy: Occupancy) => boolean) => {
  const active = new Map<string, number>();
  const waiting = new Map<string, ((granted: boolean) => void)[]>();
  let inUse = 0;
  let closed = false;

  const isFree = (holder: string): boolean =>
    hasFreeSlot({ own: active.get(holder) ?? 0, inUse, holders: active.size });

  const waitingMax = (): number => Math.min(WAITING_MAX, Math.ceil(WAITING_TOTAL / Math.max(1, waiting.size)));

  const occupy = (holder: string): void => {
    inUse += 1;
    active.set(holder, (active.get(holder) ?? 0) + 1);
  };

  const grantNext = (): boolean => {
    for (const [holder, queue] of waiting) {
      if (!isFree(holder)) continue;
      const grant = queue.shift();
      waiting.delete(holder);
      if (queue.length > 0) waiting.set(holder, queue); // to the end of the round
      if (!grant) continue;
      occupy(holder);
      grant(true);
      return true;
    }
    return false;
  };

  return {
    get inUse(): number {
      return inUse;
    },

    /** True once there is room; false when too many wait already, or the slots were closed. */
    acquire: (holder: string): Promise<boolean> => {
      if (closed) return Promise.resolve(false);
      const queue = waiting.get(holder) ?? [];
      // Whoever comes later does not pass those who wait.
      if (queue.length === 0 && isFree(holder)) {
        occupy(holder);
        return Promise.resolve(true);
      }
      if (queue.length >= waitingMax()) return Promise.resolve(false);
      waiting.set(holder, queue);
      return new Promise((resolve) => queue.push(resolve));
    },

    release: (holder: string): void => {
      inUse -= 1;
      const left = (active.get(holder) ?? 1) - 1;
      if (left === 0) active.delete(holder);
      else active.set(holder, left);
      // One that leaves may make room for several, where shares depend on what is free.
      while (grantNext());
    },

    /** Holders with so many in memory that more are of no use. */
    saturated: (): string[] =>
      [...waiting].filter(([, queue]) => queue.length >= waitingMax() / 2).map(([holder]) => holder),

    /** Turns away all who wait, and all who come. */
    close: (): void => {
      closed = true;
      for (const queue of waiting.values()) for (const grant of queue) grant(false);
      waiting.clear();
    },
  };
};

export type Slots = ReturnType<typeof createSlots>;
