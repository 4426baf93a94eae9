import mongoose from 'mongoose';
import * as z from 'zod';
import { type Service, type ServiceOptions, startService } from './process.ts';
import { type Place, startCommand } from './program.ts';

const SET = 'rs0';
const NOT_YET_INITIALISED = 94;

const Hello = z.object({ isWritablePrimary: z.boolean().optional() });
const SetConfig = z.object({
  config: z.looseObject({ version: z.number(), members: z.array(z.looseObject({ host: z.string() })) }),
});

type Admin = { command: (command: Record<string, unknown>) => Promise<unknown> };

/** Null before the set exists. */
const readSetConfig = async (admin: Admin): Promise<z.infer<typeof SetConfig>['config'] | null> => {
  try {
    return SetConfig.parse(await admin.command({ replSetGetConfig: 1 })).config;
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === NOT_YET_INITIALISED) return null;
    throw cause;
  }
};

/** Makes the one member a set; data from an earlier start remembers its old port, and is told the new one. */
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
  // By force: a node that does not find itself in the set's list has no primary to ask.
  await admin.command({ replSetReconfig: moved, force: true });
};

const becomePrimary = async ({ port }: { port: number }): Promise<void> => {
  const client = new mongoose.mongo.MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`, {
    serverSelectionTimeoutMS: 500,
    connectTimeoutMS: 500,
  });
  try {
    const admin = client.db('admin');
    await formSet(admin, `127.0.0.1:${port}`);
    for (let tries = 0; tries < 100; tries++) {
      if (Hello.parse(await admin.command({ hello: 1 })).isWritablePrimary) return;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    throw new Error('not yet primary');
  } finally {
    await client.close();
  }
};

/** For a laptop, and for many at once. */
const MODEST = ['--wiredTigerCacheSizeGB', '0.5', '--oplogSize', '256'];

const settings = ({ port, dir, bind }: Place, sizes: string[]): string[] => {
  const network = ['--port', String(port), '--bind_ip', bind, '--replSet', SET, '--nounixsocket'];
  const storage = ['--dbpath', dir, ...sizes];
  // A set of one has nobody to hand over to: without the first of these a stop waits 15 s.
  const parameters = ['shutdownTimeoutMillisForSignaledShutdown=100', 'diagnosticDataCollectionEnabled=false'];
  const log = ['--quiet', '--logpath', `${dir}/mongod.log`];
  return [...network, ...storage, ...log, ...parameters.flatMap((parameter) => ['--setParameter', parameter])];
};

/**
 * A mongod of our own on 127.0.0.1, a replica set of one: `w: majority, j: true` and transactions work as in production.
 * `modest: false` leaves it the memory that it takes by itself, as on a server.
 */
export const startMongod = ({
  modest = true,
  ...options
}: ServiceOptions & { modest?: boolean } = {}): Promise<Service> =>
  startService(
    {
      name: 'mongod',
      logFile: 'mongod.log',
      url: (port) => `mongodb://127.0.0.1:${port}/parley?replicaSet=${SET}`,
      ready: becomePrimary,
      start: (where) =>
        startCommand(
          { service: 'mongodb', program: 'mongod', settings: (place) => settings(place, modest ? MODEST : []) },
          where,
        ),
    },
    options,
  );
