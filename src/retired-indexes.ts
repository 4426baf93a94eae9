import type { Connection, mongo } from 'mongoose';
import type { Logger } from './platform/logger.ts';

type RetiredIndex = { name: string; key: Record<string, 1 | -1> };

/**
 * Indexes of older releases, by collection. Add an index here when you remove or change its `schema.index(…)`.
 * Otherwise the old index stays in existing databases and slows down every write.
 */
export const RETIRED_INDEXES: Readonly<Record<string, readonly RetiredIndex[]>> = {
  deliveries: [
    // Replaced by the index that also contains endpoint and event. The new index serves every filter of the delivery
    // list.
    { name: 'assistantId_1_createdAt_-1__id_-1', key: { assistantId: 1, createdAt: -1, _id: -1 } },
  ],
};

/** MongoDB's error code when the index does not exist. Another process may have dropped the index already. */
const INDEX_NOT_FOUND = 27;

/** The properties of an index that was declared without options. All retired indexes were declared without options. */
const PLAIN = new Set(['v', 'key', 'name', 'hidden']);

/**
 * True if the index is one of our retired indexes. The name alone does not prove this, because the owner of the
 * database may have created an index with the same name.
 */
const isOurs = (found: mongo.IndexDescriptionInfo, { name, key }: RetiredIndex): boolean =>
  found.name === name &&
  JSON.stringify(found.key) === JSON.stringify(key) && // the order of the fields counts
  Object.keys(found).every((property) => PLAIN.has(property));

const wasDropped = (cause: unknown): boolean => (cause as { code?: unknown } | null)?.code === INDEX_NOT_FOUND;

/** Drops the indexes of older releases once their replacements exist. A failure does not stop the start. */
export const dropRetiredIndexes = async (connection: Connection, logger: Logger): Promise<void> => {
  const drop = async (collection: string, { name, key }: RetiredIndex): Promise<void> => {
    const own = connection.collection(collection);
    try {
      const found = await own.indexes();
      if (!found.some((stored) => isOurs(stored, { name, key }))) return;
      await own.dropIndex(name);
      logger.info({ collection, index: name }, 'dropped an index of an older release');
    } catch (cause) {
      if (!wasDropped(cause))
        logger.warn({ err: cause, collection, index: name }, 'an index of an older release could not be dropped');
    }
  };
  const all = Object.entries(RETIRED_INDEXES).flatMap(([collection, retired]) =>
    retired.map((index) => drop(collection, index)),
  );
  await Promise.all(all);
};
