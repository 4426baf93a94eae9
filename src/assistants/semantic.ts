/**
 * Progress of making an assistant's vectors, stored on the assistant so that one read gives both. Absent, or without a
 * model, before any vectors were made.
 */
export type Semantic = {
  model: string;
  /** The version of the assistant that these counts describe. */
  version: number;
  /** Entries with vectors for question and variants; entries with a vector for the answer too; all entries. */
  done: number;
  answers: number;
  total: number;
  /** Incremented whenever vectors are stored, so that caches reload them. */
  revision: number;
  /** True if the knowledge has changed and some of it has no current vectors. */
  stale: boolean;
  /** The lease of the worker that makes the vectors; `until` is the server's time. */
  lease: { token: string; until: Date };
};
