import mongoose, { type Connection } from 'mongoose';

// What this file uses of the driver's connection is not part of its public interface. Checked with mongodb 7.8.0.
type DriverConnection = {
  socket: { destroyed: boolean };
  onError: (error: Error) => void;
  writeCommand: (...args: unknown[]) => Promise<void>;
};
type Driver = { topology?: { s: { servers: Map<string, { pool: { connections: Iterable<DriverConnection> } }> } } };

const mended = new WeakSet<object>();

/**
 * Makes a command fail if the server has just ended its connection. Without this, the driver waits forever: a
 * write to an ended socket asks it to wait until the socket has drained, and that never happens. The caller would get
 * no response, a batcher would lose one of its two places, and the pool would lose a connection.
 *
 * Call this when at least one command was answered, because the pool then has a connection.
 */
export const failOnEndedConnections = (connection: Connection): void => {
  const { topology } = connection.getClient() as unknown as Driver;
  const [open] = [...(topology?.s.servers.values() ?? [])].flatMap(({ pool }) => [...pool.connections]);
  if (!open) throw new Error('the MongoDB driver has no open connection');
  const prototype = Object.getPrototypeOf(open) as DriverConnection;
  if (mended.has(prototype)) return;
  mended.add(prototype);
  const { writeCommand } = prototype;
  prototype.writeCommand = function (this: DriverConnection, ...args) {
    if (!this.socket.destroyed) return writeCommand.apply(this, args);
    const error = new mongoose.mongo.MongoNetworkError('the server has ended the connection');
    this.onError(error);
    return Promise.reject(error);
  };
};
