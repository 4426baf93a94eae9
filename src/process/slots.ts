/** Like `Promise.all` over `map`, but with at most this many in flight. After a failure, nothing more is started. */
export const mapAtMost = async <Item, Result>(
  atOnce: number,
  items: Item[],
  work: (item: Item) => Promise<Result>,
): Promise<Result[]> => {
  const results: Result[] = [];
  const waiting = items.entries();
  let hasFailed = false;
  const run = async (): Promise<void> => {
    for (const [nth, item] of waiting) {
      if (hasFailed) return;
      try {
        results[nth] = await work(item);
      } catch (cause) {
        hasFailed = true;
        throw cause;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, run));
  return results;
};

/**
 * How many requests of one holder may wait in memory. Further requests are refused; their work stays in MongoDB until
 * a sweep finds it.
 */
const WAITING_MAX = 1_000;
/** How many requests of all holders together may wait. Each holder gets a share of this limit. */
const WAITING_TOTAL = 20_000;

/** A slot in use. `hasWaited` is true if it was not free at once. `release` may be called again, without effect. */
export type Slot = { hasWaited: boolean; release: () => void };

/** The slots in use by this holder, the slots in use by all holders, and the number of holders with a slot. */
export type Occupancy = { own: number; inUse: number; holders: number };

/**
 * Limits the work in flight, both per holder (an endpoint or an assistant) and in total. `hasFreeSlot` decides. Holders
 * take turns, so that a holder with a long queue does not delay the others.
 */
export type Slots = {
  readonly inUse: number;

  /** Resolves with a slot, or with null if too many requests are already waiting or the slots are closed. */
  acquire: (holder: string) => Promise<Slot | null>;

  /** Holders whose waiting queue is so long that more requests would not help. */
  saturated: () => string[];

  /** Refuses all waiting requests and all later requests. */
  close: () => void;
};

export const createSlots = (hasFreeSlot: (occupancy: Occupancy) => boolean): Slots => {
  const active = new Map<string, number>();
  const waiting = new Map<string, ((slot: Slot | null) => void)[]>();
  let inUse = 0;
  let closed = false;

  const isFree = (holder: string): boolean =>
    hasFreeSlot({ own: active.get(holder) ?? 0, inUse, holders: active.size });

  const waitingMax = (): number => Math.min(WAITING_MAX, Math.ceil(WAITING_TOTAL / Math.max(1, waiting.size)));

  const release = (holder: string): void => {
    inUse -= 1;
    const left = (active.get(holder) ?? 1) - 1;
    if (left === 0) active.delete(holder);
    else active.set(holder, left);
    // Releasing one slot may allow several new grants, because shares depend on the number of holders.
    while (grantNext());
  };

  const occupy = (holder: string, hasWaited: boolean): Slot => {
    inUse += 1;
    active.set(holder, (active.get(holder) ?? 0) + 1);
    let held = true;
    return {
      hasWaited,
      release: () => {
        if (held) release(holder);
        held = false;
      },
    };
  };

  const grantNext = (): boolean => {
    for (const [holder, queue] of waiting) {
      if (!isFree(holder)) continue;
      const grant = queue.shift();
      waiting.delete(holder);
      if (queue.length > 0) waiting.set(holder, queue); // moves the holder to the end of the round
      if (!grant) continue;
      grant(occupy(holder, true));
      return true;
    }
    return false;
  };

  return {
    get inUse(): number {
      return inUse;
    },

    acquire: (holder) => {
      if (closed) return Promise.resolve(null);
      const queue = waiting.get(holder) ?? [];
      // A later request must not overtake the waiting requests.
      if (queue.length === 0 && isFree(holder)) return Promise.resolve(occupy(holder, false));
      if (queue.length >= waitingMax()) return Promise.resolve(null);
      waiting.set(holder, queue);
      return new Promise((resolve) => queue.push(resolve));
    },

    saturated: () => [...waiting].filter(([, queue]) => queue.length >= waitingMax() / 2).map(([holder]) => holder),

    close: () => {
      closed = true;
      for (const queue of waiting.values()) for (const grant of queue) grant(null);
      waiting.clear();
    },
  };
};
