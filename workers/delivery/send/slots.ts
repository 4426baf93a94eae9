/** How many requests may be under way, to one endpoint and in all. Those in line go in turn, endpoint by endpoint. */
export const createSlots = ({ perEndpoint, total }: { perEndpoint: number; total: number }) => {
  const active = new Map<string, number>();
  const lines = new Map<string, (() => void)[]>();
  let inUse = 0;
  let serving = false;

  const free = (endpointId: string): boolean => inUse < total && (active.get(endpointId) ?? 0) < perEndpoint;

  const take = (endpointId: string): void => {
    inUse += 1;
    active.set(endpointId, (active.get(endpointId) ?? 0) + 1);
  };

  const next = (): (() => void) | null => {
    for (const [endpointId, line] of lines) {
      if (!free(endpointId)) continue;
      const start = line.shift();
      // To the end of the round, so that one endpoint's long line does not hold up the others.
      lines.delete(endpointId);
      if (line.length > 0) lines.set(endpointId, line);
      if (!start) continue;
      take(endpointId);
      return start;
    }
    return null;
  };

  return {
    get inUse() {
      return inUse;
    },

    /** Starts at once when there is room (true), else when a slot comes free. */
    enter: (endpointId: string, start: () => void): boolean => {
      if (free(endpointId)) {
        take(endpointId);
        start();
        return true;
      }
      const line = lines.get(endpointId);
      if (line) line.push(start);
      else lines.set(endpointId, [start]);
      return false;
    },

    /** Gives up a place in line; false when it has started. */
    quit: (endpointId: string, start: () => void): boolean => {
      const line = lines.get(endpointId);
      const at = line?.indexOf(start) ?? -1;
      if (!line || at === -1) return false;
      line.splice(at, 1);
      if (line.length === 0) lines.delete(endpointId);
      return true;
    },

    leave: (endpointId: string): void => {
      inUse -= 1;
      const left = (active.get(endpointId) ?? 1) - 1;
      if (left === 0) active.delete(endpointId);
      else active.set(endpointId, left);
      // A start may end at once and come back here: a loop, so that a long line cannot exhaust the stack.
      if (serving) return;
      serving = true;
      for (let start = next(); start; start = next()) start();
      serving = false;
    },
  };
};
export type Slots = ReturnType<typeof createSlots>;
