import { createHash } from 'node:crypto';

/**
 * All Redis keys of a partition share a hash tag. So a partition is stored on one node of a cluster, and one Lua call
 * may use several of its keys. A conversation's partition depends only on its `_id`.
 */
export type Partitions = {
  count: number;
  tags: string[];
  tagOf: (conversationKey: string) => string;
  indexOf: (conversationKey: string) => number;
};

export const createPartitions = (prefix: string, count: number): Partitions => {
  const tags = Array.from({ length: count }, (_, index) => `{${prefix}-${index}}`);
  const indexOf = (key: string): number =>
    count === 1 ? 0 : createHash('sha1').update(key).digest().readUInt32BE(0) % count;
  return { count, tags, indexOf, tagOf: (key) => tags[indexOf(key)] as string };
};
