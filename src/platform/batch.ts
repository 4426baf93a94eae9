const MAX_ITEMS = 256;
const MAX_IN_FLIGHT = 2;
/** A quarter of what MongoDB takes as one command: the estimates below are upper bounds, and headers come on top. */
const MAX_BYTES = 4_000_000;
/** Of one item beside its texts: ids, names of fields, operators. */
const ITEM_OVERHEAD_BYTES = 2_000;
/** UTF-8 of one UTF-16 unit, at most. A bound costs nothing; counting would read every text once more. */
const BYTES_PER_UNIT = 3;

export type BatchOptions<Item> = {
  maxItems?: number;
  maxInFlight?: number;
  /** UTF-16 units of an item's texts, where they can be long. A batch ends before the command grows past 4 MB. */
  lengthOf?: (item: Item) => number;
  /** True where a failure is not about items, as when the store is away. Then the items are not tried apart. */
  isShared?: (cause: unknown) => boolean;
};

/** In the place of a result: this item failed, its neighbours did not. */
export class ItemFailure {
  readonly cause: unknown;
  constructor(cause: unknown) {
    this.cause = cause;
  }
}

type Entry<Item, Result> = { item: Item; resolve: (result: Result) => void; reject: (cause: unknown) => void };

/**
 * Micro-batching: items that arrive while a write is in flight go out together as the next write.
 *
 * An item alone goes out in the same turn of the event loop; under load the batch grows by itself to what one write's
 * time brings in. Callers await one promise per item. `write` gets the items in the order they came and answers with one
 * result for each, in that order. A batch whose `write` throws is halved and tried again until the items that fail stand
 * alone, so that no item decides over its neighbours; `write` must therefore bear being called again for the same items.
 */
export const createBatcher = <Item, Result>(
  write: (items: Item[]) => Promise<(Result | ItemFailure)[]>,
  options: BatchOptions<Item> = {},
): ((item: Item) => Promise<Result>) => {
  const { maxItems = MAX_ITEMS, maxInFlight = MAX_IN_FLIGHT, lengthOf = () => 0, isShared = () => false } = options;
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
    await send(takeBatch());
    inFlight -= 1;
    schedule();
  };

  const schedule = (): void => {
    if (scheduled || gathered.length === 0 || inFlight >= maxInFlight) return;
    scheduled = true;
    // After the poll phase: every request that arrived in this turn of the loop is in the batch.
    setImmediate(() => {
      scheduled = false;
      if (gathered.length > 0 && inFlight < maxInFlight) void flush();
      schedule();
    });
  };

  return (item) =>
    new Promise<Result>((resolve, reject) => {
      gathered.push({ item, resolve, reject });
      schedule();
    });
};
