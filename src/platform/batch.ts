/**
 * Micro-batching: items that arrive while a write is in flight go out together as one write.
 *
 * An item alone goes out in the same turn of the event loop; under load the batch grows by itself to what one write's
 * time brings in. Callers await one promise per item. `write` gets the items in the order they came and answers with one
 * result for each, in that order; where it throws, every item of that batch is rejected with what it threw.
 */
export const createBatcher = <Item, Result>(
  write: (items: Item[]) => Promise<Result[]>,
  { maxItems = 256, maxInFlight = 2 }: { maxItems?: number; maxInFlight?: number } = {},
): ((item: Item) => Promise<Result>) => {
  type Entry = { item: Item; resolve: (result: Result) => void; reject: (cause: unknown) => void };
  let gathered: Entry[] = [];
  let inFlight = 0;
  let scheduled = false;

  const flush = async (): Promise<void> => {
    const batch = gathered.slice(0, maxItems);
    gathered = gathered.slice(maxItems);
    inFlight += 1;
    try {
      const results = await write(batch.map(({ item }) => item));
      batch.forEach((entry, index) => entry.resolve(results[index] as Result));
    } catch (cause) {
      for (const entry of batch) entry.reject(cause);
    } finally {
      inFlight -= 1;
      schedule();
    }
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
