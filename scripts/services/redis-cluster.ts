import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Service } from './process.ts';
import { startRedis } from './redis.ts';
import { freePort, isFree } from './resources.ts';

const MASTERS = 3;
const SLOTS = 16_384;
const NODE_TIMEOUT_MS = 1_500;
const FORMED_WITHIN_MS = 30_000;
/** A node listens for its peers on its port plus this. (Redis 6.2 has no setting for that port.) */
export const BUS_OFFSET = 10_000;
/** Both ports of a node are below the range from which the system takes ports for outgoing connections. */
const PORTS = { from: 20_000, to: 22_700 };

export type RedisCluster = {
  /** For REDIS_URL. */
  url: string;
  /** The masters at the start, then a replica of each, in the same order. */
  nodes: Service[];
  /** The node, other than `except`, that serves this key now. Undefined if no node is known to serve it. */
  findMaster: (key: string, except?: Service) => Promise<Service | undefined>;
  /** The id by which the other nodes know this node. */
  idOf: (node: Service) => Promise<string>;
  dispose: () => Promise<void>;
};

export type ClusterOptions = {
  /** The port on which peers reach the node with this port. Default: its own. */
  busPortOf?: (port: number) => Promise<number>;
};

type Node = { service: Service; redis: Redis; busPort: number };

/** A free port whose bus port is free too. */
const freePorts = async (): Promise<number> => {
  for (;;) {
    const port = await freePort(PORTS);
    if (await isFree(port + BUS_OFFSET)) return port;
  }
};

const startNode = async ({ busPortOf }: ClusterOptions): Promise<Node> => {
  const port = await freePorts();
  const busPort = (await busPortOf?.(port)) ?? port + BUS_OFFSET;
  const cluster = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT_MS)];
  const announced = ['--cluster-announce-ip', '127.0.0.1', '--cluster-announce-bus-port', String(busPort)];
  // While one master is away, the others serve their slots.
  const partial = ['--cluster-require-full-coverage', 'no', '--repl-diskless-sync-delay', '0'];
  const service = await startRedis({ port, settings: [...cluster, ...announced, ...partial] });
  const redis = new Redis(port, '127.0.0.1', { retryStrategy: () => 100, maxRetriesPerRequest: 0 });
  redis.on('error', () => undefined);
  return { service, redis, busPort };
};

const until = async (reached: () => Promise<boolean>): Promise<void> => {
  const deadline = performance.now() + FORMED_WITHIN_MS;
  while (!(await reached())) {
    if (performance.now() > deadline) throw new Error('the cluster was not formed');
    await sleep(50);
  }
};

const all = async (nodes: Node[], holds: (node: Node) => Promise<boolean>): Promise<boolean> =>
  (await Promise.all(nodes.map(holds))).every(Boolean);

const form = async (nodes: Node[]): Promise<void> => {
  const [first, ...others] = nodes as [Node, ...Node[]];
  const share = Math.ceil(SLOTS / MASTERS);
  for (const [at, { redis }] of nodes.slice(0, MASTERS).entries()) {
    const from = at * share;
    const slots = Array.from({ length: Math.min(share, SLOTS - from) }, (_, nth) => from + nth);
    await redis.cluster('ADDSLOTS', ...slots);
    await redis.cluster('SET-CONFIG-EPOCH', at + 1);
  }
  for (const { service, busPort } of others) {
    await first.redis.call('CLUSTER', 'MEET', '127.0.0.1', service.port, busPort);
  }
  const knows = async ({ redis }: Node): Promise<boolean> => {
    const info = await redis.cluster('INFO');
    return info.includes(`cluster_known_nodes:${nodes.length}`) && info.includes('cluster_state:ok');
  };
  await until(() => all(nodes, knows));
  for (const [at, { redis }] of nodes.slice(MASTERS).entries()) {
    const id = String(await nodes[at]?.redis.cluster('MYID'));
    // A replica may not know yet that the node has slots.
    await until(() =>
      redis.cluster('REPLICATE', id).then(
        () => true,
        () => false,
      ),
    );
  }
  await until(() =>
    all(nodes.slice(MASTERS), async ({ redis }) => (await redis.info('replication')).includes('master_link_status:up')),
  );
  await until(() =>
    all(nodes, async ({ redis }) => {
      const slots = (await redis.cluster('SLOTS')) as unknown[][];
      return slots.length === MASTERS && slots.every((range) => range.length === 4); // from, to, master, replica
    }),
  );
};

/** Starts three masters on 127.0.0.1, each with a replica that is promoted when its master is away for about 2 s. */
export const startRedisCluster = async (options: ClusterOptions = {}): Promise<RedisCluster> => {
  const nodes: Node[] = [];
  const dispose = async (): Promise<void> => {
    for (const { redis } of nodes) redis.disconnect();
    await Promise.all(nodes.map(({ service }) => service.dispose()));
  };
  try {
    for (let count = 0; count < 2 * MASTERS; count += 1) nodes.push(await startNode(options));
    await form(nodes);
  } catch (cause) {
    await dispose();
    throw cause;
  }
  const findMaster = async (key: string, except?: Service): Promise<Service | undefined> => {
    const slot = await Promise.any(nodes.map(({ redis }) => redis.cluster('KEYSLOT', key)));
    for (const { service, redis } of nodes) {
      if (service === except) continue;
      const [role] = ((await redis.call('ROLE').catch(() => [])) ?? []) as string[];
      if (role !== 'master') continue;
      const ranges = (await redis.cluster('SLOTS').catch(() => [])) as [number, number, [string, number]][];
      const own = ranges.find(([from, to, [, port]]) => from <= slot && slot <= to && port === service.port);
      if (own) return service;
    }
    return undefined;
  };
  return {
    url: `redis+cluster://${nodes.map(({ service }) => `127.0.0.1:${service.port}`).join(',')}`,
    nodes: nodes.map(({ service }) => service),
    findMaster,
    idOf: async (service) => String(await nodes.find((node) => node.service === service)?.redis.cluster('MYID')),
    dispose,
  };
};
