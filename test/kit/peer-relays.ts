import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** A member: the port to which its relay leads, and the id by which it names itself to its peers. */
type Member = { port: number; id?: string };
/** `from` is the id of the member that connected, or null for a client. */
type Link = { to: number; from: string | null; near: Socket; far: Socket };

/** Reads from the first message of a connection which member sends it. Null: a client. */
type SenderOf = (first: Buffer) => string | null;

/** A node of a Redis Cluster names itself in the header of each message to its peers. Clients use another port. */
export const clusterNode: SenderOf = (first) => first.subarray(40, 80).toString('latin1');

/**
 * A mongod names its host and port in its first message if it accepts test commands. MongoDB's own mongobridge relies
 * on this too. The id of a member is its port.
 */
export const mongodMember: SenderOf = (first) =>
  /hostInfo\0.{4}[^\0:]{1,255}:(\d{1,5})\0/s.exec(first.toString('latin1'))?.[1] ?? null;

/**
 * A sentinel gives its connection a name that starts with `sentinel-`. A replica begins with PING. Clients begin with
 * other commands. Only a master is ever isolated, and a master connects to nobody, so the sender needs no id.
 */
export const sentinelOrReplica: SenderOf = (first) => {
  const text = first.toString('latin1');
  return text.startsWith('*1\r\n$4\r\nPING\r\n') || text.includes('\r\nsentinel-') ? '' : null;
};

/** Relays to the members of a replicated store. They can separate a member from its peers, but not from its clients. */
export const openPeerRelays = (senderOf: SenderOf) => {
  const links = new Set<Link>();
  const servers: Server[] = [];
  let isolated: Member | null = null;

  const isSilent = ({ to, from }: Link): boolean =>
    isolated !== null && from !== null && (to === isolated.port || from === isolated.id);
  /** Only `unpipe` stops a stream for certain. A paused one continues when its target has drained. */
  const apply = (link: Link): void => {
    const { near, far } = link;
    near.unpipe(far);
    far.unpipe(near);
    if (!isSilent(link)) near.pipe(far).pipe(near);
  };
  const applyAll = (): void => {
    for (const link of links) apply(link);
  };

  const accept = (near: Socket, to: number): void => {
    const far = connect(to, '127.0.0.1');
    const end = (): void => {
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) socket.on('error', end).on('close', end);
    near.once('data', (first: Buffer) => {
      near.pause();
      near.unshift(first);
      const link: Link = { to, from: senderOf(first), near, far };
      links.add(link);
      near.once('close', () => links.delete(link));
      apply(link);
    });
  };

  return {
    /** Opens a relay to the member with this port. Returns the relay's port. */
    relayTo: async (port: number): Promise<number> => {
      const server = createServer((near) => accept(near, port));
      servers.push(server);
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return (server.address() as AddressInfo).port;
    },

    /**
     * Lets no byte pass between this member and its peers, in both directions, until `heal`. Connections stay open, and
     * new ones are accepted.
     */
    isolate: (member: Member): void => {
      isolated = member;
      applyAll();
    },

    heal: (): void => {
      isolated = null;
      applyAll();
    },

    close: (): void => {
      for (const server of servers) server.close();
      for (const { near, far } of links) for (const socket of [near, far]) socket.destroy();
    },
  };
};
