import { Writable } from 'node:stream';
import mongoose from 'mongoose';
import { afterAll, beforeAll, inject } from 'vitest';
import { openApi } from '../../src/api.ts';
import { closeReceivers } from '../kit/receiver.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger, type Logger } from '../../src/platform/process/logger.ts';
import type { Timing } from '../../src/platform/process/time-limits.ts';
import type { Service } from '../../src/service.ts';
import { openDeliveryWorker } from '../../workers/delivery/worker.ts';
import type { SenderOptions } from '../../src/events/sending/send.ts';
import type { Embedder } from '@parley/understanding';
import type { SharedMemory } from '../../src/platform/process/lru.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { openReplyWorker } from '../../workers/reply/worker.ts';
import { openSourcesWorker } from '../../workers/sources/worker.ts';

type StackOptions = {
  env?: Record<string, string>;
  engine?: AssistantEngine;
  /** Makes one embedder for each reply worker. */
  embedder?: () => Embedder;
  sending?: Partial<SenderOptions>;
  /** Time limits that this stack shortens or prolongs. The same rules check them. */
  timing?: Partial<Timing>;
  apis?: number;
  replyWorkers?: number;
  deliveryWorkers?: number;
  /** None, unless a test reads sources. */
  sourcesWorkers?: number;
  /** Certificate authorities that websites are checked with. */
  ca?: string;
  /** False if its data is left: its MongoDB ends with the test, or another stack reads it. */
  dropsItsData?: boolean;
};

const WARN = 40;

type ReplyWorker = Awaited<ReturnType<typeof openReplyWorker>>;
type Running = { close: () => Promise<void> };

/** The whole service in this process, with its own database and queue prefix. */
export type Stack = {
  url: string;
  urls: string[];
  env: Record<string, string>;
  service: Service & Pick<Awaited<ReturnType<typeof openApi>>, 'operators' | 'tokens' | 'audit'>;
  /** Every log line so far, parsed. */
  logs: Record<string, unknown>[];
  startReplyWorker: (
    engine?: AssistantEngine,
    embedder?: Embedder,
    memory?: SharedMemory,
  ) => Promise<Running & Pick<ReplyWorker, 'healthPort' | 'embedder' | 'vectorsOf' | 'assistants'>>;
  startDeliveryWorker: () => Promise<Running & { healthPort: number }>;
  startSourcesWorker: () => Promise<Running & { healthPort: number }>;
  startApi: () => Promise<Running & { url: string }>;
  close: () => Promise<void>;
};

const collectLogs = (): { logger: Logger; logs: Record<string, unknown>[] } => {
  const logs: Record<string, unknown>[] = [];
  const destination = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      for (const line of chunk.toString().split('\n')) if (line) logs.push(JSON.parse(line) as Record<string, unknown>);
      done();
    },
  });
  return { logger: createLogger({ name: 'test', level: 'debug' }, destination), logs };
};

/** What the log told the operator to do. */
export const hintsIn = (logs: Stack['logs']): string[] =>
  logs.flatMap(({ level, hint }) => (typeof hint === 'string' && Number(level) >= WARN ? [hint] : []));

const newName = (): string =>
  `t-${newToken()
    .toLowerCase()
    .replace(/[^a-z0-9]/g, 'x')}`;

export const newEnvironment = (database = newName()): Record<string, string> => {
  const mongodb = new URL(inject('mongodbUrl'));
  mongodb.pathname = `/${database}`;
  return {
    NODE_ENV: 'test',
    MONGODB_URL: mongodb.href,
    REDIS_URL: inject('redisUrl'),
    REDIS_PREFIX: newName(),
    WEBHOOK_ALLOW_PRIVATE: 'true',
    PORT: '0',
    SHUTDOWN_GRACE_MS: '0',
  };
};

/**
 * Databases that closed stacks of this process have left empty, for the next ones: 40 collections with 110 indexes take
 * MongoDB a third of a second of its processor.
 */
const emptied: string[] = [];
const MANY_DOCUMENTS = 2_000;
/** Says which indexes stand (src/platform/mongo/mongo.ts). They stay. */
const BUILT = 'built';
/** A killed process may have left a transaction, which holds what it wrote for a minute. */
const EMPTIED_WITHIN_MS = 2_000;

/** Deletes all documents. Resolves with false if the database is no longer like a new one, or has too many. */
const empty = async (database: mongoose.mongo.Db): Promise<boolean> => {
  const { was } = await database.command({ profile: -1 });
  const all = await database.listCollections().toArray();
  const isNew = ({ name, options }: mongoose.mongo.CollectionInfo): boolean =>
    !name.startsWith('system.') && Object.keys(options ?? {}).length === 0;
  if (was !== 0 || !all.every((one) => isNew(one as mongoose.mongo.CollectionInfo))) return false;
  const collections = all.map(({ name }) => database.collection(name));
  const counts = await Promise.all(collections.map((one) => one.estimatedDocumentCount()));
  if (counts.some((count) => count > MANY_DOCUMENTS)) return false;
  const within = { maxTimeMS: EMPTIED_WITHIN_MS };
  const full = collections.filter((one, nth) => counts[nth] !== 0 && one.collectionName !== BUILT);
  await Promise.all(full.map((one) => one.deleteMany({}, within)));
  return true;
};

/** Empties a database for the next stack, or drops it. */
const leave = async (url: string, isOurs: boolean): Promise<void> => {
  const client = await new mongoose.mongo.MongoClient(url).connect();
  const database = client.db();
  const isEmpty = isOurs && (await empty(database).catch(() => false));
  if (isEmpty) emptied.push(database.databaseName);
  // On a slow disk, dropping a full database takes longer than any command of the service may.
  else await database.dropDatabase({ socketTimeoutMS: 0 } as object);
  await client.close();
};

export const openStack = async (options: StackOptions = {}): Promise<Stack> => {
  const env = {
    ...newEnvironment(options.env?.['MONGODB_URL'] === undefined ? emptied.pop() : undefined),
    ...options.env,
  };
  // Whoever reads the environment may start a process that outlives the stack, so its database is not used again.
  let isShared = options.env?.['MONGODB_URL'] !== undefined;
  const { logger, logs } = collectLogs();
  const running: Lifecycle[] = [];

  const start = async <Opened>(open: (lifecycle: Lifecycle) => Promise<Opened>): Promise<Opened & Running> => {
    const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
    running.push(lifecycle);
    return { ...(await open(lifecycle)), close: lifecycle.close };
  };
  const config = readConfig(env, options.timing);
  const startApi = async () => {
    const api = await start((lifecycle) => openApi({ config, logger, lifecycle }));
    return { ...api, url: `http://127.0.0.1:${api.port}` };
  };
  const startReplyWorker = (engine = options.engine, embedder = options.embedder?.(), memory?: SharedMemory) =>
    start((lifecycle) => {
      const given = { ...(engine && { engine }), ...(embedder && { embedder }), ...(memory && { memory }) };
      return openReplyWorker({ config, logger, lifecycle, ...given });
    });
  const startDeliveryWorker = () =>
    start((lifecycle) =>
      openDeliveryWorker({ config, logger, lifecycle, ...(options.sending && { sending: options.sending }) }),
    );

  const startSourcesWorker = () =>
    start((lifecycle) => {
      const embedder = options.embedder?.();
      const given = { ...(embedder && { embedder }), ...(options.ca && { ca: options.ca }) };
      return openSourcesWorker({ config, logger, lifecycle, ...given });
    });

  const first = await startApi();
  const urls = [first.url];
  for (let count = 1; count < (options.apis ?? 1); count += 1) urls.push((await startApi()).url);
  for (let count = 0; count < (options.replyWorkers ?? 1); count += 1) await startReplyWorker();
  for (let count = 0; count < (options.deliveryWorkers ?? 1); count += 1) await startDeliveryWorker();
  for (let count = 0; count < (options.sourcesWorkers ?? 0); count += 1) await startSourcesWorker();

  return {
    url: first.url,
    urls,
    get env() {
      isShared = true;
      return env;
    },
    service: first,
    logs,
    startApi,
    startReplyWorker,
    startDeliveryWorker,
    startSourcesWorker,
    close: async () => {
      for (const lifecycle of running.toReversed()) await lifecycle.close();
      if (options.dropsItsData !== false) await leave(env['MONGODB_URL'] ?? '', !isShared);
    },
  };
};

/** What a file opens before its tests and closes after them. Its properties are there from then on. */
export const useOpened = <Opened extends object>(
  open: () => Promise<Opened>,
  close: (opened: Opened) => unknown = () => undefined,
): Opened => {
  let opened: Opened | undefined;
  beforeAll(async () => {
    opened = await open();
  });
  afterAll(async () => {
    await closeReceivers(); // what a receiver still holds would delay the end of the workers
    if (opened) await close(opened);
  });
  return new Proxy({} as Opened, {
    get: (_target, name) => {
      if (!opened) throw new Error('it is not open yet');
      return Reflect.get(opened, name);
    },
  });
};

/** One stack for a file, opened before its tests and closed after them. A function may use what was opened before. */
export const useStack = (options: StackOptions | (() => StackOptions) = {}): Stack =>
  useOpened(
    () => openStack(typeof options === 'function' ? options() : options),
    (stack) => stack.close(),
  );
