import { setTimeout as sleep } from 'node:timers/promises';
import { workForAll } from './slices.ts';
import { restAsLong } from './slots.ts';

const MAX_ITEMS = 256;
const MAX_IN_FLIGHT = 2;
/**
 * The maximum number of bytes in a batch: a quarter of what MongoDB accepts as one command. The rest is left for what
 * is not counted.
 */
const MAX_BYTES = 4_000_000;
/**
 * An upper estimate of the bytes in one item's ids, field names and operators. The item's texts are counted separately.
 */
const ITEM_OVERHEAD_BYTES = 2_000;
/**
 * The maximum number of bytes that one UTF-16 unit needs in UTF-8. An exact count would have to read every text once
 * more.
 */
const BYTES_PER_UNIT = 3;

export type BatchOptions<Item> = {
  maxItems?: number;
  maxInFlight?: number;
  /** The length of an item's texts in UTF-16 units. Needed for items with long texts, to keep a batch below 4 MB. */
  lengthOf?: (item: Item) => number;
  /**
   * True when a failure does not depend on the items, for example because the store is unavailable. The items are then
   * not tried separately.
   */
  isShared?: (cause: unknown) => boolean;
  /** If true, a batch keeps its place for as long again as it took, so that the store has time for others. */
  rests?: boolean;
};

/** The result of an item that failed although other items of its batch may have succeeded. */
export class ItemFailure {
  readonly cause: unknown;
  constructor(cause: unknown) {
    this.cause = cause;
  }
}

type Entry<Item, Result> = { item: Item; resolve: (result: Result) => void; reject: (cause: unknown) => void };

/**
 * Micro-batching: items that arrive during a write are sent together in the next write.
 *
 * A single item is sent in the same tick. Under load, a batch grows to the number of items that
 * arrive during one write. Each caller awaits its own result. `write` gets the items in order of arrival and returns
 * one result for each item, in the same order. When `write` throws, the batch is halved and each half is tried again,
 * until only the items that cause the failure fail. `write` must therefore be safe to repeat for the same items.
 */
export const createBatcher = <Item, Result>(
  write: (items: Item[]) => Promise<(Result | ItemFailure)[]>,
  options: BatchOptions<Item> = {},
): ((item: Item) => Promise<Result>) => {
  const {
    maxItems = MAX_ITEMS,
    maxInFlight = MAX_IN_FLIGHT,
    lengthOf = () => 0,
    isShared = () => false,
    rests = false,
  } = options;
  let gathered: Entry<Item, Result>[] = [];
  let inFlight = 0;
  let scheduled = false;

  const takeBatch = (): Entry<Item, Result>[] => {
    let bytes = 0;
    let count = 0;
    for (const { item } of gathered) {
      bytes += ITEM_OVERHEAD_BYTES + BYTES_PER_UNIT * lengthOf(item);
      if (count === maxItems || (count > 0 && bytes > MAX_BYTES)) break;
      count += 1;
    }
    const batch = gathered.slice(0, count);
    gathered = gathered.slice(count);
    return batch;
  };

  const send = async (batch: Entry<Item, Result>[]): Promise<void> => {
    try {
      const results = await write(batch.map(({ item }) => item));
      for (const [index, { resolve, reject }] of batch.entries()) {
        const result = results[index] as Result | ItemFailure;
        if (result instanceof ItemFailure) reject(result.cause);
        else resolve(result);
      }
    } catch (cause) {
      if (batch.length === 1 || isShared(cause)) {
        for (const { reject } of batch) reject(cause);
        return;
      }
      const half = Math.ceil(batch.length / 2);
      await send(batch.slice(0, half));
      await send(batch.slice(half));
    }
  };

  const flush = async (): Promise<void> => {
    inFlight += 1;
    const since = performance.now();
    await send(takeBatch());
    if (rests) await sleep(restAsLong(performance.now() - since));
    inFlight -= 1;
    schedule();
  };

  const schedule = (): void => {
    if (scheduled || gathered.length === 0 || inFlight >= maxInFlight) return;
    scheduled = true;
    // Runs after the poll phase, so that the batch contains the items of all requests that this turn of the loop has
    // read.
    const next = (): void => {
      scheduled = false;
      if (gathered.length > 0 && inFlight < maxInFlight) void flush();
      schedule();
    };
    // A batch is not the work of the caller that came first.
    workForAll(() => setImmediate(next));
  };

  return (item) =>
    new Promise<Result>((resolve, reject) => {
      gathered.push({ item, resolve, reject });
      schedule();
    });
};
