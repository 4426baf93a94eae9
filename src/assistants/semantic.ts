/**
 * How far the vectors of an assistant's knowledge are, kept on the assistant: whoever reads it learns both. Absent, or
 * without a model, while nothing was made.
 */
export type Semantic = {
  model: string;
  /** The assistant's version that the figures are of. */
  version: number;
  /** Entries whose question and variants have vectors; those whose answer has one too; all of them. */
  done: number;
  answers: number;
  total: number;
  /** Raised whenever vectors were stored: memories of them look again. */
  revision: number;
  /** The knowledge was changed, and not all of it has vectors again. */
  stale: boolean;
  /** Who makes them, until when by the server's clock. */
  lease: { token: string; until: Date };
};
