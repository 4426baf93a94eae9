import { Hello, mongodKind, SET, SMALL, TEST_COMMANDS, withAdmin } from './mongod.ts';
import { type Service, startService } from './process.ts';

const ELECTION_TRIES = 400;

const answers = async ({ port }: { port: number }): Promise<void> => {
  await withAdmin(port, (admin) => admin.command({ hello: 1 }));
};

export type ReplicaSet = {
  url: string;
  members: Service[];
  /** Finds the current primary, other than `except`. Resolves with null if the set has none. */
  findPrimary: (except?: Service) => Promise<Service | null>;
  /** Starts an election immediately, without waiting for the election timeout. */
  elect: (member: Service) => Promise<void>;
  dispose: () => Promise<void>;
};

type ReplicaSetOptions = {
  /** The time after which a dead member is noticed. */
  electionTimeoutMs?: number;
  /** The port on which peers and clients reach the member with this port. Default: its own. */
  announcedPortOf?: (port: number) => Promise<number>;
};

/** Starts a replica set of several members on 127.0.0.1. The first member becomes the primary. */
export const startReplicaSet = async (
  count: number,
  { electionTimeoutMs = 2_000, announcedPortOf = (port) => Promise.resolve(port) }: ReplicaSetOptions = {},
): Promise<ReplicaSet> => {
  const kind = mongodKind(answers, [...SMALL, ...TEST_COMMANDS]);
  const members: Service[] = [];
  const dispose = async (): Promise<void> => {
    await Promise.all(members.map((member) => member.dispose()));
  };
  const findPrimary = async (except?: Service): Promise<Service | null> => {
    const others = members.filter((member) => member !== except);
    const roles = await Promise.all(
      others.map(async ({ pid, port }) =>
        pid === undefined ? null : withAdmin(port, (admin) => admin.command({ hello: 1 })).catch(() => null),
      ),
    );
    const at = roles.findIndex((role) => role !== null && Hello.parse(role).isWritablePrimary === true);
    return others[at] ?? null;
  };
  const elect = async ({ port }: Service): Promise<void> => {
    await withAdmin(port, (admin) => admin.command({ replSetStepUp: 1 }));
  };
  const start = async (): Promise<string> => {
    while (members.length < count) members.push(await startService(kind, {}));
    const ports = await Promise.all(members.map(({ port }) => announcedPortOf(port)));
    const hosts = ports.map((port, _id) => ({ _id, host: `127.0.0.1:${port}` }));
    const config = { _id: SET, members: hosts, settings: { electionTimeoutMillis: electionTimeoutMs } };
    await withAdmin(members[0]?.port ?? 0, (admin) => admin.command({ replSetInitiate: config }));
    for (let tries = 0; (await findPrimary()) !== members[0]; tries++) {
      if (tries === ELECTION_TRIES) throw new Error('the replica set has no primary');
      // The election fails until the members have exchanged heartbeats.
      await elect(members[0] as Service).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return `mongodb://${hosts.map(({ host }) => host).join(',')}/parley?replicaSet=${SET}`;
  };
  try {
    return { url: await start(), members, findPrimary, elect, dispose };
  } catch (cause) {
    await dispose();
    throw cause;
  }
};
