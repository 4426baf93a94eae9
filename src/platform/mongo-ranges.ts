/** The highest number of index ranges that MongoDB merges in order. With more ranges, it would sort all results. */
export const INDEX_RANGES_MAX = 200;
const VALUES_AT_ONCE = 100;

/** Splits the values of an `$in`, so that MongoDB can read the results of each part from an index in order. */
export const inChunks = <Value>(all: Value[], size = VALUES_AT_ONCE): Value[][] =>
  Array.from({ length: Math.ceil(all.length / size) }, (_, nth) => all.slice(nth * size, (nth + 1) * size));
