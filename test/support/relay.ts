import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export type Relay = {
  port: number;
  /** The server behind is away: connections break, new ones are refused. */
  cut: () => Promise<void>;
  mend: () => Promise<void>;
};

/** A way to a server that a test can cut and mend, without touching the server itself. */
export const openRelay = async (target: { host: string; port: number }): Promise<Relay> => {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): Socket => {
    sockets.add(socket);
    return socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket));
  };
  const server = createServer((near) => {
    const far = keep(connect(target.port, target.host));
    keep(near).on('close', () => far.destroy());
    far.on('close', () => near.destroy());
    near.pipe(far).pipe(near);
  });
  const listen = (port: number) => new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  await listen(0);
  const { port } = server.address() as AddressInfo;
  return {
    port,
    cut: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
    mend: () => listen(port),
  };
};
