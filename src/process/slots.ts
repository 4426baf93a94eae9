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

/**
 * The slots in use by this holder and by all, how many tenants have a slot, and how many holders of this tenant have
 * one. Without tenants, each holder is a tenant of its own.
 */
export type Occupancy = { own: number; inUse: number; tenants: number; holders: number };

/** `signal`: aborts when nobody wants the slot any more. The wait then ends with its reason. */
type Wanted = { tenant?: string; signal?: AbortSignal };

/**
 * Limits the work in flight, both per holder (an endpoint or an assistant) and in total. `hasFreeSlot` decides. Holders
 * take turns, so that a holder with a long queue does not delay the others.
 */
export type Slots = {
  readonly inUse: number;

  /** Resolves with a slot, or with null if too many requests are already waiting or the slots are closed. */
  acquire: (holder: string, wanted?: Wanted) => Promise<Slot | null>;

  /** Holders whose waiting queue is so long that more requests would not help. */
  saturated: () => string[];

  /** Refuses all waiting requests and all later requests. */
  close: () => void;
};

type Waiting = { tenant: string; queue: ((slot: Slot | null) => void)[] };

export const createSlots = (hasFreeSlot: (occupancy: Occupancy) => boolean): Slots => {
  /** The slots in use, by tenant and holder. */
  const active = new Map<string, Map<string, number>>();
  const waiting = new Map<string, Waiting>();
  let inUse = 0;
  let closed = false;

  const isFree = (holder: string, tenant: string): boolean => {
    const holders = active.get(tenant);
    return hasFreeSlot({ own: holders?.get(holder) ?? 0, inUse, tenants: active.size, holders: holders?.size ?? 0 });
  };

  const waitingMax = (): number => Math.min(WAITING_MAX, Math.ceil(WAITING_TOTAL / Math.max(1, waiting.size)));

  const release = (holder: string, tenant: string): void => {
    inUse -= 1;
    const holders = active.get(tenant);
    const left = (holders?.get(holder) ?? 1) - 1;
    if (left > 0) holders?.set(holder, left);
    else holders?.delete(holder);
    if (holders?.size === 0) active.delete(tenant);
    // Releasing one slot may allow several new grants, because shares depend on the number of holders.
    while (grantNext());
  };

  const occupy = (holder: string, tenant: string, hasWaited: boolean): Slot => {
    inUse += 1;
    const holders = active.get(tenant) ?? new Map<string, number>();
    active.set(tenant, holders.set(holder, (holders.get(holder) ?? 0) + 1));
    let held = true;
    return {
      hasWaited,
      release: () => {
        if (held) release(holder, tenant);
        held = false;
      },
    };
  };

  const grantNext = (): boolean => {
    for (const [holder, one] of waiting) {
      const { tenant, queue } = one;
      if (!isFree(holder, tenant)) continue;
      const grant = queue.shift();
      waiting.delete(holder);
      if (queue.length > 0) waiting.set(holder, one); // moves the holder to the end of the round
      if (!grant) continue;
      grant(occupy(holder, tenant, true));
      return true;
    }
    return false;
  };

  /** Waits in the queue of the holder, until the signal aborts. */
  const wait = (holder: string, one: Waiting, signal: AbortSignal | undefined): Promise<Slot | null> =>
    new Promise((resolve, reject) => {
      const grant = (slot: Slot | null): void => {
        signal?.removeEventListener('abort', leave);
        resolve(slot);
      };
      const leave = (): void => {
        one.queue.splice(one.queue.indexOf(grant), 1);
        if (one.queue.length === 0) waiting.delete(holder);
        reject(signal?.reason);
      };
      one.queue.push(grant);
      waiting.set(holder, one);
      signal?.addEventListener('abort', leave, { once: true });
    });

  return {
    get inUse(): number {
      return inUse;
    },

    acquire: async (holder, { tenant = holder, signal } = {}) => {
      signal?.throwIfAborted();
      if (closed) return null;
      const one = waiting.get(holder) ?? { tenant, queue: [] };
      // A later request must not overtake the waiting requests.
      if (one.queue.length === 0 && isFree(holder, tenant)) return occupy(holder, tenant, false);
      return one.queue.length < waitingMax() ? wait(holder, one, signal) : null;
    },

    saturated: () => [...waiting].filter(([, { queue }]) => queue.length >= waitingMax() / 2).map(([holder]) => holder),

    close: () => {
      closed = true;
      for (const { queue } of waiting.values()) for (const grant of queue) grant(null);
      waiting.clear();
    },
  };
};
