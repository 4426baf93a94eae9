/** The most requests of one holder that wait in memory. The work of others stays in MongoDB until a sweep finds it. */
const WAITING_MAX = 1_000;
/** The limit of waiting requests over all holders. Each holder gets a share of it. */
const WAITING_TOTAL = 20_000;

/** Slots in use by this holder and by all, and the number of holders with a slot. */
export type Occupancy = { own: number; inUse: number; holders: number };

/**
 * Bounds the work in flight, per holder (an endpoint or an assistant) and in total, as `hasFreeSlot` decides. Holders
 * take turns, so that one with a long queue does not delay the others.
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
      if (queue.length > 0) waiting.set(holder, queue); // moves the holder to the end of the round
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

    /** True once a slot is acquired. False when too many requests wait already, or when the slots were closed. */
    acquire: (holder: string): Promise<boolean> => {
      if (closed) return Promise.resolve(false);
      const queue = waiting.get(holder) ?? [];
      // A later request must not overtake those that wait.
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
      // One released slot may allow several new ones, because shares depend on the number of holders.
      while (grantNext());
    },

    /** Holders whose waiting queue is so long that more requests are of no use. */
    saturated: (): string[] =>
      [...waiting].filter(([, queue]) => queue.length >= waitingMax() / 2).map(([holder]) => holder),

    /** Refuses all waiting and all later requests. */
    close: (): void => {
      closed = true;
      for (const queue of waiting.values()) for (const grant of queue) grant(false);
      waiting.clear();
    },
  };
};

export type Slots = ReturnType<typeof createSlots>;
