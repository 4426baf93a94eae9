/**
 * Requests of each session that this process is answering. A turn that is alone in its session is most likely the head of
 * the pending turns; beside others it is most likely not.
 */
export const createSessionsInFlight = () => {
  const counts = new Map<string, number>();

  return {
    /** Counts a request in; the answer counts it out, once. */
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
