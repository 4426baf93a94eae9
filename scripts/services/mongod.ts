import mongoose from 'mongoose';
import * as z from 'zod';
import { type Service, type ServiceKind, type ServiceOptions, startService } from './process.ts';
import { type ServiceLocation, startCommand } from './program.ts';

export const SET = 'rs0';
const NOT_YET_INITIALISED = 94;

export const Hello = z.object({ isWritablePrimary: z.boolean().optional() });
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

export const withAdmin = async <Value>(port: number, work: (admin: Admin) => Promise<Value>): Promise<Value> => {
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
export const SMALL = ['--wiredTigerCacheSizeGB', '0.5', '--oplogSize', '256'];
/** With these, a mongod has fail points, and names itself when it connects to another mongod. */
export const TEST_COMMANDS = ['--setParameter', 'enableTestCommands=1'];

const settings = ({ port, dir, bind }: ServiceLocation, sizes: string[]): string[] => {
  const network = ['--port', String(port), '--bind_ip', bind, '--replSet', SET, '--nounixsocket'];
  const storage = ['--dbpath', dir, ...sizes];
  // Without the first parameter, a stop would wait 15 s for another member to become primary, but a single member has
  // no other.
  const shutdown = ['shutdownTimeoutMillisForSignaledShutdown=100', 'diagnosticDataCollectionEnabled=false'];
  // The files of dropped collections stay open for reads of the past, by default for five minutes. Hundreds of dropped
  // test databases would exceed the system's limit of open files, and the mongod would end.
  const parameters = [...shutdown, 'minSnapshotHistoryWindowInSeconds=60'];
  const log = ['--quiet', '--logpath', `${dir}/mongod.log`];
  return [...network, ...storage, ...log, ...parameters.flatMap((parameter) => ['--setParameter', parameter])];
};

export const mongodKind = (ready: ServiceKind['ready'], sizes: string[]): ServiceKind => ({
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
  startService(mongodKind(becomePrimary, [...(modest ? SMALL : []), ...(failPoints ? TEST_COMMANDS : [])]), options);
