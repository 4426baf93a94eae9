import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { createErasure } from '../../src/conversations/erasure.ts';
import { pageIdOf } from '../../src/conversations/history.ts';
import { inBatches } from '../../src/platform/mongo/batches.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

const rowsOf = <Row extends { _id: string }>(name: string) => stack.service.mongo.collection<Row>(name);

test('one statement of a purge changes few pages of messages and few deliveries, because each may be large', async () => {
  const assistant = await anAssistant(stack);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const numbers = Array.from({ length: 120 }, (_, nth) => nth);
  const pages = numbers.map((nth) => ({ _id: pageIdOf(conversationId, nth), conversationId, entries: [] }));
  const deliveries = numbers.map(() => {
    const of = { conversationId, assistantId: assistant.assistantId, event: 'message.received' };
    return { _id: `${randomUUID()}:e`, ...of, outcome: 'delivered', body: 'private', happenedAt: new Date() };
  });
  await rowsOf<(typeof pages)[number]>('messages').insertMany(pages);
  await rowsOf<(typeof deliveries)[number]>('deliveries').insertMany(deliveries);

  const statements = await profileStatements(stack, async () => {
    await assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });
    await eventually(async () => expect(await rowsOf('deliveries').countDocuments({ body: 'private' })).toBe(0));
  });

  expect(await rowsOf('messages').countDocuments({ conversationId })).toBe(0);
  const ofConversation = statements.filter(({ command, originatingCommand }) =>
    JSON.stringify([command, originatingCommand]).includes(conversationId),
  );
  const of = (name: string, some = statements) => some.filter((one) => collectionIn(one) === name);
  const deleted = of('messages').map(({ ndeleted = 0 }) => ndeleted);
  const changed = of('deliveries').map(({ nMatched = 0 }) => nMatched);
  const read = of('deliveries', ofConversation).map(({ docsExamined = 0 }) => docsExamined);
  const total = (counts: number[]) => counts.reduce((sum, count) => sum + count, 0);
  expect([total(deleted), total(changed)]).toEqual([120, 120]);
  expect(Math.max(...deleted)).toBeLessThanOrEqual(16);
  expect(Math.max(...changed)).toBeLessThanOrEqual(50);
  expect(Math.max(...read)).toBeLessThanOrEqual(51);

  const again = await profileStatements(stack, () =>
    stack.service.deliveries.eraseConversation({ assistantId: assistant.assistantId, conversationId }),
  );
  // What has no text any more is passed by, a few at a time too: one statement that looks for others could take too long.
  const looked = of('deliveries', again);
  expect(total(looked.map(({ nMatched = 0 }) => nMatched))).toBe(0);
  expect(Math.max(...looked.map(({ docsExamined = 0 }) => docsExamined))).toBeLessThanOrEqual(51);
});

test('an erasure answers its process without the texts of the conversation', async () => {
  const assistant = await anAssistant(stack);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const long = { 'texts.9000': [{ content: 'x'.repeat(1_000_000) }], 'waiting.0.message': 'x'.repeat(500_000) };
  await rowsOf('conversations').updateOne({ conversationId }, { $set: { waiting: [{ turnId: 't', replyTo: [] }] } });
  await rowsOf('conversations').updateOne({ conversationId }, { $set: long });

  const statements = await profileStatements(stack, () =>
    assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' }),
  );

  expect(await rowsOf('conversations').countDocuments({ conversationId })).toBe(0);
  const deleted = statements.filter((one) => 'findAndModify' in one.command && collectionIn(one) === 'conversations');
  expect(deleted.map(({ ndeleted }) => ndeleted)).toEqual([1]);
  expect(deleted[0]?.responseLength).toBeLessThan(5_000);
});

test('what evaluations hold of a conversation is deleted until the time of the purge is over, and by the next one', async () => {
  const { evaluations, questionSets } = stack.service;
  const conversationId = randomUUID();
  const rows = () => Array.from({ length: 60 }, () => ({ _id: randomUUID(), conversationIds: [conversationId] }));
  const names = ['evaluationResults', 'questionCases'];
  for (const name of names) await rowsOf<ReturnType<typeof rows>[number]>(name).insertMany(rows());
  const left = () => Promise.all(names.map((name) => rowsOf(name).countDocuments({ conversationIds: conversationId })));

  for (const store of [evaluations, questionSets])
    await expect(store.eraseConversations([conversationId], AbortSignal.abort())).rejects.toThrow(/abort/i);
  const leftThen = await left();
  for (const store of [evaluations, questionSets]) await store.eraseConversations([conversationId]);

  expect([leftThen, await left()]).toEqual([
    [60, 60],
    [0, 0],
  ]);
});

test('a slow step of a purge is followed by a rest as long', async () => {
  const kind = randomUUID();
  const rows = Array.from({ length: 6 }, () => ({ _id: randomUUID(), kind }));
  const collection = rowsOf<(typeof rows)[number]>('rested');
  await collection.insertMany(rows);
  const rests: number[] = [];
  let endedAt: number | null = null;

  await inBatches({ collection, filter: { kind }, maxItems: 2, rests: true }, async () => {
    if (endedAt !== null) rests.push(performance.now() - endedAt);
    await sleep(200);
    endedAt = performance.now();
  });

  expect(rests).toHaveLength(2);
  expect(Math.min(...rests)).toBeGreaterThan(190);
});

type Dependencies = Parameters<typeof createErasure>[0];
/** An erasure of conversations that have no pages. */
const anErasure = (given: Pick<Dependencies, 'eraseElsewhere'> & Partial<Dependencies>) =>
  createErasure({
    connection: stack.service.mongo,
    pages: {
      storeFullPages: () => Promise.reject(new Error('not used')),
      erase: async () => {},
      eraseIfGone: async () => {},
    },
    announceErased: async () => true,
    draining: new AbortController().signal,
    ...given,
  });

test('a purge that takes long leaves its place to others, and is due again at once', async () => {
  const begun: string[] = [];
  const erasure = anErasure({
    eraseElsewhere: ({ conversationId }, { until }) => {
      begun.push(conversationId);
      return new Promise((_, reject) => until.addEventListener('abort', () => reject(until.reason), { once: true }));
    },
    purgedForMs: 100,
  });
  const assistantId = randomUUID();
  const ids = [randomUUID(), randomUUID()];

  for (const conversationId of ids) await erasure.erase({ _id: conversationId, conversationId, assistantId });

  await eventually(() => expect(begun).toEqual(ids));
  await eventually(async () => {
    const due = rowsOf('tombstones').find({ assistantId, purgeAt: { $lte: new Date() } });
    expect(await due.count()).toBe(2);
  });
});

test('a process purges one conversation of an assistant at a time, and those of others meanwhile', async () => {
  const hold = Promise.withResolvers<void>();
  const begun: string[] = [];
  const erasure = anErasure({
    eraseElsewhere: async ({ assistantId }) => {
      begun.push(assistantId);
      await hold.promise;
    },
  });
  const [mine, other, last] = [randomUUID(), randomUUID(), randomUUID()];
  const erase = async (assistantId: string) => {
    const conversationId = randomUUID();
    return (await erasure.erase({ _id: conversationId, conversationId, assistantId })).purged;
  };

  const purged = [mine, mine, mine, other].map(erase);
  await eventually(() => expect(begun).toEqual(expect.arrayContaining([mine, other])));
  purged.push(erase(last));
  await eventually(() => expect(begun).toContain(last));
  const meanwhile = [...begun];
  hold.resolve();
  await Promise.all(purged);
  await eventually(() => expect(begun).toHaveLength(5));

  expect(meanwhile.toSorted()).toEqual([mine, other, last].toSorted());
});

test('an erasure does not wait for a slow announcement, its purge does, and each assistant has one at a time', async () => {
  const hold = Promise.withResolvers<void>();
  const order: string[] = [];
  const erasure = anErasure({
    announceErased: async ({ assistantId }) => {
      order.push(`announce ${assistantId}`);
      await hold.promise;
      return true;
    },
    eraseElsewhere: async ({ assistantId }) => void order.push(`purge ${assistantId}`),
  });
  const [mine, other] = [await anAssistant(stack), await anAssistant(stack)];
  const erase = async ({ assistantId, chat }: typeof mine) => {
    const { conversationId } = (await chat(aTurn())).body;
    const found = await rowsOf<{ _id: string; outbox?: [] }>('conversations').findOne({ conversationId });
    expect(found?.outbox ?? []).toEqual([]);
    const { erased, purged } = await erasure.erase({ _id: String(found?._id), conversationId, assistantId });
    expect(erased?.conversationId).toBe(conversationId);
    await purged; // for which a request waits a second at most
  };

  await Promise.all([mine, mine, other].map(erase));
  const meanwhile = [...order];
  hold.resolve();
  await eventually(() => expect(order).toHaveLength(6));

  expect(meanwhile.toSorted()).toEqual([mine, other].map(({ assistantId }) => `announce ${assistantId}`).toSorted());
  await eventually(async () => {
    const unannounced = { assistantId: mine.assistantId, announceAt: { $exists: true } };
    expect(await rowsOf('tombstones').countDocuments(unannounced)).toBe(0);
  });
});

/** A database of its own, in which no worker sweeps, with what is due of these assistants. */
const withTombstones = async (owners: string[]): Promise<Dependencies['connection']> => {
  const connection = stack.service.mongo.useDb(`purges-${randomUUID()}`);
  onTestFinished(() => connection.dropDatabase());
  const at = new Date(0);
  const due = owners.map((assistantId) => {
    const when = { erasedAt: at, purgeAt: at, announceAt: at };
    return { _id: randomUUID(), assistantId, eventId: randomUUID(), purgesLeft: 1, ...when };
  });
  const tombstones = connection.collection<(typeof due)[number]>('tombstones');
  await tombstones.createIndex({ assistantId: 1, purgeAt: 1 });
  const partialFilterExpression = { announceAt: { $exists: true } };
  await tombstones.createIndex({ assistantId: 1, announceAt: 1 }, { partialFilterExpression });
  await tombstones.insertMany(due);
  return connection;
};

test('many purges of an assistant that each take long are left to later sweeps, and others have their turns', async () => {
  const [slow, other] = [randomUUID(), randomUUID()];
  const connection = await withTombstones([...Array.from({ length: 20 }, () => slow), other]);
  const begun: string[] = [];
  const erasure = anErasure({
    eraseElsewhere: async ({ assistantId }) => {
      begun.push(assistantId);
      await sleep(100);
    },
    handledForMs: 150,
    connection,
  });

  await erasure.purgeAgain();

  const ofSlow = begun.filter((one) => one === slow).length;
  expect(begun).toContain(other);
  expect(ofSlow).toBeGreaterThan(0);
  expect(ofSlow).toBeLessThanOrEqual(2);
});

test('purges of a sweep do not wait for those at erasures', async () => {
  const hold = Promise.withResolvers<void>();
  const mine = randomUUID();
  const begun: string[] = [];
  const erasure = anErasure({
    eraseElsewhere: async (_erased, { unboundBefore }) => {
      begun.push(unboundBefore ? 'of the sweep' : 'at the erasure');
      if (!unboundBefore) await hold.promise;
    },
    connection: await withTombstones([mine]),
  });
  for (let nth = 0; nth < 3; nth += 1) {
    const conversationId = randomUUID();
    await erasure.erase({ _id: conversationId, conversationId, assistantId: mine });
  }
  await eventually(() => expect(begun).toEqual(['at the erasure']));

  await erasure.purgeAgain();

  expect(begun).toEqual(['at the erasure', 'of the sweep']);
  hold.resolve();
  await eventually(() => expect(begun).toHaveLength(4));
});

test('a sweep whose announcements take long ends, and the next one goes on with other assistants', async () => {
  const owners = Array.from({ length: 6 }, () => randomUUID()).toSorted();
  const begun: string[] = [];
  const erasure = anErasure({
    eraseElsewhere: async () => undefined,
    announceErased: async ({ assistantId }) => {
      begun.push(assistantId);
      await sleep(200);
      return false;
    },
    announcedForMs: 100,
    connection: await withTombstones(owners),
  });

  await erasure.announceErasures();
  const first = begun.splice(0);
  await erasure.announceErasures();

  expect(first.toSorted()).toEqual(owners.slice(0, 4));
  expect(begun.toSorted()).toEqual(owners.slice(4));
});
