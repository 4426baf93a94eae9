import { LRUCache } from 'lru-cache';
import { addTo } from './slots.ts';
import { TIMING } from './time-limits.ts';

type Limits = { most: number; ttl?: number; noUpdateTTL?: true };

/**
 * The most recently used entries, at most `most`, each for `ttl` milliseconds. The library's own `max` reserves all
 * places at once: twenty caches of 10,000 took a process 10 MB and 25 ms of its start.
 */
export const createLru = <Value extends {}>({ most, ...rest }: Limits): LRUCache<string, Value> =>
  new LRUCache<string, Value>({ maxSize: most, sizeCalculation: () => 1, ...rest });

/** The maximum memory of each such cache, counted in characters of JSON. */
const SETTINGS_CHARS = 20_000_000;

/** Finds null if there is nothing. `knows`: a find needs no query. `forget`: what is stored has changed. */
export type CachedFind<Value> = ((key: string) => Promise<Value | null>) & {
  knows: (key: string) => boolean;
  forget: (key: string) => void;
};

/**
 * Caches settings, which every turn asks for, for a second. That there are none is cached too, so that an unknown id or key
 * costs at most one query a second.
 */
export const cachedSettings = <Value extends {}>(fetch: (key: string) => Promise<Value | null>): CachedFind<Value> => {
  const cache = new LRUCache<string, { value: Value | null }>({
    maxSize: SETTINGS_CHARS,
    sizeCalculation: ({ value }, key) => key.length + JSON.stringify(value).length + 200,
    ttl: TIMING.settingsCachedForMs,
    fetchMethod: async (key) => ({ value: await fetch(key) }),
    // A caller that asked before `forget` gets what was read, which is not kept. Otherwise it would get an error.
    ignoreFetchAbort: true,
  });
  const find = async (key: string): Promise<Value | null> => {
    const hit = cache.get(key) ?? (await cache.fetch(key));
    return hit?.value ?? null;
  };
  const forget = (key: string): void => void cache.delete(key);
  return Object.assign(find, { knows: (key: string): boolean => cache.has(key), forget });
};

/**
 * Caches what was counted for an assistant for twenty times as long as the counting took, because pages ask every few
 * seconds.
 */
export const cachedByCost = <Counts extends {}>(count: (assistantId: string) => Promise<Counts>) => {
  const known = createLru<Counts>({ most: 1000, ttl: 1 });
  return async (assistantId: string): Promise<Counts> => {
    const last = known.get(assistantId);
    if (last) return last;
    const startedAt = performance.now();
    const counts = await count(assistantId);
    known.set(assistantId, counts, { ttl: Math.ceil((performance.now() - startedAt) * 20) });
    return counts;
  };
};

/** The maximum memory of all caches of a process that hold what turns search, in bytes. */
const SHARED_MAX_BYTES = 184_000_000;
/** What was used within this time is in use. Others make room first. */
const IDLE_MS = 60_000;
/** Only an assistant that holds more than this part of what the largest holds gives what it can do without. */
const SPARES_FROM = 0.25;
/** Estimated memory of an empty value. */
const PART_BYTES = 500;

type Worth = {
  /** If an assistant must make room with what it uses, its parts of the lowest worth leave first. */
  worth: number;
  /** True if the part would be made again for the next turn. */
  isNeeded?: boolean;
};

type Part = Worth & { holder: string; bytes: number; usedAt: number; leave: (isInUse: boolean) => void };

type SharedCacheOptions<Value> = Worth & {
  /** Called after a value left although it was in use. */
  onPushedOut?: (holder: string, value: Value) => void;
};

type SharedCache<Value> = {
  /** Counts as a use. */
  get: (key: string) => Value | undefined;
  has: (key: string) => boolean;
  /** A value for which there is no room leaves at once, so whoever has made it uses it from their own variable. */
  set: (key: string, value: Value, size: { bytes: number; holder?: string }) => void;
  delete: (key: string) => void;
};

export type SharedMemory = {
  openCache: <Value>(options: SharedCacheOptions<Value>) => SharedCache<Value>;
  /** How much all caches hold. */
  bytes: () => number;
};

/**
 * One bound for several caches. What is idle leaves first, the longest unused before others, whichever cache it is in.
 * If all is in use, the assistant that holds the most makes room, so that a few large ones do not push out the small
 * ones of others. First the larger ones of those that hold more than an equal share give what they can do without.
 */
export const createSharedMemory = ({
  maxBytes = SHARED_MAX_BYTES,
  now = () => performance.now(),
}: {
  maxBytes?: number;
  now?: () => number;
} = {}): SharedMemory => {
  /** The longest unused first. */
  const parts = new Set<Part>();
  const bytesOfHolders = new Map<string, number>();
  let bytes = 0;

  const count = (holder: string, more: number): void => {
    bytes += more;
    addTo(bytesOfHolders, holder, more);
  };

  const remove = (part: Part): void => {
    if (parts.delete(part)) count(part.holder, -part.bytes);
  };

  /** What leaves next if all is in use. */
  const leastOfLargest = (): Part | undefined => {
    // Not those that hold far less than the largest: a few large ones would then take from all others for good.
    let largest = 0;
    for (const own of bytesOfHolders.values()) largest = Math.max(largest, own);
    const share = Math.max(maxBytes / bytesOfHolders.size, SPARES_FROM * largest);
    let least: { part: Part; own: number; isSpare: boolean } | undefined;
    for (const part of parts) {
      const own = bytesOfHolders.get(part.holder) ?? 0;
      const isSpare = !part.isNeeded && own > share;
      const isBefore =
        !least ||
        (isSpare !== least.isSpare
          ? isSpare
          : own !== least.own
            ? own > least.own
            : part.holder === least.part.holder && part.worth < least.part.worth);
      if (isBefore) least = { part, own, isSpare };
    }
    return least?.part;
  };

  const makeRoom = (): void => {
    while (bytes > maxBytes) {
      const [oldest] = parts;
      const isIdle = oldest !== undefined && now() - oldest.usedAt > IDLE_MS;
      const part = isIdle ? oldest : leastOfLargest();
      if (!part) return;
      remove(part);
      part.leave(!isIdle);
    }
  };

  return {
    bytes: () => bytes,
    openCache: <Value>({ onPushedOut, ...worth }: SharedCacheOptions<Value>): SharedCache<Value> => {
      const own = new Map<string, Part & { value: Value }>();
      const drop = (key: string): void => {
        const part = own.get(key);
        if (part) remove(part);
        own.delete(key);
      };
      return {
        get: (key) => {
          const part = own.get(key);
          if (!part) return undefined;
          part.usedAt = now();
          parts.delete(part);
          parts.add(part); // moves it to the end
          return part.value;
        },
        has: (key) => own.has(key),
        set: (key, value, { bytes: size, holder = key }) => {
          drop(key);
          const leave = (isInUse: boolean): void => {
            own.delete(key);
            if (isInUse) onPushedOut?.(holder, value);
          };
          const part = { ...worth, holder, bytes: size + PART_BYTES, usedAt: now(), leave, value };
          own.set(key, part);
          parts.add(part);
          count(holder, part.bytes);
          makeRoom();
        },
        delete: drop,
      };
    },
  };
};
