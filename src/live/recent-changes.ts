import type { Changes } from './change-feed.ts';

const MAX_KEYS = 20_000;

/** One batch of all changes. Each conversation is named once. */
export const merge = (batches: Pick<Changes, 'keys' | 'erased'>[], position: string): Changes => ({
  keys: [...new Set(batches.flatMap(({ keys }) => keys))],
  erased: batches.flatMap(({ erased }) => erased),
  position,
});

/**
 * The latest changes of this process, so that a browser that reconnects soon needs no read of the change stream.
 * Bounded: the oldest changes are dropped first.
 */
export const createRecentChanges = (start: string) => {
  const batches: Changes[] = [];
  let kept = 0;
  let [oldest, newest] = [start, start];

  const sizeOf = ({ keys, erased }: Changes): number => keys.length + erased.length;

  return {
    /** The position of the latest batch. */
    newest: (): string => newest,
    /** Changes after this position are all known. */
    oldest: (): string => oldest,

    add: (changes: Changes): void => {
      newest = changes.position;
      if (sizeOf(changes) === 0) return;
      batches.push(changes);
      kept += sizeOf(changes);
      while (kept > MAX_KEYS) {
        const dropped = batches.shift();
        if (!dropped) return;
        oldest = dropped.position;
        kept -= sizeOf(dropped);
      }
    },

    /** All changes after the position. The position must not be before `oldest`. */
    since: (position: string): Changes =>
      merge(
        batches.filter((batch) => batch.position > position),
        newest,
      ),
  };
};

export type RecentChanges = ReturnType<typeof createRecentChanges>;
