/**
 * The progress of making an assistant's vectors. It is a part of the assistant's document, so that one read returns the
 * assistant and this progress. The field is absent, or has no `model`, until the first vectors are made.
 */
export type Semantic = {
  model: string;
  /** The version of the assistant that these counts describe. */
  version: number;
  /**
   * `done`: entries with vectors for question and variants. `answers`: entries that also have a vector for the answer.
   * `total`: all entries.
   */
  done: number;
  answers: number;
  total: number;
  /** Incremented whenever vectors are stored, so that caches reload them. */
  revision: number;
  /** True if the knowledge has changed and some of it has no current vectors. */
  stale: boolean;
  /** The lease of the worker that makes the vectors. `until` is a time on MongoDB's clock. */
  lease: { token: string; until: Date };
};
