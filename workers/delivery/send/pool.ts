import { performance } from 'node:perf_hooks';
import { type Connection, IDLE_MS } from './connection.ts';

const SWEEP_MS = 500;

/** Connections kept for the next request, by endpoint and origin; the youngest is taken first, the rest age away. */
export const createPool = () => {
  const idle = new Map<string, Connection[]>();
  let count = 0;
  let sweeper: NodeJS.Timeout | null = null;

  const stopWhenEmpty = () => {
    if (count > 0 || !sweeper) return;
    clearInterval(sweeper);
    sweeper = null;
  };

  const sweep = () => {
    const limit = performance.now() - IDLE_MS;
    for (const [key, connections] of idle) {
      const fresh = connections.filter((connection) => connection.alive && connection.idleSince > limit);
      for (const connection of connections) if (!fresh.includes(connection)) connection.close(false);
      count -= connections.length - fresh.length;
      if (fresh.length === 0) idle.delete(key);
      else idle.set(key, fresh);
    }
    stopWhenEmpty();
  };

  return {
    get size() {
      return count;
    },

    take: (key: string): Connection | null => {
      const connections = idle.get(key);
      const limit = performance.now() - IDLE_MS;
      for (let next = connections?.pop(); next; next = connections?.pop()) {
        count -= 1;
        if (next.alive && next.idleSince > limit) return next;
        next.close(false);
      }
      return null;
    },

    put: (key: string, connection: Connection): void => {
      connection.idleSince = performance.now();
      const connections = idle.get(key);
      if (connections) connections.push(connection);
      else idle.set(key, [connection]);
      count += 1;
      sweeper ??= setInterval(sweep, SWEEP_MS).unref();
    },

    /** Makes room for a new socket when all are taken. */
    dropOne: (): void => {
      for (const [key, connections] of idle) {
        const oldest = connections.shift();
        if (connections.length === 0) idle.delete(key);
        if (!oldest) continue;
        count -= 1;
        return oldest.close(false);
      }
    },

    close: (): void => {
      for (const connections of idle.values()) for (const connection of connections) connection.close(false);
      idle.clear();
      count = 0;
      stopWhenEmpty();
    },
  };
};
export type Pool = ReturnType<typeof createPool>;
