import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export type Relay = {
  port: number;
  /** Breaks all connections and refuses new ones. */
  cut: () => Promise<void>;
  /** Refuses new connections and keeps the open ones. */
  refuse: () => void;
  mend: () => Promise<void>;
  /** Keeps and accepts connections, but passes no byte in either direction. */
  freeze: () => void;
  /** Silences the open connections only. New ones work. */
  strand: () => void;
  /** Ends `freeze` or `strand`, and passes on all bytes that were sent in the meantime. */
  thaw: () => void;
};

/** A MongoDB command: its name and its collection. */
export type Command = { name: string; collection: string };

export type RelayOptions = {
  loses?: (command: Command) => (() => void) | null;
  swallows?: (command: Command) => boolean;
  holds?: (command: Command) => Promise<void> | null;
};

/** Parses the commands of the wire protocol. Anything but OP_MSG is ignored. */
const eachCommand = (seen: (bytes: Buffer, command: Command | null) => void): ((chunk: Buffer) => void) => {
  let rest = Buffer.alloc(0);
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 4 && rest.length >= rest.readInt32LE(0)) {
      const bytes = rest.subarray(0, rest.readInt32LE(0));
      rest = rest.subarray(bytes.length);
      // Header, flags, section kind, document length; then the first element, `{ update: 'conversations', … }`.
      const named = bytes.readInt32LE(12) === 2013 && bytes[20] === 0 && bytes[25] === 2;
      const [name = ''] = named ? bytes.subarray(26, 90).toString('latin1').split('\0', 1) : [];
      const value = 26 + name.length + 1;
      const collection = named ? bytes.subarray(value + 4, value + 3 + bytes.readInt32LE(value)).toString() : '';
      seen(bytes, named ? { name, collection } : null);
    }
  };
};

/**
 * A TCP relay to a server. A test can break its connections without touching the server. The options work on MongoDB
 * commands:
 * - `loses`: the command reaches the server, then its connection breaks before the response. The returned function is
 *   called at that moment; null passes the command.
 * - `swallows`: if true, the command reaches the server, then no more bytes come back, and the connection stays open.
 * - `holds`: the command reaches the server once the returned promise resolves; null passes the command.
 * Without options, the relay works for any protocol.
 */
export const openRelay = async (address: string, options?: RelayOptions): Promise<Relay> => {
  const target = new URL(address);
  const sockets = new Set<Socket>();
  let frozen = false;
  const keep = (socket: Socket): Socket => {
    sockets.add(socket);
    return socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket));
  };
  const server = createServer((near) => {
    const far = keep(connect(Number(target.port), target.hostname));
    keep(near).on('close', () => far.destroy());
    far.on('close', () => near.destroy());
    far.pipe(near);
    if (frozen) for (const socket of [near, far]) socket.pause();
    if (!options) {
      near.pipe(far);
      if (frozen) near.pause();
      return;
    }
    const { loses = () => null, swallows = () => false, holds = () => null } = options;
    near.on(
      'data',
      eachCommand((bytes, command) => {
        const onLost = command && loses(command);
        const lose = (): void => {
          near.destroy();
          onLost?.();
        };
        if (command && swallows(command)) far.unpipe(near).resume();
        if (onLost) far.unpipe(near).once('data', lose).resume();
        const held = command && holds(command);
        if (held) void held.then(() => far.write(bytes));
        else far.write(bytes);
      }),
    );
    if (frozen) near.pause();
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
    refuse: () => void server.close(),
    mend: () => listen(port),
    freeze: () => {
      frozen = true;
      for (const socket of sockets) socket.pause();
    },
    strand: () => {
      for (const socket of sockets) socket.pause();
    },
    thaw: () => {
      frozen = false;
      for (const socket of sockets) socket.resume();
    },
  };
};

/** The same address through a relay. The driver must not discover other addresses, which would bypass the relay. */
export const through = (address: string, relay: Relay): string => {
  const relayed = new URL(address);
  relayed.host = `127.0.0.1:${relay.port}`;
  if (relayed.protocol === 'mongodb:') relayed.search = '?directConnection=true';
  return relayed.href;
};
