/**
 * Counts the requests of each session that this process is answering. The only request of a session is most likely the
 * head of its pending turns. One among several most likely is not.
 */
export const createSessionsInFlight = () => {
  const counts = new Map<string, number>();

  return {
    /** Counts a request. Returns the function to call when it has ended; calling it twice counts once. */
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
