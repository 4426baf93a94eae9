import mongoose from 'mongoose';
import * as z from 'zod';
import { type Service, type ServiceKind, type ServiceOptions, startService } from './process.ts';
import { type ServiceLocation, startCommand } from './program.ts';

const SET = 'rs0';
const NOT_YET_INITIALISED = 94;
const ELECTION_TRIES = 400;

const Hello = z.object({ isWritablePrimary: z.boolean().optional() });
const SetConfig = z.object({
  config: z.looseObject({ version: z.number(), members: z.array(z.looseObject({ host: z.string() })) }),
});

type Admin = { command: (command: Record<string, unknown>) => Promise<unknown> };

/** Reads the configuration of the replica set. Returns null if the set does not exist yet. */
const readSetConfig = async (admin: Admin): Promise<z.infer<typeof SetConfig>['config'] | null> => {
  try {
    return SetConfig.parse(await admin.command({ replSetGetConfig: 1 })).config;
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === NOT_YET_INITIALISED) return null;
    throw cause;
  }
};

/**
 * Creates a replica set of one member, or updates the member's port if the data of an earlier start has an old port.
 */
const formSet = async (admin: Admin, host: string): Promise<void> => {
  const config = await readSetConfig(admin);
  if (config === null) {
    const settings = { electionTimeoutMillis: 1000 };
    await admin.command({ replSetInitiate: { _id: SET, members: [{ _id: 0, host }], settings } });
    return;
  }
  const [member] = config.members;
  if (member?.host === host) return;
  const moved = { ...config, version: config.version + 1, members: [{ ...member, host }] };
  // `force` is needed: the old configuration does not contain this address, so no member is primary.
  await admin.command({ replSetReconfig: moved, force: true });
};

const withAdmin = async <Value>(port: number, work: (admin: Admin) => Promise<Value>): Promise<Value> => {
  const client = new mongoose.mongo.MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`, {
    serverSelectionTimeoutMS: 500,
    connectTimeoutMS: 500,
  });
  try {
    return await work(client.db('admin'));
  } finally {
    await client.close();
  }
};

const becomePrimary = ({ port }: { port: number }): Promise<void> =>
  withAdmin(port, async (admin) => {
    await formSet(admin, `127.0.0.1:${port}`);
    for (let tries = 0; tries < 100; tries++) {
      if (Hello.parse(await admin.command({ hello: 1 })).isWritablePrimary) return;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    throw new Error('not yet primary');
  });

/** Small cache and log sizes, so that many instances fit on a laptop. */
const SMALL = ['--wiredTigerCacheSizeGB', '0.5', '--oplogSize', '256'];

const settings = ({ port, dir, bind }: ServiceLocation, sizes: string[]): string[] => {
  const network = ['--port', String(port), '--bind_ip', bind, '--replSet', SET, '--nounixsocket'];
  const storage = ['--dbpath', dir, ...sizes];
  // Without the first parameter, a stop would wait 15 s for another member to become primary, but a single member has
  // no other.
  const parameters = ['shutdownTimeoutMillisForSignaledShutdown=100', 'diagnosticDataCollectionEnabled=false'];
  const log = ['--quiet', '--logpath', `${dir}/mongod.log`];
  return [...network, ...storage, ...log, ...parameters.flatMap((parameter) => ['--setParameter', parameter])];
};

const mongodKind = (ready: ServiceKind['ready'], sizes: string[]): ServiceKind => ({
  name: 'mongod',
  logFile: 'mongod.log',
  url: (port) => `mongodb://127.0.0.1:${port}/parley?replicaSet=${SET}`,
  ready,
  start: (where) =>
    startCommand({ service: 'mongodb', program: 'mongod', settings: (place) => settings(place, sizes) }, where),
});

/**
 * Starts a mongod on 127.0.0.1 as a replica set of one, so that `w: majority, j: true` and transactions work as in
 * production. With `modest: false`, the mongod may use as much memory as on a server. With `failPoints`, a test can let
 * commands fail, such as those of a full disk.
 */
export const startMongod = ({
  modest = true,
  failPoints = false,
  ...options
}: ServiceOptions & { modest?: boolean; failPoints?: boolean } = {}): Promise<Service> =>
  startService(
    mongodKind(becomePrimary, [
      ...(modest ? SMALL : []),
      ...(failPoints ? ['--setParameter', 'enableTestCommands=1'] : []),
    ]),
    options,
  );

const answers = async ({ port }: { port: number }): Promise<void> => {
  await withAdmin(port, (admin) => admin.command({ hello: 1 }));
};

export type ReplicaSet = {
  url: string;
  members: Service[];
  /** Finds the current primary. Resolves with null if the set has none. */
  findPrimary: () => Promise<Service | null>;
  /** Starts an election immediately, without waiting for the election timeout. */
  elect: (member: Service) => Promise<void>;
  dispose: () => Promise<void>;
};

/**
 * Starts a replica set of several members on 127.0.0.1. The first member becomes the primary. `electionTimeoutMs` is
 * the time after which a dead member is noticed.
 */
export const startReplicaSet = async (
  count: number,
  { electionTimeoutMs = 2_000 }: { electionTimeoutMs?: number } = {},
): Promise<ReplicaSet> => {
  const members = await Promise.all(Array.from({ length: count }, () => startService(mongodKind(answers, SMALL), {})));
  const hosts = members.map(({ port }, _id) => ({ _id, host: `127.0.0.1:${port}` }));
  const dispose = async (): Promise<void> => {
    await Promise.all(members.map((member) => member.dispose()));
  };
  const findPrimary = async (): Promise<Service | null> => {
    const roles = await Promise.all(
      members.map(async ({ pid, port }) =>
        pid === undefined ? null : withAdmin(port, (admin) => admin.command({ hello: 1 })).catch(() => null),
      ),
    );
    const at = roles.findIndex((role) => role !== null && Hello.parse(role).isWritablePrimary === true);
    return members[at] ?? null;
  };
  const elect = async ({ port }: Service): Promise<void> => {
    await withAdmin(port, (admin) => admin.command({ replSetStepUp: 1 }));
  };
  try {
    const config = { _id: SET, members: hosts, settings: { electionTimeoutMillis: electionTimeoutMs } };
    await withAdmin(members[0]?.port ?? 0, (admin) => admin.command({ replSetInitiate: config }));
    for (let tries = 0; (await findPrimary()) !== members[0]; tries++) {
      if (tries === ELECTION_TRIES) throw new Error('the replica set has no primary');
      // The election fails until the members have exchanged heartbeats.
      await elect(members[0] as Service).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  } catch (cause) {
    await dispose();
    throw cause;
  }
  return {
    url: `mongodb://${hosts.map(({ host }) => host).join(',')}/parley?replicaSet=${SET}`,
    members,
    findPrimary,
    elect,
    dispose,
  };
};
