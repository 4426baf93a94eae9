import type { Connection } from './connection.ts';

/**
 * Idle connections, by endpoint and origin. The newest connection is used first. undici closes connections that are
 * idle for too long, and a closed connection is removed from the pool.
 */
export const createPool = ({ perKey }: { perKey: number }) => {
  const idle = new Map<string, Connection[]>();
  let count = 0;

  const remove = (key: string, connection: Connection): void => {
    const connections = idle.get(key) ?? [];
    const at = connections.indexOf(connection);
    if (at === -1) return;
    connections.splice(at, 1);
    if (connections.length === 0) idle.delete(key);
    connection.onClose = null;
    count -= 1;
  };

  return {
    get size() {
      return count;
    },

    take: (key: string): Connection | null => {
      for (let next = idle.get(key)?.at(-1); next; next = idle.get(key)?.at(-1)) {
        remove(key, next);
        if (next.alive) return next;
      }
      return null;
    },

    put: (key: string, connection: Connection): void => {
      const connections = idle.get(key) ?? [];
      if (connections.length >= perKey) return connection.close(false);
      idle.set(key, connections);
      connections.push(connection);
      connection.onClose = () => remove(key, connection);
      count += 1;
    },

    /** Closes an idle connection to make room for a new one. */
    dropOne: (): void => {
      for (const [key, [oldest]] of idle) {
        if (!oldest) continue;
        remove(key, oldest);
        return oldest.close(false);
      }
    },

    close: (): void => {
      for (const connections of idle.values()) for (const connection of connections) connection.close(false);
      idle.clear();
      count = 0;
    },
  };
};
export type Pool = ReturnType<typeof createPool>;
