const MAX = 10_000;

/**
 * The conversations that were erased last. Their document is deleted a moment after the tombstone is written, so a row
 * may still be read in between.
 */
export const createErasedIds = () => {
  const ids = new Set<string>();

  return {
    has: (conversationId: string): boolean => ids.has(conversationId),

    add: (conversationId: string): void => {
      ids.add(conversationId);
      const [oldest] = ids;
      if (ids.size > MAX && oldest !== undefined) ids.delete(oldest);
    },
  };
};
