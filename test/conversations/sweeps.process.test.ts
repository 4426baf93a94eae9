import { randomUUID } from 'node:crypto';
import { mongo } from 'mongoose';
import { expect, test } from 'vitest';
import { claimOf } from '../../src/events/claims.ts';
import { createBackoff, createDeliverySweeps } from '../../src/events/sweep.ts';
import { neverSent } from '../../src/events/delivery.ts';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { composeBody } from '../../src/conversations/event.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const SWEEP_EVERY_MS = 250;
const stack = useStack({
  timing: { sweepEveryMs: SWEEP_EVERY_MS, eventStaleMs: 500, maintenanceEveryMs: 500 },
});

const aStream = async (conversations = 1) => {
  const { assistantId } = await anAssistant(stack);
  const receiver = await openReceiver();
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistantId, conversations);
  const key = keys[0] as string;
  const to = { endpointId: endpoint.endpointId, url: endpoint.url };
  const readHead = async () => {
    const outbox = await stack.service.conversations.outbox.read(key);
    const event = outbox?.outbox?.[0];
    if (!outbox || !event) throw new Error('nothing waits');
    return {
      outbox,
      event,
      claim: claimOf(outbox, event, { ...to, body: composeBody(event, outbox), sequence: null }),
    };
  };
  return { assistantId, receiver, endpoint, feed, keys, key, readHead };
};

/** Options for events that have no wake-up and are old enough for a sweep. */
const OLD = { at: new Date(Date.now() - 3_000), silent: true };

const readDelivery = async (id: string) => (await stack.service.deliveries.readByIds([id])).get(id);

// These wait for the sweeps of the workers, so they wait together.
test.concurrent('events whose wake-up was lost are found and sent in order', async ({ expect }) => {
  const { assistantId, key, feed, receiver } = await aStream();

  await feed.say(assistantId, key, ['1', '2', '3'], { silent: true });
  await receiver.waitFor((all) => all.length >= 3);

  expect(receiver.received.map(contentOf)).toEqual(['1', '2', '3']);
});

test.concurrent('a claim whose worker is gone ends unknown after ten seconds, not before, and its stream continues', async ({
  expect,
}) => {
  const { assistantId, key, feed, receiver, readHead } = await aStream();
  await feed.say(assistantId, key, ['lost', 'next'], { silent: true });
  const { claim } = await readHead();
  const claimed = await stack.service.deliveries.claim(claim);
  const id = claimed.won ? claimed.deliveryId : '';
  const ageTo = (seconds: number) =>
    stack.service.mongo
      .collection('deliveries')
      .updateOne({ _id: id as never }, [
        { $set: { claimedAt: new mongo.Timestamp({ t: Math.floor(Date.now() / 1000) - seconds, i: 1 }) } },
      ]);

  // Waits for a full second, because MongoDB's clock counts only whole seconds. Otherwise, an age of seven seconds here
  // could be eight seconds for MongoDB.
  await new Promise((resolve) => setTimeout(resolve, 1_000 - (Date.now() % 1_000)));
  await ageTo(7);
  await new Promise((resolve) => setTimeout(resolve, 2 * SWEEP_EVERY_MS));
  const before = await readDelivery(id);
  await ageTo(12);
  await receiver.waitFor((all) => all.length >= 1);

  expect(before?.outcome).toBe('sending');
  expect(await readDelivery(id)).toMatchObject({ outcome: 'unknown', errorKind: 'worker_lost' });
  expect(receiver.received.map(contentOf)).toEqual(['next']);
  // A result that arrives later changes nothing.
  const late = { ...neverSent('internal'), outcome: 'delivered' as const };
  await stack.service.deliveries.recordOutcome(id, claimed.won ? claimed.token : '', late);
  expect((await readDelivery(id))?.outcome).toBe('unknown');
});

test.concurrent('an event that has ended but is still pending is removed and not sent', async ({ expect }) => {
  const { assistantId, key, feed, receiver, readHead } = await aStream();
  await feed.say(assistantId, key, ['ended', 'next'], { silent: true });
  await stack.service.deliveries.claimEnded((await readHead()).claim, neverSent('internal'));

  await receiver.waitFor((all) => all.length >= 1);

  expect(receiver.received.map(contentOf)).toEqual(['next']);
  await eventually(async () => expect((await stack.service.conversations.outbox.read(key))?.outbox).toEqual([]));
});

test.concurrent('an event whose claim is released is sent; a claim that a sweep has ended cannot be released', async ({
  expect,
}) => {
  const { assistantId, key, feed, receiver, readHead } = await aStream();
  await feed.say(assistantId, key, ['1'], { silent: true });
  const { claim } = await readHead();
  const { deliveries } = stack.service;
  const claimed = await deliveries.claim(claim);
  const again = await deliveries.claim(claim);

  const byOther = claimed.won && (await deliveries.release(claimed.deliveryId, 'another', { queued: false }));
  const byOwner = claimed.won && (await deliveries.release(claimed.deliveryId, claimed.token, { queued: false }));
  await receiver.waitFor((all) => all.length >= 1);

  expect([again.won, byOther, byOwner]).toEqual([false, false, true]);
});

test.concurrent('what is written late about an erased conversation is purged by a worker', async ({ expect }) => {
  const { apiKey, assistantId, chat } = await anAssistant(stack);
  const { conversationId } = (await chat({ session_id: 's', message: 'private' })).body;
  await request(`${stack.url}/api/v1/conversations/${conversationId}`, { method: 'DELETE', bearer: apiKey });
  const tombstones = stack.service.mongo.collection<{ _id: string }>('tombstones');
  const misses = stack.service.mongo.collection('misses');
  const late = { assistantId, conversationId, question: 'private', state: 'open', examples: [], answer: null };
  await misses.insertOne(late);

  // Moves the purge to the past, as if a minute had passed.
  await tombstones.updateOne({ _id: conversationId }, { $set: { purgeAt: new Date(0) } });

  await eventually(async () => expect(await misses.countDocuments({ conversationId })).toBe(0));
  await eventually(async () =>
    expect(await tombstones.findOne({ _id: conversationId })).toMatchObject({ purgesLeft: 1 }),
  );
});

/** Moves the last change of conversations to the past. */
const age = async (conversationIds: string[], days: number) => {
  const updatedAt = new Date(Date.now() - days * 86_400_000);
  await stack.service.mongo
    .collection('conversations')
    .updateMany({ conversationId: { $in: conversationIds } }, { $set: { updatedAt } });
};

test.concurrent('a conversation that has not changed for the days of its assistant is erased, and no other', async ({
  expect,
}) => {
  const { assistantId, chat } = await anAssistant(stack);
  const neighbour = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, {
    url: receiver.url,
    events: ['message.received', 'conversation.erased'],
  });
  const send = async (one: typeof chat) =>
    (await one({ session_id: randomUUID(), message: 'private' })).body.conversationId;
  const [old, used, other] = [await send(chat), await send(chat), await send(neighbour.chat)];
  await receiver.waitFor((received) => received.length >= 2);
  await stack.service.assistants.updateAssistant(assistantId, { keepDays: 30 });

  await age([old, other], 31);
  await age([used], 29);

  const erased = await receiver.waitFor((received) => received.length >= 3);
  expect(erased[2]?.json).toMatchObject({ event: 'conversation.erased', payload: { conversation_id: old } });
  const { mongo: database } = stack.service;
  const left = await database.collection('conversations').distinct('conversationId', {
    conversationId: { $in: [old, used, other] },
  });
  expect(left.toSorted()).toEqual([used, other].toSorted());
  await eventually(async () =>
    expect(await database.collection('messages').countDocuments({ conversationId: old })).toBe(0),
  );
});

/** Sweeps that the test runs itself. Their wake-ups are recorded in `woken` and reach no worker. */
const sweepsOf = (
  streams: { endpoint: { endpointId: string } }[],
  options: { suspended?: () => string[]; outboxesPerSweep?: number },
) => {
  const woken: string[] = [];
  const listPausedIds = async () => streams.map(({ endpoint }) => endpoint.endpointId);
  const deliveryQueue = {
    ...stack.service.deliveryQueue,
    wake: ({ _id: key }: { _id: string }) => void woken.push(key),
    byPartition: async <Outbox>(items: Outbox[]) => [{ items, oldestWaitingAt: null }],
  };
  const endpoints = { ...stack.service.endpoints, listPausedIds };
  const sweeps = createDeliverySweeps({
    ...stack.service,
    deliveryQueue,
    endpoints,
    eventMaxAgeMs: 600_000,
    timing: TIMING,
    ...options,
  });
  return { woken, sweep: sweeps.streams };
};

/** Pauses the endpoint, so that the stack's own sweeps and workers do not send the events. */
const hold = ({ endpoint }: { endpoint: { endpointId: string } }) =>
  stack.service.endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });

test('sweeps skip streams of suspended and paused endpoints, unless they are over the bound or too old', async () => {
  const [suspended, paused, overdue, healthy] = [
    await aStream(),
    await aStream(),
    await aStream(),
    await aStream(),
  ] as const;
  const streams = [suspended, paused, overdue, healthy];
  for (const stream of streams) await hold(stream);
  for (const stream of streams) await stream.feed.say(stream.assistantId, stream.key, ['1'], OLD);
  const { sweep, woken } = sweepsOf([paused, overdue], { suspended: () => [suspended.endpoint.endpointId] });
  await overdue.feed.say(overdue.assistantId, overdue.key, Array.from({ length: 501 }, String), OLD);

  await sweep();

  expect(woken).toContain(healthy.key);
  expect(woken).not.toContain(suspended.key);
  expect(woken).not.toContain(paused.key);
  expect((await stack.service.conversations.outbox.read(overdue.key))?.outbox).toHaveLength(500);
});

test('the streams of many endpoints that fill each sweep hide none of another', async () => {
  const streams = await Promise.all(Array.from({ length: 13 }, () => aStream(10)));
  await Promise.all(streams.map(hold));
  for (const { feed, assistantId, keys } of streams)
    await Promise.all(keys.map((key) => feed.say(assistantId, key, ['1'], OLD)));
  // Sweeps read in the order of the endpoints' ids.
  const last = streams.toSorted((one, other) => (one.endpoint.endpointId < other.endpoint.endpointId ? -1 : 1)).at(-1)!;
  const { sweep, woken } = sweepsOf([], { outboxesPerSweep: 40 });

  await sweep();
  await sweep();

  expect(woken).toEqual(expect.arrayContaining(last.keys));
  expect(woken).toEqual(expect.arrayContaining(streams.flatMap(({ keys }) => keys)));
});

test('streams of one endpoint that fill a sweep, or do not move, give way to others', async () => {
  // What the tests before have left would take rounds of the sweep, some more by the order of the endpoints' ids.
  await stack.service.mongo.collection('conversations').updateMany({}, { $set: { outbox: [] } });
  const dead = await aStream(120);
  const behind = await aStream();
  await Promise.all([dead, behind].map(hold));
  for (const key of dead.keys)
    await dead.feed.say(dead.assistantId, key, ['1'], { ...OLD, at: new Date(OLD.at.getTime() - 60_000) });
  await behind.feed.say(behind.assistantId, behind.key, ['1'], OLD);
  const { sweep, woken } = sweepsOf([], { outboxesPerSweep: 120 });

  await sweep();
  expect(woken).toContain(behind.key);
  await sweep();
  const before = woken.length;
  await sweep();

  expect(woken.slice(before)).toContain(behind.key);
  expect(woken.slice(before).filter((key) => dead.keys.includes(key))).toEqual([]);
});

test('a sweep reads no event that waits for a suspended endpoint, and a list only those of its assistant', async () => {
  const [suspended, healthy] = [await aStream(sized({ everyday: 1_100, long: 3_000 })), await aStream()] as const;
  for (const stream of [suspended, healthy]) await hold(stream);
  const held = { outbox: { eventId: randomUUID(), at: OLD.at, endpoints: [suspended.endpoint.endpointId] } };
  const { outbox } = stack.service.conversations;
  const { list } = stack.service.deliveries;
  const database = stack.service.mongo.db!;
  await database
    .collection<{ _id: string }>('conversations')
    .updateMany({ _id: { $in: suspended.keys } }, { $push: held as never });
  await healthy.feed.say(healthy.assistantId, healthy.key, ['1'], OLD);
  await database.command({ profile: 2 });
  const exclude = [suspended.endpoint.endpointId];

  const wanted = { olderThanMs: 1_000, exclude, limit: 5_000, expiredMs: 86_400_000 };
  const { outboxes: found } = await outbox.findStale(wanted);
  const listed = await list({ assistantId: healthy.assistantId });
  const keys = await outbox.findKeysOf(healthy.endpoint.endpointId, 5_000);
  await database.command({ profile: 0 });

  expect(found.map(({ _id }) => _id)).toContain(healthy.key);
  expect(listed.deliveries).toHaveLength(1);
  expect(keys).toEqual([healthy.key]);
  const profiled = await database
    .collection('system.profile')
    .find({
      $or: [{ 'command.hint': /^outbox/ }, { 'originatingCommand.hint': /^outbox/ }],
      docsExamined: { $gt: 1_000 },
    })
    .toArray();
  expect(profiled.map(({ command }) => command as unknown)).toEqual([]);
});

test('a due purge is made once if several processes look for it', async () => {
  const { apiKey, chat } = await anAssistant(stack);
  const { conversationId } = (await chat({ session_id: 's', message: 'private' })).body;
  await request(`${stack.url}/api/v1/conversations/${conversationId}`, { method: 'DELETE', bearer: apiKey });
  const tombstones = stack.service.mongo.collection<{ _id: string }>('tombstones');
  const isDue = { purgeAt: { $lte: new Date() } };
  expect(await tombstones.countDocuments(isDue)).toBe(0);
  await tombstones.updateOne({ _id: conversationId }, { $set: { purgeAt: new Date(0) } });

  const { conversations } = stack.service;
  const purges = await Promise.all([1, 2, 3].map(() => conversations.purgeAgain()));

  expect(purges.reduce((sum, count) => sum + count)).toBeLessThanOrEqual(1); // a worker of the stack may be first
  await eventually(async () =>
    expect(await tombstones.findOne({ _id: conversationId })).toMatchObject({ purgesLeft: 1 }),
  );
  const next = (await tombstones.findOne<{ purgeAt: Date }>({ _id: conversationId }))?.purgeAt.getTime() ?? 0;
  expect(next - Date.now()).toBeGreaterThan(80_000_000);
});

test('many erasures of some assistants do not delay the announcement and the purge of another’s', async () => {
  const { apiKey, assistantId, chat } = await anAssistant(stack);
  const receiver = await openReceiver();
  const events = ['message.received', 'conversation.erased'];
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events });
  const { conversationId } = (await chat({ session_id: 's', message: 'private' })).body;
  await receiver.waitFor((all) => all.length >= 1);
  await eventually(async () => {
    const { deliveries } = await stack.service.deliveries.listRecords({ assistantId });
    expect(deliveries).toMatchObject([{ outcome: 'delivered' }]);
  });
  // They are due before it, and each has an event in flight, so none of them ends.
  const [at, others] = [new Date(), [randomUUID(), randomUUID()]];
  const gone = Array.from({ length: sized({ everyday: 600, long: 1_200 }) }, (_, nth) => ({
    _id: randomUUID(),
    assistantId: others[nth % 2],
  }));
  const { mongo: connection } = stack.service;
  const tombstones = connection.collection<{ _id: string; announceAt?: Date }>('tombstones');
  const inFlight = { endpointId: randomUUID(), outcome: 'sending', claimedAt: at, createdAt: at };
  await connection
    .collection<{ _id: string }>('deliveries')
    .insertMany(gone.map((one) => ({ ...one, conversationId: one._id, endedAt: null, ...inFlight })) as never);
  const due = { erasedAt: at, purgeAt: new Date(0), purgesLeft: 2, announceAt: new Date(0) };
  await tombstones.insertMany(gone.map((one) => ({ ...one, eventId: randomUUID(), ...due })) as never);

  await request(`${stack.url}/api/v1/conversations/${conversationId}`, { method: 'DELETE', bearer: apiKey });
  const { erasedAt } = (await tombstones.findOne<{ erasedAt: Date }>({ _id: conversationId })) ?? {};
  await tombstones.updateOne({ _id: conversationId }, { $set: { purgeAt: erasedAt, announceAt: erasedAt } as never });
  const { conversations } = stack.service;
  await conversations.announceErasures();
  await conversations.purgeAgain();
  await tombstones.deleteMany({ assistantId: { $in: others } });

  const after = await tombstones.findOne({ _id: conversationId });
  expect(after).toMatchObject({ purgesLeft: 1 });
  expect(after).not.toHaveProperty('announceAt');
});

test('a visitor who comes back while an old conversation is erased loses no message', async () => {
  const { assistantId, chat, history } = await anAssistant(stack);
  const { conversations } = stack.service;
  const sessions = Array.from({ length: sized({ everyday: 10, long: 20 }) }, () => randomUUID());
  const before = await Promise.all(
    sessions.map(async (session_id) => (await chat({ session_id, message: 'Hello' })).body.conversationId),
  );
  await age(before, 31);
  const since = new Date(Date.now() - 30 * 86_400_000);

  const again = Promise.all(sessions.map((session_id) => chat({ session_id, message: 'I am back' })));
  const erasures = [1, 2, 3].map(() => conversations.eraseUnchanged({ assistantId, since, most: 20 }, () => undefined));
  const counts = await Promise.all(erasures);
  const answers = await again;

  expect(answers.map(({ status }) => status)).toEqual(sessions.map(() => 200));
  const kept = answers.filter(({ body }, nth) => body.conversationId === before[nth]).length;
  expect(counts.reduce((sum, count) => sum + count)).toBe(sessions.length - kept);
  for (const [nth, { body }] of answers.entries()) {
    const { messages } = (await history(body.conversationId)).body;
    const texts = messages.filter(({ role }) => role === 'user').map(({ content }) => content);
    expect(texts).toEqual(body.conversationId === before[nth] ? ['Hello', 'I am back'] : ['I am back']);
  }
});

test('after a crash the old conversation is erased, and one that is used again stays and is not announced', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const receiver = await openReceiver();
  const { endpointId } = (
    await stack.service.endpoints.addEndpoint(assistantId, {
      url: receiver.url,
      events: ['message.received', 'conversation.erased'],
    })
  ).endpoint;
  const [old, used] = [(await chat(aTurn())).body.conversationId, (await chat(aTurn())).body.conversationId];
  await receiver.waitFor((received) => received.length >= 2);
  await age([old], 31);
  const { mongo: database, conversations } = stack.service;
  const tombstones = database.collection<{ _id: string }>('tombstones');
  // As a process leaves them that is killed before it deletes the documents.
  const left = [old, used].map((_id) => ({
    _id,
    assistantId,
    eventId: randomUUID(),
    purgesLeft: 2,
    ended: { [endpointId]: 1 },
    erasedAt: new Date(),
    purgeAt: new Date(0),
    announceAt: new Date(0),
    unchangedSince: new Date(Date.now() - 30 * 86_400_000),
  }));

  await tombstones.insertMany(left);
  await conversations.purgeAgain();

  await eventually(async () => expect(await tombstones.findOne({ _id: used })).toBeNull());
  const [, , erased] = await receiver.waitFor((received) => received.length >= 3);
  expect(erased?.json).toMatchObject({ event: 'conversation.erased', payload: { conversation_id: old } });
  expect(await conversations.findById(old)).toBeNull();
  expect(await conversations.findById(used)).not.toBeNull();
});

test('backoff suspends an endpoint with the same heads for two seconds, then four, up to sixteen, and no other', () => {
  let time = 0;
  const backoff = createBackoff(() => time);
  const heads = Array.from({ length: 100 }, (_, index) => `head ${index}`);
  const others = heads.map((head) => `other ${head}`);

  expect(backoff.note('e', heads)).toBe(false);
  expect(backoff.note('few', heads.slice(0, 99))).toBe(false);
  expect(backoff.note('few', heads.slice(0, 99))).toBe(false);
  const waits: number[] = [];
  for (let round = 0; round < 5; round += 1) {
    expect(backoff.note('e', heads)).toBe(true);
    const from = time;
    while (backoff.suspended().includes('e')) time += 1_000;
    waits.push(time - from);
  }
  expect(waits).toEqual([2_000, 4_000, 8_000, 16_000, 16_000]);
  expect(backoff.note('e', others)).toBe(false);
  expect(backoff.suspended()).toEqual([]);
});
