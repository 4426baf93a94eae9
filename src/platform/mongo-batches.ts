import type { mongo } from 'mongoose';

const BATCH = 500;

/**
 * Does something to all that match, some at a time, so that no step takes near as long as a connection may be silent. What
 * broke off, by a fault or by `until`, is begun again by the next call: each step must be good for twice.
 */
export const inBatches = async <Row extends { _id: string }>(
  { collection, filter, until }: { collection: mongo.Collection<Row>; filter: mongo.Filter<Row>; until?: AbortSignal },
  work: (some: mongo.Filter<Row>) => Promise<unknown>,
): Promise<void> => {
  const found = collection.find(filter, { projection: { _id: 1 }, batchSize: BATCH });
  try {
    let ids: Row['_id'][] = [];
    const flush = async (): Promise<void> => {
      const some = ids;
      ids = [];
      if (some.length > 0) await work({ _id: { $in: some } } as mongo.Filter<Row>);
    };
    for await (const { _id } of found) {
      until?.throwIfAborted();
      ids.push(_id);
      if (ids.length === BATCH) await flush();
    }
    await flush();
  } finally {
    await found.close();
  }
};
