import { type Connection, createConnection, type mongo } from 'mongoose';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createLogger } from '../../src/platform/logger.ts';
import { dropRetiredIndexes, RETIRED_INDEXES } from '../../src/retired-indexes.ts';
import { newEnvironment, openStack } from '../support/stack.ts';

/** An index on deliveries that the first releases declared, with its default name. */
const OLD = { assistantId: 1, createdAt: -1, _id: -1 } as const;
const OLD_NAME = 'assistantId_1_createdAt_-1__id_-1';
const APIS_AT_ONCE = 8;
const LOOKS_AT_ONCE = 20;
const WARN = 40;

const connect = async (url: string): Promise<Connection> => {
  const connection = await createConnection(url).asPromise();
  onTestFinished(() => connection.close());
  return connection;
};

const namesOn = async (connection: Connection, collection: string): Promise<string[]> =>
  (await connection.collection(collection).indexes()).map(({ name }) => name ?? '');

const collectLogs = () => {
  const lines: string[] = [];
  const logger = createLogger({ name: 'test', level: 'debug' }, { write: (line) => void lines.push(line) });
  return { logger, said: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>) };
};

/** Starts a service on a database that `prepare` has filled. */
const startOn = async (prepare: (database: Connection) => Promise<unknown>) => {
  const env = newEnvironment();
  const database = await connect(env['MONGODB_URL']!);
  await prepare(database);
  const stack = await openStack({ env, replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(() => stack.close());
  return { database, stack };
};

describe('an index that is no longer declared', () => {
  test('is dropped at the start, and its replacement exists', async () => {
    const { database, stack } = await startOn((old) => old.collection('deliveries').createIndex(OLD));

    const names = await namesOn(database, 'deliveries');

    expect(names).not.toContain(OLD_NAME);
    expect(names).toContain('assistantId_1_endpointId_1_event_1_createdAt_-1__id_-1');
    expect(stack.logs).toContainEqual(
      expect.objectContaining({
        collection: 'deliveries',
        index: OLD_NAME,
        msg: 'dropped an index of an older release',
      }),
    );
  });

  test('is dropped by one of many processes that start together, and none of them fails', async () => {
    const { database, stack } = await startOn(async () => undefined);
    await database.collection('deliveries').createIndex(OLD);

    await Promise.all(Array.from({ length: APIS_AT_ONCE }, () => stack.startApi()));

    expect(await namesOn(database, 'deliveries')).not.toContain(OLD_NAME);
    expect(stack.logs.filter(({ level }) => Number(level) >= WARN)).toEqual([]);
    expect(stack.logs.filter(({ index }) => index === OLD_NAME)).toHaveLength(1);
  });

  test('may be dropped by another process between the check and the drop', async () => {
    const { database } = await startOn(async () => undefined);
    await database.collection('deliveries').createIndex(OLD);
    const { logger, said } = collectLogs();

    // All calls see the index before the first call drops it.
    await Promise.all(Array.from({ length: LOOKS_AT_ONCE }, () => dropRetiredIndexes(database, logger)));

    expect(await namesOn(database, 'deliveries')).not.toContain(OLD_NAME);
    expect(said().map(({ msg }) => msg)).toEqual(['dropped an index of an older release']);
  });

  test('is not looked for in a new database', async () => {
    const { database, stack } = await startOn(async () => undefined);

    expect(await namesOn(database, 'deliveries')).toContain('conversationId_1');
    expect(stack.logs.filter(({ msg }) => String(msg).includes('older release'))).toEqual([]);
  });
});

describe('an index that an administrator created stays', () => {
  test('on any collection, also with a name that we use', async () => {
    const { database } = await startOn(async (old) => {
      await old.collection('deliveries').createIndex({ assistantId: 1 }, { name: 'monthly_report' });
      await old.collection('deliveries').createIndex({ createdAt: -1, assistantId: 1 });
      await old.collection('messages').createIndex(OLD);
      await old.collection('ours').createIndex(OLD);
    });

    expect(await namesOn(database, 'deliveries')).toEqual(
      expect.arrayContaining(['monthly_report', 'createdAt_-1_assistantId_1']),
    );
    expect(await namesOn(database, 'messages')).toContain(OLD_NAME);
    expect(await namesOn(database, 'ours')).toContain(OLD_NAME);
  });

  test.each<{ of: string; key: Record<string, 1 | -1>; options: mongo.CreateIndexesOptions }>([
    { of: 'other fields', key: { assistantId: 1, createdAt: 1 }, options: {} },
    { of: 'the same fields in another order', key: { createdAt: -1, assistantId: 1, _id: -1 }, options: {} },
    { of: 'some documents only', key: OLD, options: { partialFilterExpression: { status: { $gt: 499 } } } },
  ])('with a name that we use and $of', async ({ key, options }) => {
    const { database } = await startOn((old) =>
      old.collection('deliveries').createIndex(key, { ...options, name: OLD_NAME }),
    );

    expect(await namesOn(database, 'deliveries')).toContain(OLD_NAME);
  });
});

/**
 * Every index that a release has declared, by name. Add new indexes. An index that leaves the schema stays here and
 * is added to `RETIRED_INDEXES`.
 */
const EVER_DECLARED: Record<string, string[]> = {
  apiKeys: ['hash_1', 'assistantId_1_createdAt_-1'],
  assistants: ['semantic.model_1', 'semantic.stale_1'],
  audit: ['at_1', 'at_-1__id_-1', 'operatorId_1_at_-1__id_-1', 'target_1_at_-1__id_-1'],
  cannedReplies: ['assistantId_1_title_1'],
  conversations: [
    'waiting_heads',
    'outbox_heads',
    'openings',
    'take_by',
    'by_change',
    'inbox_filters',
    'tagged',
    'attributes',
  ],
  deliveries: [
    OLD_NAME,
    'assistantId_1_endpointId_1_event_1_createdAt_-1__id_-1',
    'claimedAt_1',
    'conversationId_1',
    'createdAt_1',
    'expiresAt_1',
    'failures',
    'refusals',
  ],
  embedders: ['seenAt_1'],
  endpoints: ['assistantId_1_createdAt_1', 'assistantId_1_place_1', 'pause_1'],
  figures: ['assistantId_1_hour_1', 'hour_1'],
  idempotencyKeys: ['createdAt_1', 'conversationId_1'],
  knowledge: ['assistantId_1_position_1'],
  knowledgeVectors: ['assistantId_1_live_1_model_1_hash_1__id_1', 'removedAt_1'],
  misses: ['answer.conversationId_1', 'assistantId_1', 'conversationId_1', 'examples.conversationId_1'],
  operatorSessions: ['expires_1'],
  operatorTokens: ['hash_1', 'createdAt_-1'],
  operators: ['email_1', 'links'],
  search: ['by_term', 'by_update'],
  tombstones: ['purgeAt_1'],
};

test('every index of earlier releases is still declared or is dropped', async () => {
  const { database } = await startOn(async (old) => {
    for (const [collection, names] of Object.entries(RETIRED_INDEXES)) {
      for (const index of names) await old.collection(collection).createIndex(index.key, { name: index.name });
    }
  });

  const stored = await database.listCollections();
  const found = await Promise.all(
    stored.map(
      async ({ name }) => [name, (await namesOn(database, name)).filter((index) => index !== '_id_')] as const,
    ),
  );

  const declared = Object.entries(EVER_DECLARED).map(([collection, names]) => {
    const retired = (RETIRED_INDEXES[collection] ?? []).map(({ name }) => name);
    return [collection, names.filter((name) => !retired.includes(name)).sort()];
  });
  expect(
    Object.fromEntries(found.filter(([, names]) => names.length > 0).map(([name, names]) => [name, names.sort()])),
  ).toEqual(Object.fromEntries(declared));
});
