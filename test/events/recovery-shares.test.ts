import { randomUUID } from 'node:crypto';
import { mongo } from 'mongoose';
import { afterAll, expect, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { collectionIn, examinedBy, profileStatements } from '../support/profile.ts';
import { openReceiver, type Receiver, type ReceiverOptions } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

/** Requests to an endpoint at once. */
const CONCURRENCY = 10;
const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  env: { ENDPOINT_CONCURRENCY: String(CONCURRENCY) },
  timing: { endWrittenWithinMs: 1_000, sweepEveryMs: 400, recoveryTurnMs: 1_000 },
});
const opened: Receiver[] = [];
afterAll(() => Promise.all(opened.map((one) => one.close())));

const MINUTE_MS = 60_000;
const LONG = 'x'.repeat(16_000);

/** A recovery of events that a new endpoint missed, as they are stored: so many in each of its conversations. */
const aRecovery = async (
  assistantId: string,
  missed: number,
  options: ReceiverOptions & { conversations?: number } = {},
) => {
  const { conversations: count = 1 } = options;
  const receiver = await openReceiver(options);
  opened.push(receiver);
  const { service } = stack;
  const { endpointId, url } = (await service.endpoints.addEndpoint(assistantId, { url: receiver.url })).endpoint;
  const keys = await createFeed(service).openConversations(assistantId, count);
  const conversations = service.mongo.collection<{ _id: string; conversationId: string }>('conversations');
  const ids = (await conversations.find({ _id: { $in: keys } }).toArray()).map((row) => row.conversationId);
  const at = new Date(Date.now() - 5 * MINUTE_MS);
  const rows = Array.from({ length: count * missed }, (_, nth) => {
    const eventId = randomUUID();
    return {
      _id: `${eventId}:${endpointId}`,
      eventId,
      endpointId,
      assistantId,
      conversationId: ids[nth % count] ?? '',
      url,
      event: 'message.received',
      sequence: Math.floor(nth / count) + 1,
      redelivery: false,
      outcome: 'not_sent',
      body: '{}',
      responseBody: LONG,
      happenedAt: at,
      createdAt: at,
      endedAt: at,
      expiresAt: new Date(Date.now() + 60 * MINUTE_MS),
      endedOn: new mongo.Timestamp({ t: Math.floor(at.getTime() / 1_000), i: nth + 1 }),
    };
  });
  await service.mongo.collection<(typeof rows)[number]>('deliveries').insertMany(rows);
  const range = { from: new Date(at.getTime() - MINUTE_MS), to: new Date(at.getTime() + MINUTE_MS) };
  const { _id } = await service.recoveries.start({ assistantId, endpointId, ...range, outcomes: ['not_sent'] }, 'test');
  return { recoveryId: _id, receiver, conversationId: ids[0] ?? '', deliveryIds: rows.map(({ _id: id }) => id) };
};

test('a recovery reads a long conversation on from where it came', async () => {
  const { assistantId } = await anAssistant(stack);
  const { recoveryId, conversationId, deliveryIds } = await aRecovery(assistantId, 1_000);
  const { recoveries } = stack.service;
  await recoveries.leaveOut(recoveryId, deliveryIds.slice(0, 900));
  const next = async () => {
    const missed = await recoveries.nextMissed(recoveryId, conversationId);
    return typeof missed === 'object' ? (missed?.delivery.sequence ?? null) : missed;
  };

  const seen: unknown[] = [await next()];
  const sent = await profileStatements(stack, async () => {
    for (let nth = 900; nth < 904; nth += 1) {
      await recoveries.leaveOut(recoveryId, deliveryIds.slice(nth, nth + 1));
      seen.push(await next());
    }
  });

  expect(seen).toEqual([901, 902, 903, 904, 905]);
  const read = sent.filter((one) => collectionIn(one) === 'deliveries').reduce((sum, one) => sum + examinedBy(one), 0);
  expect(read).toBeLessThan(500);
  // What is sent again needs no response of before.
  expect(sent.reduce((bytes, one) => bytes + (one.responseLength ?? 0), 0)).toBeLessThan(5 * LONG.length);
  // What is found missed only now is sent too.
  await recoveries.leaveOut(recoveryId, deliveryIds.slice(904));
  await stack.service.mongo
    .collection<{ _id: string }>('deliveries')
    .updateOne({ _id: deliveryIds[3] ?? '' }, { $unset: { recoveredBy: '' } });
  expect(await next()).toBe(4);
  await recoveries.change(recoveryId, 'cancelled');
});

test('a look ends after a few events that are not sent again, and the next one goes on behind them', async () => {
  const { assistantId } = await anAssistant(stack);
  const { recoveryId, receiver, conversationId, deliveryIds } = await aRecovery(assistantId, 25);
  await stack.service.mongo
    .collection<{ _id: string }>('deliveries')
    .updateMany({ _id: { $in: deliveryIds.slice(0, 24) } }, { $set: { outcome: 'rejected' } });
  const { recoveries } = stack.service;

  const seen = [];
  for (let nth = 0; nth < 3; nth += 1) seen.push(await recoveries.nextMissed(recoveryId, conversationId));

  expect(seen).toMatchObject(['more', 'more', { delivery: { sequence: 25 } }]);
  const worker = await stack.startDeliveryWorker();
  await eventually(async () => expect((await recoveries.find(recoveryId))?.state).toBe('done'));
  expect(receiver.received).toHaveLength(1);
  await worker.close();
});

/** An assistant's recovery ends while all of these run. They end too once `letGo` is called. */
const endsBefore = async (assistantId: string, held: { recoveryId: string }[], letGo: () => void): Promise<void> => {
  const { recoveryId } = await aRecovery(assistantId, 3);
  const stateOf = async (id: string) => (await stack.service.recoveries.find(id))?.state;
  const states = () => Promise.all(held.map((one) => stateOf(one.recoveryId)));
  await eventually(async () => expect(await stateOf(recoveryId)).toBe('done'));
  expect(await states()).toEqual(held.map(() => 'running'));

  letGo();
  await eventually(async () => expect(await states()).toEqual(held.map(() => 'done')));
};

test('the slow recoveries of one assistant leave room for that of another', async () => {
  const [slow, neighbour] = [await anAssistant(stack), await anAssistant(stack)];
  const letGo = Promise.withResolvers<{ status: number }>();
  const held = await Promise.all(
    Array.from({ length: 6 }, () => aRecovery(slow.assistantId, 4, { respond: () => letGo.promise })),
  );
  const worker = await stack.startDeliveryWorker();
  await eventually(() => expect(opened.filter(({ received }) => received.length > 0)).not.toHaveLength(0));

  await endsBefore(neighbour.assistantId, held, () => letGo.resolve({ status: 200 }));
  await worker.close();
});

test('recoveries whose conversations are long and whose endpoints are slow give up their places, first to an assistant without a turn', async () => {
  const letGo = Promise.withResolvers<{ status: number }>();
  const held: Awaited<ReturnType<typeof aRecovery>>[] = [];
  for (let nth = 0; nth < 3; nth += 1) {
    const { assistantId } = await anAssistant(stack);
    for (let own = 0; own < 7; own += 1) held.push(await aRecovery(assistantId, 4, { respond: () => letGo.promise }));
  }
  const countBegun = () => held.filter(({ receiver }) => receiver.received.length > 0).length;
  const neighbour = await anAssistant(stack);
  const worker = await stack.startDeliveryWorker();
  await eventually(() => expect(countBegun()).toBeGreaterThanOrEqual(4));

  await endsBefore(neighbour.assistantId, held, () => letGo.resolve({ status: 200 }));

  // Nothing is lost: the others went on where they were.
  // On a slow machine, some of those that were held are unknown by now.
  const countSent = async ({ recoveryId: id }: { recoveryId: string }) =>
    Object.values((await stack.service.recoveries.read(id)).sent).reduce((sum, count) => sum + count, 0);
  expect(await Promise.all(held.map(countSent))).toEqual(held.map(() => 4));
  for (const { receiver } of held) expect(receiver.received.length).toBeLessThanOrEqual(4);
  await worker.close();
});

test('recoveries that an assistant starts and cancels again and again hide none of another', async () => {
  const busy = await anAssistant(stack);
  const { endpoints, recoveries } = stack.service;
  const begin = async () => {
    const { endpointId } = (await endpoints.addEndpoint(busy.assistantId, { url: 'https://hooks.example.com' }))
      .endpoint;
    const range = { from: new Date(Date.now() - MINUTE_MS), to: new Date() };
    for (let nth = 0; nth < 21; nth += 1) {
      const start = recoveries.start({ ...busy, endpointId, ...range, outcomes: ['not_sent'] }, 'test');
      await recoveries.change((await start)._id, 'cancelled');
    }
  };
  await Promise.all(Array.from({ length: 10 }, begin));

  const { recoveryId } = await aRecovery((await anAssistant(stack)).assistantId, 3);

  // More than a worker looks at, if they were left to it.
  expect((await recoveries.findDue(200)).map(({ _id }) => _id)).toContain(recoveryId);
  await recoveries.change(recoveryId, 'cancelled');
});

test('the due recoveries of 21 assistants hide none of another', async () => {
  const recoveries = stack.service.mongo.collection<{ _id: string; assistantId: string; due: Date }>('recoveries');
  const aRow = (assistantId: string, minutesAgo: number) => ({
    _id: randomUUID() as string,
    assistantId,
    endpointId: randomUUID(),
    state: 'running',
    due: new Date(Date.now() - minutesAgo * MINUTE_MS),
  });
  const rows = Array.from({ length: 210 }, (_, nth) => aRow(`busy ${nth % 21}`, 10));
  const newest = aRow('a neighbour', 1);
  await recoveries.insertMany([...rows, newest]);

  const own = [...rows, newest].map(({ _id }) => _id);
  let found: string[] = [];
  const sent = await profileStatements(stack, async () => {
    for (let nth = 0; nth < 2; nth += 1) found = (await stack.service.recoveries.findDue(200)).map(({ _id }) => _id);
  });
  found = found.filter((id) => own.includes(id)); // tests before may have left one that is due

  expect(found).toContain(newest._id);
  expect(found.at(-1)).toBe(newest._id);
  const read = sent.filter((one) => collectionIn(one) === 'recoveries').reduce((sum, one) => sum + examinedBy(one), 0);
  expect(read).toBeLessThan(2 * rows.length);
  await recoveries.deleteMany({ _id: { $in: own } });
});

test('a recovery leaves four fifths of its endpoint to live events', async () => {
  const { assistantId } = await anAssistant(stack);
  const letGo = Promise.withResolvers<{ status: number }>();
  const { recoveryId, receiver } = await aRecovery(assistantId, 1, {
    conversations: 3 * CONCURRENCY,
    respond: () => letGo.promise,
  });
  const worker = await stack.startDeliveryWorker();
  const count = () => {
    const again = receiver.received.filter(({ headers }) => headers['x-factory-redelivery'] === 'true').length;
    return { again, live: receiver.received.length - again };
  };
  await eventually(() => expect(count().again).toBe(CONCURRENCY / 5));

  const feed = createFeed(stack.service);
  for (const key of await feed.openConversations(assistantId, 2 * CONCURRENCY))
    await feed.say(assistantId, key, ['hello']);

  // Nothing is answered, so each request keeps its slot.
  await eventually(() => expect(count()).toEqual({ again: CONCURRENCY / 5, live: CONCURRENCY - CONCURRENCY / 5 }));
  letGo.resolve({ status: 200 });
  await eventually(async () => expect((await stack.service.recoveries.find(recoveryId))?.state).toBe('done'));
  expect(count()).toEqual({ again: 3 * CONCURRENCY, live: 2 * CONCURRENCY });
  await worker.close();
});
