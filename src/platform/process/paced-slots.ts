import { createSlots, LEAST_TIME_FIRST, type Occupancy, type Slot, type Slots } from './slots.ts';
import { createLru } from './lru.ts';

/** A slow holder is fast again after this many fast pieces of work in a row. */
const FASTER_AFTER = 10;
/** For a holder that hangs, the number doubles each time it hangs again, up to this. */
const FASTER_AFTER_MOST = 1_000;
const SLOW_HOLDERS_MAX = 10_000;
const SLOW_FOR_MS = 3_600_000;
/** A timer that fires this much later shows that the process stood still. */
const LATE_MS = 500;

/** How a holder counts: `hanging` is beyond `slow`. */
const PACES = ['fast', 'slow', 'hanging'] as const;
type Pace = (typeof PACES)[number];

/**
 * Work that takes longer than `slowMs` makes its holder slow, and work that takes longer than `hangsMs` makes it
 * hanging. `holdersMax`: how many such holders are remembered. A holder that is forgotten counts as fast.
 */
type PaceLimits = { slowMs: number; hangsMs: number; holdersMax?: number };

/** Remembers which holders are slow, by what they last took. */
export type Paces = {
  of: (holder: string) => Pace;

  /** All holders that are slow or hang. */
  slow: () => string[];

  /** Waits for a piece of work. Its holder is slow as soon as this has taken too long. */
  watch: <Result>(holder: string, work: Promise<Result>) => Promise<Result>;
};

/**
 * How many pieces of work in a row must still take less than `slowMs` and `hangsMs` until the holder is no longer slow
 * and hanging, and how many it was for the latter.
 */
type Lacking = { slow: number; hanging: number; needed: number };

export const createPaces = ({ slowMs, hangsMs, holdersMax = SLOW_HOLDERS_MAX }: PaceLimits): Paces => {
  const known = createLru<Lacking>({ most: holdersMax, ttl: SLOW_FOR_MS });

  const of = (holder: string): Pace => {
    const { slow = 0, hanging = 0 } = known.peek(holder) ?? {};
    if (hanging > 0) return 'hanging';
    return slow > 0 ? 'slow' : 'fast';
  };

  const note = (holder: string, pace: 'slow' | 'hanging'): void => {
    const { hanging = 0, needed: before = FASTER_AFTER / 2 } = known.get(holder) ?? {};
    const again = hanging > 0 ? before : Math.min(FASTER_AFTER_MOST, 2 * before);
    const found = pace === 'slow' ? { hanging, needed: before } : { hanging: again, needed: again };
    known.set(holder, { slow: FASTER_AFTER, ...found });
  };

  return {
    of,

    slow: () => [...known.keys()].filter((holder) => of(holder) !== 'fast'),

    watch: async (holder, work) => {
      const reached = new Set<Pace>();
      const begun = performance.now();
      const reach = (pace: 'slow' | 'hanging', ms: number): void => {
        reached.add(pace);
        // If this process stood still, the work may be fast.
        if (performance.now() - begun <= ms + LATE_MS) note(holder, pace);
      };
      const timers = [setTimeout(reach, slowMs, 'slow', slowMs), setTimeout(reach, hangsMs, 'hanging', hangsMs)];
      try {
        return await work;
      } finally {
        for (const timer of timers) clearTimeout(timer);
        const one = known.get(holder);
        if (one && one.slow > 0 && !reached.has('slow')) one.slow -= 1;
        if (one && one.hanging > 0 && !reached.has('hanging')) one.hanging -= 1;
      }
    },
  };
};

export type PacedSlots = Slots & Pick<Paces, 'of' | 'watch'>;

type Options = PaceLimits & {
  total: number;
  /** Decides who gets one of so many slots. */
  shareOf: (total: number) => (occupancy: Occupancy) => boolean;
  /** Among those of one pace, the turn is that of the one that had slots for the least time lately. */
  leastTimeFirst?: boolean;
};

/**
 * Slots of which slow holders have at most half together, and those that hang half of this half. However many hang,
 * each delays others only until it has shown that.
 */
export const createPacedSlots = ({ total, shareOf, leastTimeFirst = false, ...limits }: Options): PacedSlots => {
  const paces = createPaces(limits);
  /** For each pace, the slots of holders that are at least as slow. */
  const bounds = leastTimeFirst ? [LEAST_TIME_FIRST] : [];
  const pools = PACES.map((_, nth) => createSlots(shareOf(Math.max(1, Math.floor(total / 2 ** nth))), ...bounds));
  const poolsOf = (pace: Pace): Slots[] => pools.slice(0, PACES.indexOf(pace) + 1);

  /** Waits for a slot of each of these pools, the smallest first. */
  const acquireAll = async (from: Slots[], ...asked: Parameters<Slots['acquire']>): Promise<Slot | null> => {
    const taken: Slot[] = [];
    const release = (): void => {
      for (const slot of taken) slot.release();
    };
    try {
      for (const pool of from.toReversed()) {
        const slot = await pool.acquire(...asked);
        if (slot) taken.push(slot);
        else {
          release();
          return null;
        }
      }
    } catch (cause) {
      release();
      throw cause;
    }
    return { hasWaited: taken.some(({ hasWaited }) => hasWaited), release };
  };

  return {
    get inUse(): number {
      return pools[0]?.inUse ?? 0;
    },

    acquire: async (holder, wanted) => {
      for (let hasWaited = false; ; hasWaited = true) {
        const from = poolsOf(paces.of(holder));
        const slot = await acquireAll(from, holder, wanted);
        if (!slot) return null;
        // The holder may have become slow during the wait.
        if (poolsOf(paces.of(holder)).length <= from.length) return { ...slot, hasWaited: hasWaited || slot.hasWaited };
        slot.release();
      }
    },

    saturated: () => [...new Set(pools.flatMap((pool) => pool.saturated()))],

    close: () => {
      for (const pool of pools.toReversed()) pool.close();
    },

    of: paces.of,
    watch: paces.watch,
  };
};
