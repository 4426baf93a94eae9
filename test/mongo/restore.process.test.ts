import { randomUUID } from 'node:crypto';
import { cp, readFile, rm } from 'node:fs/promises';
import mongoose, { type mongo } from 'mongoose';
import { expect, onTestFinished, test } from 'vitest';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import { type Service, startMongod, startRedis } from '../../scripts/services.ts';
import { temporaryFolder } from '../../scripts/services/resources.ts';
import { runAdmin } from '../support/admin.ts';
import { anAssistant, type ChatBody, type HistoryBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { launch, MAINS, startRealProcess } from '../kit/processes.ts';
import { contentOf, openReceiver, type Received, type Receiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { longTest, sized } from '../support/size.ts';
import { newEnvironment, openStack, type Stack } from '../support/stack.ts';

// docs/operating.md, Backup and restore

const QUESTION = 'What are your opening hours?';
const { engine } = aScriptedEngine(() => ({}));
const ASYNC = { Prefer: 'respond-async' };

type Wire = { event: string; event_id: string; payload: { conversation_id: string } };
const wireOf = ({ json }: Received): Wire => json as Wire;
/** Claims that are lost soon: the copy has one whose worker is gone. In the long suite they last as in production. */
const timing = sized({
  everyday: {
    sweepEveryMs: 500,
    deliveryDeadlineMs: 1_500,
    readFreshMs: 1_000,
    writeBeforeMs: 2_500,
    endWrittenWithinMs: 2_500,
    claimLostMs: 3_000,
  },
  long: {},
});
const upTo = (count: number) => Array.from({ length: count }, (_, nth) => nth + 1);

const aFolder = async (): Promise<string> => {
  const folder = await temporaryFolder('restore');
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
};

const aMongod = async (options: Parameters<typeof startMongod>[0] = {}): Promise<Service> => {
  const mongod = await startMongod(options);
  onTestFinished(() => mongod.dispose());
  return mongod;
};

const connect = async (url: string): Promise<mongo.Db> => {
  const client = await mongoose.mongo.MongoClient.connect(url);
  onTestFinished(() => client.close());
  return client.db();
};

const indexesOf = async (db: mongo.Db): Promise<Record<string, string[]>> => {
  const names = (await db.listCollections().toArray()).map(({ name }) => name).toSorted();
  const listed = names.map(async (name) => {
    const indexes = await db.collection(name).indexes();
    return [name, indexes.map((one) => one.name ?? '').toSorted()] as const;
  });
  return Object.fromEntries(await Promise.all(listed));
};

/** Those of a new database. */
const newIndexes = async (): Promise<Record<string, string[]>> => {
  // In a database of its own: another test may have left more indexes in one that is used again.
  const stack = await openStack({ env: newEnvironment(), replyWorkers: 0, deliveryWorkers: 0 });
  try {
    return await indexesOf(await connect(stack.env['MONGODB_URL'] ?? ''));
  } finally {
    await stack.close();
  }
};

/** Others may be there too, such as those that only an older version has used. */
const expectIndexes = async (db: mongo.Db, wanted: Record<string, string[]>): Promise<void> => {
  const found = await indexesOf(db);
  const missing = Object.entries(wanted).map(([name, all]) => [name, all.filter((one) => !found[name]?.includes(one))]);
  expect(missing.filter(([, names]) => names?.length)).toEqual([]);
};

/** Each takes a backup of a service that runs, and restores it into another MongoDB. */
const BACKUPS: Record<string, (from: Service, folder: string) => Promise<() => Promise<Service>>> = {
  'a snapshot of its files': async ({ url }, folder) => {
    const { client } = await connect(url);
    const copy = await aFolder();
    await client.db('admin').command({ fsync: 1, lock: true });
    await cp(folder, copy, { recursive: true });
    await client.db('admin').command({ fsyncUnlock: 1 });
    await rm(`${copy}/mongod.lock`, { force: true });
    return () => aMongod({ dataDir: copy });
  },

  // As mongodump and mongorestore do, but the indexes are lost too.
  'a copy of its documents': async ({ url }) => {
    const from = await connect(url);
    const names = (await from.listCollections().toArray()).map(({ name }) => name);
    const read = names.map(async (name) => [name, await from.collection(name).find().toArray()] as const);
    const copies = await Promise.all(read);
    return async () => {
      const restored = await aMongod();
      const into = await connect(restored.url);
      for (const [name, documents] of copies)
        if (documents.length > 0) await into.collection(name).insertMany(documents);
      return restored;
    };
  },
};

const answeredTurn = (url: string, bearer: string, turnId: string) =>
  eventually(async () => {
    const { body } = await request<ChatBody & { status: string }>(`${url}/api/v1/turns/${turnId}`, { bearer });
    expect(body.status).toBe('answered');
    return body;
  });

const rolesIn = async (url: string, bearer: string, conversationId: string): Promise<string> => {
  const { body } = await request<HistoryBody>(`${url}/api/v1/conversations/${conversationId}`, { bearer });
  return body.messages.map(({ role }) => role[0]).join('');
};

/** The numbers of what a receiver got of a conversation, in the order in which it came. */
const numbersOf = ({ received }: Receiver, conversationId: string): number[] =>
  received
    .filter((one) => wireOf(one).payload.conversation_id === conversationId)
    .map(({ headers }) => Number(headers['x-factory-sequence']));

const problemsOf = async ({ env }: Stack): Promise<string[]> =>
  (JSON.parse((await runAdmin(env, ['doctor', '--json'])).stdout) as { problems: string[] }).problems;

// The copy loses more: its indexes too.
test.for(sized({ everyday: ['a copy of its documents'], long: Object.keys(BACKUPS) }))(
  'restored from %s with an empty Redis, the service answers and sends what was pending, once',
  async (kind) => {
    const folder = await aFolder();
    const mongod = await aMongod({ dataDir: folder });
    const stack = await openStack({ env: { MONGODB_URL: mongod.url }, replyWorkers: 0, deliveryWorkers: 0, engine });
    const receiver = await openReceiver({
      respond: (one) => (contentOf(one) === 'Held?' ? new Promise(() => undefined) : {}),
    });
    onTestFinished(receiver.close);
    const { assistantId, apiKey: bearer } = await anAssistant(stack);
    const events = ['conversation.created', 'message.received', 'message.sent'];
    const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events });
    const say = (url: string, session_id: string, message: string, headers = {}) =>
      request<ChatBody & { turnId: string }>(`${url}/api/v1/chat`, { body: { session_id, message }, bearer, headers });

    const replies = await stack.startReplyWorker();
    const sender = await startRealProcess('delivery', stack.env);
    onTestFinished(() => sender.kill());
    const first = (await say(stack.url, 'old', QUESTION)).body;
    await say(stack.url, 'old', `${QUESTION} Today?`);
    const { conversationId: old } = first;
    const held = (await say(stack.url, 'held', 'Held?')).body.conversationId;
    await receiver.waitFor((all) => all.some((one) => contentOf(one) === 'Held?'));
    await eventually(() => expect(numbersOf(receiver, old)).toEqual(upTo(5)));
    await eventually(async () => {
      const found = await stack.service.conversations.outbox.findStale({ olderThanMs: 0, exclude: [], limit: 9 });
      expect(found.outboxes).toHaveLength(1);
    });
    await sender.kill();
    await replies.close();
    const keyed = { ...ASYNC, 'Idempotency-Key': randomUUID() };
    const late = (await say(stack.url, 'old', `${QUESTION} Tomorrow?`, keyed)).body;
    const fresh = (await say(stack.url, 'new', QUESTION, ASYNC)).body;
    const indexes = await indexesOf(await connect(mongod.url));
    const restore = await BACKUPS[kind]!(mongod, folder);
    await stack.close();
    await mongod.dispose();

    const redis = await startRedis();
    onTestFinished(() => redis.dispose());
    const { url: MONGODB_URL } = await restore();
    const restored = await openStack({
      env: { ...stack.env, MONGODB_URL, REDIS_URL: redis.url },
      engine,
      timing,
      sourcesWorkers: 1,
    });
    onTestFinished(() => restored.close());
    const turns = [late, fresh].map(({ turnId }) => answeredTurn(restored.url, bearer, turnId));
    const [reply] = await Promise.all(turns);
    const again = await say(restored.url, 'old', `${QUESTION} Tomorrow?`, {
      'Idempotency-Key': keyed['Idempotency-Key'],
    });
    await say(restored.url, 'old', `${QUESTION} And later?`);

    await eventually(() => {
      expect(numbersOf(receiver, old)).toEqual(upTo(9));
      expect(numbersOf(receiver, fresh.conversationId)).toEqual(upTo(3));
      expect(numbersOf(receiver, held)).toEqual(upTo(3));
    });
    expect(again.body).toMatchObject({ messageId: reply?.messageId, reply: reply?.reply });
    const roles = [old, fresh.conversationId, held].map((id) => rolesIn(restored.url, bearer, id));
    expect(await Promise.all(roles)).toEqual(['uauauaua', 'ua', 'ua']);
    const ids = receiver.received.map((one) => wireOf(one).event_id);
    expect(new Set(ids).size).toBe(ids.length);
    const { deliveries } = await restored.service.deliveries.list({ assistantId, endpointId: endpoint.endpointId });
    expect(deliveries.filter(({ outcome }) => outcome !== 'delivered')).toMatchObject([
      { outcome: 'unknown', conversationId: held, event: 'message.received' },
    ]);
    expect(deliveries).toHaveLength(ids.length);
    await expectIndexes(await connect(MONGODB_URL), indexes);
    expect(await problemsOf(restored)).toEqual([]);
  },
);

type OlderLine = { collection: string; index?: mongo.IndexDescription; document?: mongo.Document };

/** All times of a document, later by this time. */
const laterBy = (ms: number, value: unknown): unknown => {
  if (value instanceof Date) return new Date(value.getTime() + ms);
  if (Array.isArray(value)) return value.map((one) => laterBy(ms, one));
  if (value === null || typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, laterBy(ms, one)]));
};

/** Restores what the service of 24 November 2026 has stored, as if it had been a moment ago. */
const restoreOlder = async (url: string, hook: string): Promise<{ apiKey: string; secret: string }> => {
  const text = await readFile('test/mongo/older-version.ndjson', 'utf8');
  const [head, ...lines] = text
    .trim()
    .split('\n')
    .map((line) => mongoose.mongo.BSON.EJSON.parse(line)) as [
    { takenAt: Date; apiKey: string; secret: string },
    ...OlderLine[],
  ];
  const db = await connect(url);
  const age = Date.now() - head.takenAt.getTime();
  for (const { collection, index, document } of lines) {
    if (index) await db.collection(collection).createIndexes([index]);
    if (document) await db.collection(collection).insertOne(laterBy(age, document) as mongo.Document);
  }
  await db.collection('endpoints').updateMany({}, { $set: { url: hook } });
  return head;
};

test('what an older version has stored is answered, sent and shown by this one', async () => {
  const receiver = await openReceiver();
  onTestFinished(receiver.close);
  const env = newEnvironment();
  const { apiKey: bearer, secret } = await restoreOlder(env['MONGODB_URL'] ?? '', receiver.url);
  const stack = await openStack({ env, apis: 2, sourcesWorkers: 1 });
  onTestFinished(() => stack.close());
  const owner = await anOperator(stack);
  const { body } = await owner.get<{ conversations: { conversationId: string; sessionId: string }[] }>('/inbox');
  const idOf = (session: string) => body.conversations.find((one) => one.sessionId === session)?.conversationId ?? '';

  await receiver.waitFor((all) => all.length >= 3);
  await eventually(async () => {
    expect(await rolesIn(stack.url, bearer, idOf('answered'))).toBe('uaua');
    expect(await rolesIn(stack.url, bearer, idOf('waiting'))).toBe('ua');
  });
  const say = (url: string | undefined, message: string) =>
    request(`${url}/api/v1/chat`, { body: { session_id: 'answered', message }, bearer });
  const again = await say(stack.urls[0], QUESTION);
  const more = await say(stack.urls[1], 'Please tell me your opening hours.');
  await receiver.waitFor((all) => all.length >= 4);

  const { messages } = (await request<HistoryBody>(`${stack.url}/api/v1/conversations/${idOf('answered')}`, { bearer }))
    .body;
  expect(again.body).toMatchObject({ messageId: messages[1]?.messageId, reply: 'We are open from 9 to 5.' });
  expect(more.body.conversationId).toBe(idOf('answered'));
  // Events that were announced before there were numbers have none.
  const numbers = receiver.received.map(({ headers }) => headers['x-factory-sequence']);
  expect(numbers).toEqual([undefined, undefined, undefined, '1']);
  expect(receiver.received.map((one) => wireOf(one).event).toSorted()).toEqual([
    'conversation.created',
    'message.received',
    'message.received',
    'message.received',
  ]);
  for (const { body: sent, headers } of receiver.received)
    expect(verifyWebhook(sent, headers['x-factory-signature'], [secret]).ok).toBe(true);
  const [assistant] = (await owner.get<{ assistants: { assistantId: string }[] }>('/assistants')).body.assistants;
  const own = `/assistants/${assistant?.assistantId}`;
  for (const page of [own, `${own}/knowledge`, `${own}/web`, `${own}/deliveries`, `${own}/misses`, `${own}/draft`])
    expect([page, (await owner.get(page)).status]).toEqual([page, 200]);
  expect(await problemsOf(stack)).toEqual([]);
  await expectIndexes(await connect(env['MONGODB_URL'] ?? ''), await newIndexes());
});

// Every day, test/mongo/indexes.test.ts starts them together, and none is killed.
longTest('processes that start together make missing indexes, also if one is killed meanwhile', async () => {
  const mongod = await aMongod({ failPoints: true });
  const env = { ...newEnvironment(), MONGODB_URL: mongod.url };
  const { apiKey: bearer } = await restoreOlder(mongod.url, 'http://127.0.0.1:9/');
  const db = await connect(mongod.url);
  // Only these are missing, so each process builds them first.
  await (await startRealProcess('api', env)).kill();
  await db.collection('conversations').dropIndexes();
  const admin = db.client.db('admin');
  const hang = (mode: string) => admin.command({ configureFailPoint: 'hangAfterStartingIndexBuild', mode });
  const waiting = async (count: number) => {
    const match = { 'command.createIndexes': 'conversations', active: true };
    const options = { readConcern: { level: 'local' as const } };
    expect(await admin.aggregate([{ $currentOp: {} }, { $match: match }], options).toArray()).toHaveLength(count);
    expect(
      await admin.aggregate([{ $currentOp: {} }, { $match: { msg: /^Index Build/ } }], options).toArray(),
    ).not.toEqual([]);
  };

  await hang('alwaysOn');
  const { PATH = '' } = process.env;
  const killed = launch(process.execPath, [MAINS.api], { env: { PATH, SEMANTIC: 'off', ...env }, stdio: 'ignore' });
  onTestFinished(() => killed.kill());
  await eventually(() => waiting(1));
  await killed.kill();
  const starting = [startRealProcess('api', env), startRealProcess('reply', env)];
  onTestFinished(async () => {
    for (const one of await Promise.allSettled(starting)) if (one.status === 'fulfilled') await one.value.kill();
  });
  await eventually(() => waiting(2));
  await hang('off');
  const [api] = await Promise.all(starting);

  expect(
    await request(`${api?.url}/api/v1/chat`, { body: { session_id: 'x', message: QUESTION }, bearer }),
  ).toMatchObject({ status: 200 });
  await expectIndexes(db, await newIndexes());
});
