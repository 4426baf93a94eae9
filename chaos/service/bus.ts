import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { BUS_OFFSET } from '../../scripts/services.ts';

/** A member: the port of its clients, and the id by which it signs its messages to its peers. */
type Member = { port: number; id: string };
type Link = { to: number; from: string; near: Socket; far: Socket };

/** Where a message between nodes of a Redis Cluster names its sender. */
const SENDER = { from: 40, to: 80 };

/** Relays between the nodes of a Redis Cluster. Clients do not pass through them. */
export const openBus = () => {
  const links = new Set<Link>();
  const servers: Server[] = [];
  let isolated: Member | null = null;

  const isSilent = ({ to, from }: Link): boolean => to === isolated?.port || from === isolated?.id;
  const apply = (link: Link): void => {
    const silent = isSilent(link);
    for (const socket of [link.near, link.far]) {
      if (silent) socket.pause();
      else socket.resume();
    }
  };

  /** Connects a node with a peer. The first message tells which node it is. */
  const accept = (near: Socket, to: number): void => {
    const far = connect(to + BUS_OFFSET, '127.0.0.1');
    const end = (): void => {
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) socket.on('error', end).on('close', end);
    near.once('data', (first: Buffer) => {
      const link: Link = { to, from: first.subarray(SENDER.from, SENDER.to).toString('latin1'), near, far };
      if (isSilent(link)) return end(); // the node tries again
      links.add(link);
      near.once('close', () => links.delete(link));
      far.write(first);
      near.pipe(far).pipe(near);
    });
  };

  return {
    /** Opens a relay to the node with this port. Returns the relay's port. */
    relayTo: async (port: number): Promise<number> => {
      const server = createServer((near) => accept(near, port));
      servers.push(server);
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return (server.address() as AddressInfo).port;
    },

    /** Lets no byte pass between this node and its peers, in both directions, until `heal`. */
    isolate: (member: Member): void => {
      isolated = member;
      for (const link of links) apply(link);
    },

    heal: (): void => {
      isolated = null;
      for (const link of links) apply(link);
    },

    close: (): void => {
      for (const server of servers) server.close();
      for (const { near, far } of links) for (const socket of [near, far]) socket.destroy();
    },
  };
};
