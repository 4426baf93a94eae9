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
