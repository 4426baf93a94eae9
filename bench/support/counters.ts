import { Redis } from 'ioredis';
import mongoose from 'mongoose';
import { atClose, cpuMsOf, type Services } from '../../test/kit/services.ts';

/**
 * The totals so far: CPU by process in ms, and operation counts of MongoDB and Redis. In a reading that `perItem`
 * returns, CPU is in µs.
 */
export type Reading = { cpu: Record<string, number>; counts: Record<string, number> };

type ServerStatus = {
  metrics: { commands: Record<string, { total?: number } | number> };
  wiredTiger: { log: Record<string, number> };
  network: { bytesIn: number; bytesOut: number };
};

/** Commands that are not counted, because the bench itself or the driver's heartbeats send them. */
const NOT_WORK = new Set(['serverStatus', 'hello', 'isMaster', 'ping', 'replSetGetStatus']);

const commandsOf = ({ metrics }: ServerStatus): number =>
  Object.entries(metrics.commands)
    .filter(([name]) => !NOT_WORK.has(name))
    .reduce((sum, [, one]) => sum + (typeof one === 'number' ? 0 : (one.total ?? 0)), 0);

const numberIn = (info: string, name: string): number => Number(new RegExp(`${name}:(\\d+)`).exec(info)?.[1] ?? 0);

export const openCounters = async (services: Services) => {
  const client = await mongoose.mongo.MongoClient.connect(services.mongodbUrlOf('admin'));
  const redis = new Redis(services.redisUrl);
  redis.on('error', () => undefined); // a failed connection also fails its commands, which is reported
  atClose(() => redis.disconnect());
  atClose(() => client.close());

  return {
    read: async (pids: Record<string, number>): Promise<Reading> => {
      const status = (await client.db('admin').command({ serverStatus: 1 })) as unknown as ServerStatus;
      const [commands, stats] = [await redis.info('commandstats'), await redis.info('stats')];
      const redisCommands = [...commands.matchAll(/calls=(\d+)/g)].reduce((sum, [, calls]) => sum + Number(calls), 0);
      return {
        cpu: Object.fromEntries(Object.entries(pids).map(([name, pid]) => [name, cpuMsOf(pid)])),
        counts: {
          'MongoDB commands': commandsOf(status),
          'journal syncs': status.wiredTiger.log['log sync operations'] ?? 0,
          'MongoDB kB': (status.network.bytesIn + status.network.bytesOut) / 1000,
          'Redis commands': redisCommands,
          'Redis kB': (numberIn(stats, 'total_net_input_bytes') + numberIn(stats, 'total_net_output_bytes')) / 1000,
        },
      };
    },
  };
};

export type Counters = Awaited<ReturnType<typeof openCounters>>;

/** The increase of each value between two readings, divided by `count`. CPU is in µs. */
export const perItem = (before: Reading, after: Reading, count: number): Reading => {
  const grown = (from: Record<string, number>, to: Record<string, number>, times: number) =>
    Object.fromEntries(
      Object.entries(to).map(([name, value]) => [name, ((value - (from[name] ?? 0)) * times) / count]),
    );
  return { cpu: grown(before.cpu, after.cpu, 1000), counts: grown(before.counts, after.counts, 1) };
};
