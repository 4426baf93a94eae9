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

/** Handles one after the other, until it is over. A failure does not stop the others; the first is thrown at the end. */
export const inOrder = async <Item>(
  items: Item[],
  handle: (item: Item) => Promise<void>,
  over?: AbortSignal,
): Promise<void> => {
  const failures: unknown[] = [];
  for (const item of items) {
    if (over?.aborted) break;
    await handle(item).catch((cause: unknown) => failures.push(cause));
  }
  if (failures.length > 0) throw failures[0];
};

type InTurns = {
  holdersAtOnce: number;
  /** A holder's items are begun for this long. */
  eachForMs: number;
  /** Holders are begun for this long. */
  forMs?: number;
  over?: AbortSignal;
  onBegun?: (holder: string) => void;
};

/**
 * Handles the items of some holders at once, each for a while, so that many or slow items of one do not delay others.
 * A failure does not stop the others; the first is thrown at the end.
 */
export const inTurnsOfHolders = async <Item>(
  items: Map<string, Item[]>,
  { holdersAtOnce, eachForMs, forMs = Infinity, over, onBegun }: InTurns,
  handle: (item: Item) => Promise<void>,
): Promise<void> => {
  const ends = performance.now() + forMs;
  const failures: unknown[] = [];
  await mapAtMost(holdersAtOnce, [...items], async ([holder, own]) => {
    if (performance.now() > ends) return;
    onBegun?.(holder);
    const until = AbortSignal.any([...(over ? [over] : []), AbortSignal.timeout(eachForMs)]);
    await inOrder(own, handle, until).catch((cause: unknown) => void failures.push(cause));
  });
  if (failures.length > 0) throw failures[0];
};

/**
 * How many requests of one holder may wait in memory. Further requests are refused; their work stays in MongoDB until
 * a sweep finds it.
 */
const WAITING_MAX = 1_000;
/** How many requests of all holders together may wait. Each holder has an equal share of this limit. */
const WAITING_TOTAL = 20_000;

/**
 * A slot in use. `hasWaited` is true if no slot was free immediately. `release` may be called again, without effect.
 */
export type Slot = { hasWaited: boolean; release: () => void };

/**
 * The slots in use by this holder, by its tenant and by all, how many tenants have a slot, and how many holders of this
 * tenant have one. Without tenants, each holder is a tenant of its own.
 */
export type Occupancy = { own: number; ofTenant: number; inUse: number; tenants: number; holders: number };

/**
 * `signal`: aborts when nobody wants the slot any more. The wait then ends with its reason. `onWait` is called if no slot
 * is free immediately, before the wait: what only an immediate slot needs can be let go. `expectedMs`: how long the slot
 * will be taken, if that is known.
 */
export type Wanted = { tenant?: string; signal?: AbortSignal; onWait?: () => void; expectedMs?: number };

/**
 * Limits the work in flight, both per holder (an endpoint or an assistant) and in total. `hasFreeSlot` decides. Tenants
 * take turns, and so do the holders of a tenant, so that neither a long queue nor many holders delay others.
 */
export type Slots = {
  readonly inUse: number;

  /**
   * Resolves with a slot, or with null if too many requests wait or the slots are closed. A request that waits may also
   * be refused later, if its holder has more than its share and others have less.
   */
  acquire: (holder: string, wanted?: Wanted) => Promise<Slot | null>;

  /** Holders whose waiting queue is so long that more requests would not help. */
  saturated: () => string[];

  /** Refuses all waiting requests and all later requests. */
  close: () => void;
};

export type Acquiring = Pick<Slots, 'acquire'>;

/** After work, its holder rests for so many times as long as the work took. The rest is bounded for a busy machine. */
const REST_SHARE = 4;
const REST_MOST_MS = 500;
export const restAfter = (ms: number, most = REST_MOST_MS): number => Math.min(most, REST_SHARE * ms);
/** The same for work that callers do one after the other: as long as it took. */
export const restAsLong = (ms: number, most = REST_MOST_MS): number => Math.min(most, ms);

/** Slots that stay taken for a rest. */
export const withRests = (slots: Acquiring, restOf: (ms: number) => number = restAfter): Acquiring => ({
  acquire: async (...wanted) => {
    const slot = await slots.acquire(...wanted);
    const since = performance.now();
    const release = (): void => void setTimeout(() => slot?.release(), restOf(performance.now() - since)).unref();
    return slot && { ...slot, release };
  },
});

/** Works in a slot of the holder, without one if too many wait. */
export const workInSlot = async <Value>(
  slots: Acquiring,
  holder: string,
  work: () => Promise<Value>,
): Promise<Value> => {
  const slot = await slots.acquire(holder);
  try {
    return await work();
  } finally {
    slot?.release();
  }
};

/**
 * The slots without the last quarter, which is for holders that have few or none. Otherwise a few holders, one after the
 * other, could fill all.
 */
export const withoutReserve = (total: number): number => total - Math.floor(total / 4);

/** A holder may have as many of these slots, without the reserve, as remain free. */
export const whatRemains =
  (total: number) =>
  ({ own, inUse }: Occupancy): boolean =>
    own === 0 ? inUse < total : own < withoutReserve(total) - inUse;

/** A holder may always have one slot, and further ones of these as remain free. */
export const oneAtLeast =
  (total: number) =>
  ({ own, inUse }: Occupancy): boolean =>
    own === 0 || own < total - inUse;

/** A holder may have one of these slots. */
export const oneEach =
  (total: number) =>
  ({ own, inUse }: Occupancy): boolean =>
    own === 0 && inUse < total;

type Grant = { give: (slot: Slot | null) => void; expectedMs: number };
type OfTenant = { inUse: number; holders: Map<string, number> };

/** Adds to a count. A key whose count is zero leaves. */
export const addTo = (counts: Map<string, number>, key: string, change: number): void => {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
};

/** Time that a tenant spent in slots counts for half after so long. */
const SPENT_HALF_MS = 60_000;
const SPENT_TENANTS_MAX = 10_000;
/** Every so many grants, the turn goes round regardless of time, so that nobody waits for ever. */
const ROUND_EVERY = 4;

/** How much time each tenant has spent lately, in milliseconds. The one whose last time is longest ago is forgotten. */
const createSpent = () => {
  const known = new Map<string, { ms: number; at: number }>();
  const of = (tenant: string): number => {
    const { ms, at } = known.get(tenant) ?? { ms: 0, at: 0 };
    return ms * 0.5 ** ((performance.now() - at) / SPENT_HALF_MS);
  };
  const add = (tenant: string, more: number): void => {
    const ms = of(tenant) + more;
    known.delete(tenant);
    known.set(tenant, { ms, at: performance.now() });
    const [first] = known.keys();
    if (known.size > SPENT_TENANTS_MAX && first !== undefined) known.delete(first);
  };
  return { of, add };
};

/**
 * How many requests may wait, of one holder and of all. `leastTimeFirst`: the next turn is that of the tenant that had
 * slots for the least time lately, with what it expects. So one with little work waits for a piece of work or two, however
 * many others always have long ones. This compares all who wait, so it is for places that few wait for.
 */
type Bounds = { most: number; total: number; leastTimeFirst?: boolean };
const WAITING: Bounds = { most: WAITING_MAX, total: WAITING_TOTAL };
export const LEAST_TIME_FIRST: Bounds = { ...WAITING, leastTimeFirst: true };
/** For work whose callers hold what waits anyway: beyond a bound, they would pass by the shares. */
export const UNBOUNDED: Bounds = { most: Infinity, total: Infinity };

export const createSlots = (hasFreeSlot: (occupancy: Occupancy) => boolean, bounds = WAITING): Slots => {
  const spent = bounds.leastTimeFirst ? createSpent() : null;
  /** How many who waited got a slot. */
  let grants = 0;
  /** The slots in use, and the requests that wait, by tenant and holder. Who is first in a map has its turn next. */
  const active = new Map<string, OfTenant>();
  const waiting = new Map<string, Map<string, Grant[]>>();
  /** How many slots each holder has, whoever's turn it was. */
  const held = new Map<string, number>();
  let waitingHolders = 0;
  /** The requests that wait, of all holders. */
  let waits = 0;
  let inUse = 0;
  let closed = false;

  const usedBy = (tenant: string): OfTenant => active.get(tenant) ?? { inUse: 0, holders: new Map() };

  const isFree = (holder: string, tenant: string): boolean => {
    const { inUse: ofTenant, holders } = usedBy(tenant);
    const own = held.get(holder) ?? 0;
    return hasFreeSlot({ own, ofTenant, inUse, tenants: active.size, holders: holders.size });
  };

  /** How many requests of one holder may wait beside those of the others, if so many holders wait. */
  const waitingMax = (holders: number): number =>
    Math.min(bounds.most, Math.max(1, Math.floor(bounds.total / Math.max(1, holders))));

  const release = (holder: string, tenant: string): void => {
    inUse -= 1;
    const one = usedBy(tenant);
    one.inUse -= 1;
    addTo(one.holders, holder, -1);
    addTo(held, holder, -1);
    if (one.inUse === 0) active.delete(tenant);
    // Releasing one slot may allow several new grants, because shares depend on the number of holders.
    while (grantNext());
  };

  const occupy = (holder: string, tenant: string, hasWaited: boolean): Slot => {
    inUse += 1;
    const one = usedBy(tenant);
    active.set(tenant, one);
    one.inUse += 1;
    addTo(one.holders, holder, 1);
    addTo(held, holder, 1);
    const since = performance.now();
    let isHeld = true;
    return {
      hasWaited,
      release: () => {
        if (!isHeld) return;
        isHeld = false;
        spent?.add(tenant, performance.now() - since);
        release(holder, tenant);
      },
    };
  };

  const leaveQueues = (holder: string, tenant: string): void => {
    const holders = waiting.get(tenant);
    if (holders?.delete(holder)) waitingHolders -= 1;
    if (holders?.size === 0) waiting.delete(tenant);
  };

  /** Those who wait, in the order of their turns. */
  const inTurn = (): Iterable<[string, Map<string, Grant[]>]> => {
    if (!spent || grants % ROUND_EVERY === ROUND_EVERY - 1) return waiting;
    const all = [...waiting].map((one) => {
      const [tenant, holders] = one;
      const [queue] = holders.values();
      return { one, ms: spent.of(tenant) + (queue?.[0]?.expectedMs ?? 0) };
    });
    return all.sort((one, other) => one.ms - other.ms).map(({ one }) => one);
  };

  const grantNext = (): boolean => {
    for (const [tenant, holders] of inTurn()) {
      for (const [holder, queue] of holders) {
        if (!isFree(holder, tenant)) continue;
        const grant = queue.shift();
        grants += 1;
        waits -= 1;
        // The holder and the tenant move to the ends of their rounds.
        if (queue.length === 0) leaveQueues(holder, tenant);
        else if (holders.delete(holder)) holders.set(holder, queue);
        if (waiting.delete(tenant)) waiting.set(tenant, holders);
        grant?.give(occupy(holder, tenant, true));
        return true;
      }
    }
    return false;
  };

  /**
   * Refuses the newest request of a holder with more than an equal share, in whose place another may wait. So the total
   * is a bound also if many holders come one after the other, and the last one still gets its share.
   */
  const makeRoom = (share: number): boolean => {
    for (const holders of waiting.values()) {
      for (const queue of holders.values()) {
        if (queue.length <= share) continue;
        waits -= 1;
        queue.pop()?.give(null);
        return true;
      }
    }
    return false;
  };

  /** Waits in the queue of the holder, until the signal aborts. */
  const wait = (holder: string, tenant: string, { signal, expectedMs = 0 }: Wanted): Promise<Slot | null> =>
    new Promise((resolve, reject) => {
      const holders = waiting.get(tenant) ?? new Map<string, Grant[]>();
      const queue = holders.get(holder) ?? [];
      const give = (slot: Slot | null): void => {
        signal?.removeEventListener('abort', leave);
        resolve(slot);
      };
      const grant: Grant = { give, expectedMs };
      const leave = (): void => {
        queue.splice(queue.indexOf(grant), 1);
        waits -= 1;
        if (queue.length === 0) leaveQueues(holder, tenant);
        reject(signal?.reason);
      };
      if (queue.push(grant) === 1) waitingHolders += 1;
      waits += 1;
      waiting.set(tenant, holders.set(holder, queue));
      signal?.addEventListener('abort', leave, { once: true });
    });

  return {
    get inUse(): number {
      return inUse;
    },

    acquire: async (holder, wanted = {}) => {
      const { tenant = holder, signal, onWait } = wanted;
      signal?.throwIfAborted();
      if (closed) return null;
      const before = waiting.get(tenant)?.get(holder)?.length ?? 0;
      // A later request must not overtake the waiting requests.
      if (before === 0 && isFree(holder, tenant)) return occupy(holder, tenant, false);
      const share = waitingMax(waitingHolders + (before === 0 ? 1 : 0));
      if (before >= share || (waits >= bounds.total && !makeRoom(share))) return null;
      onWait?.();
      return wait(holder, tenant, wanted);
    },

    saturated: () =>
      [...waiting.values()].flatMap((holders) =>
        [...holders].filter(([, queue]) => queue.length >= waitingMax(waitingHolders) / 2).map(([holder]) => holder),
      ),

    close: () => {
      closed = true;
      for (const holders of waiting.values())
        for (const queue of holders.values()) for (const grant of queue) grant.give(null);
      waiting.clear();
      waitingHolders = 0;
      waits = 0;
    },
  };
};
