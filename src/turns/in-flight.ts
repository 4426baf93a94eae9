/**
 * Counts the requests in flight in this process, by session. If a session has only one request in flight, its turn is
 * most likely the head of the pending turns. If it has several, a turn is most likely not the head.
 */
export const createSessionsInFlight = () => {
  const counts = new Map<string, number>();

  return {
    /**
     * Counts a request. The caller must call the returned function when the request has ended; further calls have no
     * effect.
     */
    enter: (key: string): (() => void) => {
      counts.set(key, (counts.get(key) ?? 0) + 1);
      let counted = true;
      return () => {
        if (!counted) return;
        counted = false;
        const left = (counts.get(key) ?? 1) - 1;
        if (left === 0) counts.delete(key);
        else counts.set(key, left);
      };
    },

    isAlone: (key: string): boolean => (counts.get(key) ?? 0) <= 1,
  };
};
