import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { createTestsAndResends } from '../../src/events/tests-and-resends.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver, type ReceiverOptions } from '../kit/receiver.ts';
import { collectionIn, type Profiled, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ timing: { sweepEveryMs: 250, endWrittenWithinMs: 1_000 } });

const KIND = 'conversation.erased';

const anEndpoint = async (assistantId: string, events: string[], options: ReceiverOptions = {}) => {
  const receiver = await openReceiver(options);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events });
  const seen = () =>
    receiver.received.map(({ json, headers }) => {
      const { event, payload } = json as { event: string; payload: object };
      return { event, payload, sequence: Number(headers['x-factory-sequence']), body: JSON.stringify(json) };
    });
  return { receiver, endpointId: endpoint.endpointId, seen };
};

const erase = (assistant: Awaited<ReturnType<typeof anAssistant>>, conversationId: string) =>
  assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });

const endedOf = (conversationId: string, count: number) =>
  eventually(async () => {
    const rows = await stack.service.mongo.collection('deliveries').find({ conversationId }).toArray();
    expect(rows.filter(({ endedAt }) => endedAt !== null)).toHaveLength(count);
    return rows;
  });

const statementsOf = (conversationId: string, statements: Profiled[]): Profiled[] =>
  statements.filter(
    (one) => collectionIn(one) === 'deliveries' && JSON.stringify(one.command).includes(conversationId),
  );

/** Lets the sweeps announce what they would announce some seconds later. */
const announceNow = async (conversationId: string) => {
  const tombstones = stack.service.mongo.collection<{ _id: string }>('tombstones');
  await tombstones.updateOne(
    { _id: conversationId, announceAt: { $exists: true } },
    { $set: { announceAt: new Date(0) } },
  );
  await eventually(async () =>
    expect(await tombstones.findOne({ _id: conversationId })).not.toHaveProperty('announceAt'),
  );
};

test('an erasure is told, without texts, to those endpoints that ask for it and got something, also if they refused it', async () => {
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  const told = await anEndpoint(assistantId, ['message.received', KIND]);
  const all = await anEndpoint(assistantId, []);
  const other = await anEndpoint(assistantId, ['tag.added', KIND]);
  const refused = await anEndpoint(assistantId, ['message.received', KIND], { respond: () => ({ status: 500 }) });
  const down = await anEndpoint(assistantId, ['message.received', KIND]);
  await down.receiver.close();
  const { conversationId } = (await assistant.chat(aTurn({ message: 'private' }))).body;
  await endedOf(conversationId, 5);

  expect((await erase(assistant, conversationId)).status).toBe(204);
  await told.receiver.waitFor((received) => received.length >= 2);
  await announceNow(conversationId);
  const rows = await endedOf(conversationId, 7);

  expect(told.seen().map(({ event, sequence }) => [event, sequence])).toEqual([
    ['message.received', 1],
    [KIND, 2],
  ]);
  for (const { receiver, seen } of [told, refused]) {
    const got = receiver.received[0]?.headers['x-factory-event-id'];
    expect(seen()[1]?.payload).toEqual({ conversation_id: conversationId, event_ids: [got], more_events: false });
  }
  expect([all, other].flatMap(({ seen }) => seen().filter(({ event }) => event === KIND))).toEqual([]);
  expect(JSON.stringify(rows)).not.toContain('private');
  // So an owner sees who was told, and who has confirmed it.
  const outcomeOf = Object.fromEntries(
    rows.filter(({ event }) => event === KIND).map(({ endpointId, outcome }) => [endpointId, outcome]),
  );
  expect(outcomeOf).toEqual({ [told.endpointId]: 'delivered', [refused.endpointId]: 'rejected' });
});

test('it names the last 1,000 events that its endpoint got or may have got, each once, and says if there were more', async () => {
  const assistant = await anAssistant(stack);
  const told = await anEndpoint(assistant.assistantId, ['message.received', KIND]);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const [first] = await endedOf(conversationId, 1);
  const copy = (sequence: number, more: object = {}) => {
    const eventId = randomUUID();
    return { ...first, _id: `${eventId}:${told.endpointId}`, eventId, sequence, ...more };
  };
  const later = Array.from({ length: 1_000 }, (_, nth) =>
    copy(nth + 2, { outcome: nth % 2 ? 'delivered' : 'unknown' }),
  );
  const again = { ...later[0], _id: `${later[0]?.eventId}:${told.endpointId}:1`, redelivery: true };
  const missed = copy(1_002, { outcome: 'not_sent' });
  const elsewhere = copy(1_003, { endpointId: randomUUID() });
  const deliveries = stack.service.mongo.collection<{ _id: string }>('deliveries');
  await deliveries.insertMany([...later, again, missed, elsewhere]);

  await erase(assistant, conversationId);
  await announceNow(conversationId);
  await told.receiver.waitFor((received) => received.length >= 2);

  const payload = told.seen()[1]?.payload as { event_ids: string[]; more_events: boolean };
  expect(payload.event_ids).toEqual(later.map(({ eventId }) => eventId));
  expect(payload.more_events).toBe(true);
});

test('of a conversation with very many deliveries it reads the newest, and finds each that is in flight', async () => {
  const { mongo } = stack.service;
  const { assistantId } = await anAssistant(stack);
  const [conversationId, told, other] = [randomUUID(), randomUUID(), randomUUID()];
  const later = new Date(Date.now() + 3_600_000);
  const delivered = (endpointId: string, at: number, sequence: number) => {
    const eventId = randomUUID();
    const of = { assistantId, conversationId, endpointId, eventId, event: 'message.received', outcome: 'delivered' };
    const times = { happenedAt: new Date(at), createdAt: later, expiresAt: later };
    return { _id: `${eventId}:${endpointId}`, ...of, sequence, ...times };
  };
  const old = Array.from({ length: 5 }, (_, nth) => delivered(other, nth, nth + 1));
  const rows = Array.from({ length: 30 }, (_, nth) => delivered(told, 1_000 + nth, nth + 1));
  const deliveries = mongo.collection<{ _id: string; outcome?: string; body?: string; sequence?: number }>(
    'deliveries',
  );
  await deliveries.insertMany([...old, ...rows]);
  const { queueErased } = createTestsAndResends({ connection: mongo, worker: 'test', retentionDays: 1 }, 10);
  const erased = { assistantId, conversationId, eventId: randomUUID(), erasedAt: later };
  const announce = () =>
    queueErased(
      { ...erased, ended: { [told]: 30, [other]: 5 } },
      [told, other].map((endpointId) => ({ endpointId, url: 'http://127.0.0.1:9/' })),
    );
  const moveOldest = (outcome: string) =>
    deliveries.updateOne({ _id: old[0]?._id ?? '' }, { $set: { outcome, claimedAt: later } });

  await moveOldest('queued');
  const whileQueued = await announce();
  await moveOldest('sending');
  const whileSending = await announce();
  await moveOldest('delivered');
  const statements = await profileStatements(stack, announce);

  expect([whileQueued, whileSending]).toEqual([null, null]);
  const bodies = await Promise.all(
    [told, other].map(async (endpointId) => deliveries.findOne({ _id: `${erased.eventId}:${endpointId}` })),
  );
  const payloads = bodies.map((one) => (JSON.parse(one?.body ?? '{}') as { payload: object }).payload);
  expect(payloads).toMatchObject([
    { event_ids: rows.slice(20).map(({ eventId }) => eventId), more_events: true },
    { event_ids: [], more_events: true },
  ]);
  expect(bodies.map((one) => one?.sequence)).toEqual([31, 6]);
  const read = statementsOf(conversationId, statements).filter(({ command }) => command['aggregate']);
  expect(read).toHaveLength(1); // for all endpoints
  // Each document may have 64 KB of texts, so the index alone tells all of this.
  expect(read[0]).toMatchObject({ docsExamined: 0 });
  expect(read[0]?.keysExamined).toBeLessThanOrEqual(12);
});

test('an erasure reads only its own deliveries in flight, however many of its assistant wait', async () => {
  const { mongo } = stack.service;
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  const told = await anEndpoint(assistantId, [KIND]);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const later = new Date(Date.now() + 3_600_000);
  const times = { happenedAt: later, createdAt: later, claimedAt: later, expiresAt: later, endedAt: null };
  const inFlight = (outcome: string, of: string) => {
    const ids = { assistantId, conversationId: of, endpointId: told.endpointId };
    return {
      _id: `${randomUUID()}:${told.endpointId}`,
      ...ids,
      ...times,
      outcome,
      event: 'message.received',
      body: 'x',
    };
  };
  const own = ['queued', 'sending'].map((outcome) => inFlight(outcome, conversationId));
  const others = Array.from({ length: 300 }, (_, nth) => inFlight(nth < 200 ? 'queued' : 'sending', randomUUID()));
  const deliveries = mongo.collection<(typeof own)[number]>('deliveries');
  await deliveries.insertMany([...own, ...others]);

  const statements = await profileStatements(stack, async () => {
    await erase(assistant, conversationId);
    await announceNow(conversationId);
  });

  const ended = (await endedOf(conversationId, 3)).filter(({ errorKind }) => errorKind === 'erased');
  expect(ended.map(({ outcome }) => outcome as unknown).toSorted()).toEqual(['not_sent', 'unknown']);
  const ofErasure = statementsOf(conversationId, statements);
  expect(ofErasure.length).toBeGreaterThan(4);
  expect(Math.max(...ofErasure.map(({ docsExamined = 0 }) => docsExamined))).toBeLessThanOrEqual(2);
  await deliveries.deleteMany({ endpointId: told.endpointId });
});

test('of events whose records are gone it says that there were more', async () => {
  const assistant = await anAssistant(stack);
  const told = await anEndpoint(assistant.assistantId, ['message.received', KIND]);
  const turn = aTurn();
  const { conversationId } = (await assistant.chat(turn)).body;
  const [gone] = await endedOf(conversationId, 1);
  await assistant.chat(aTurn({ session_id: turn.session_id, message: 'One more' }));
  await endedOf(conversationId, 2);
  await stack.service.mongo.collection('deliveries').deleteOne({ eventId: gone?.eventId });

  await erase(assistant, conversationId);
  await announceNow(conversationId);
  await told.receiver.waitFor((received) => received.length >= 3);

  const kept = told.receiver.received[1]?.headers['x-factory-event-id'];
  expect(told.seen()[2]?.payload).toMatchObject({ event_ids: [kept], more_events: true });
});

test('it comes after what was in flight, once, also if the process died after the deletion', async () => {
  const assistant = await anAssistant(stack);
  const hold = Promise.withResolvers<object>();
  const told = await anEndpoint(assistant.assistantId, ['message.received', KIND], {
    respond: (_, nth) => (nth === 1 ? hold.promise : {}),
  });
  const { conversationId } = (await assistant.chat(aTurn())).body;
  await told.receiver.waitFor((received) => received.length >= 1);

  await erase(assistant, conversationId);
  const tombstones = stack.service.mongo.collection<{ _id: string }>('tombstones');
  const before = await tombstones.findOne({ _id: conversationId });
  const early = told.receiver.received.length;
  hold.resolve({});
  await announceNow(conversationId);
  // A process that died after it had stored the deliveries announces again.
  await tombstones.updateOne({ _id: conversationId }, { $set: { announceAt: new Date(0) } });
  await announceNow(conversationId);
  await told.receiver.waitFor((received) => received.length >= 2);
  const rows = await endedOf(conversationId, 2);

  expect([before !== null && 'announceAt' in before, early]).toEqual([true, 1]);
  expect(told.seen().map(({ event, sequence }) => [event, sequence])).toEqual([
    ['message.received', 1],
    [KIND, 2],
  ]);
  expect(rows.map(({ event, outcome }) => [event, outcome]).toSorted()).toEqual([
    [KIND, 'delivered'],
    ['message.received', 'unknown'],
  ]);
});

test('while its endpoint is paused it waits; of the playground nothing is told', async () => {
  const assistant = await anAssistant(stack);
  const told = await anEndpoint(assistant.assistantId, ['message.received', KIND]);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  await endedOf(conversationId, 1);
  const { endpoints } = stack.service;

  await endpoints.pauseEndpoint(told.endpointId, { reason: 'gone', until: null });
  await erase(assistant, conversationId);
  await announceNow(conversationId);
  const { deliveries } = stack.service;
  const waiting = await deliveries.listRecords({ assistantId: assistant.assistantId, outcome: 'queued' });
  const woken = (pausedIds: string[]) =>
    deliveries.sweepQueued({ wakeAfterMs: 0, expireAfterMs: 3_600_000, pausedIds: new Set(pausedIds) });
  const [ofPaused, ofOthers] = [await woken([told.endpointId]), await woken([])];
  await endpoints.resumeEndpoint(told.endpointId);
  await told.receiver.waitFor((received) => received.length >= 2);

  expect(waiting.deliveries).toMatchObject([{ event: KIND, sequence: 2 }]);
  const ids = waiting.deliveries.map(({ _id }) => _id);
  expect(ofPaused).not.toEqual(expect.arrayContaining(ids)); // a sweep wakes none that would only wait again
  expect(ofOthers).toEqual(expect.arrayContaining(ids));
});

test('erasures that wait for an event in flight keep no others waiting', async () => {
  const [slow, other] = [await anAssistant(stack), await anAssistant(stack)];
  const { endpointId } = await anEndpoint(slow.assistantId, [KIND]);
  const { mongo } = stack.service;
  const later = new Date(Date.now() + 3_600_000);
  const tombstone = ({ assistantId }: typeof slow, announceAt: Date) => ({
    _id: randomUUID(),
    assistantId,
    eventId: randomUUID(),
    announceAt,
    erasedAt: new Date(),
    purgeAt: later,
    purgesLeft: 1,
  });
  const waiting = Array.from({ length: 500 }, (_, nth) => tombstone(slow, new Date(nth)));
  const sending = waiting.map(({ _id: conversationId }) => ({
    _id: `${randomUUID()}:${endpointId}`,
    conversationId,
    assistantId: slow.assistantId,
    endpointId,
    event: 'message.received',
    outcome: 'sending',
    claimedAt: later,
    endedAt: null,
    expiresAt: later,
  }));
  await mongo.collection<(typeof sending)[number]>('deliveries').insertMany(sending);
  const tombstones = mongo.collection<Partial<(typeof waiting)[number]>>('tombstones');
  const next = tombstone(other, new Date(1_000));
  await tombstones.insertMany([...waiting, next]);

  await eventually(async () => expect(await tombstones.findOne({ _id: next._id })).not.toHaveProperty('announceAt'));

  const ids = waiting.map(({ _id }) => _id);
  // By id, because one that a sweep moves meanwhile is found twice.
  const still = await tombstones.distinct('_id', { _id: { $in: ids }, announceAt: { $exists: true } });
  expect(still).toHaveLength(500);
  await mongo.collection('deliveries').deleteMany({ endpointId });
  await tombstones.deleteMany({ _id: { $in: ids } });
});

test('an erasure that cannot be announced is not tried again and again, and keeps no others waiting', async () => {
  const [{ assistantId }, other] = [await anAssistant(stack), await anAssistant(stack)];
  const { endpointId } = await anEndpoint(assistantId, [KIND]);
  const { mongo } = stack.service;
  const later = new Date(Date.now() + 3_600_000);
  const conversationId = randomUUID();
  const got = { assistantId, conversationId, endpointId, event: 'message.received', outcome: 'delivered' };
  await mongo
    .collection<{ _id: string }>('deliveries')
    .insertOne({ _id: `${randomUUID()}:${endpointId}`, ...got, eventId: randomUUID(), expiresAt: later } as never);
  const tombstones = mongo.collection<{ _id: string; announceAt?: Date }>('tombstones');
  const due = { announceAt: new Date(0), purgeAt: later, purgesLeft: 1 };
  const inserted = Date.now();
  const broken = { _id: conversationId, assistantId, eventId: randomUUID(), erasedAt: 'no date', ...due };
  const sound = { _id: randomUUID(), assistantId: other.assistantId, eventId: randomUUID(), erasedAt: later, ...due };
  await tombstones.insertMany([broken, sound] as never);

  await eventually(async () => expect(await tombstones.findOne({ _id: sound._id })).not.toHaveProperty('announceAt'));
  const triedAgainAt = await eventually(async () => {
    const { announceAt } = (await tombstones.findOne({ _id: conversationId })) ?? {};
    expect(announceAt).not.toEqual(due.announceAt);
    return announceAt?.getTime();
  });
  expect(triedAgainAt).toBeGreaterThan(inserted + 20_000);
  await tombstones.deleteOne({ _id: conversationId });
});

test('texts that an erasure has not removed yet are not sent, by a recovery or by a person', async () => {
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  const refusing = await anEndpoint(assistantId, ['message.received'], { respond: () => ({ status: 500 }) });
  const { conversationId } = (await assistant.chat(aTurn({ message: 'private' }))).body;
  const [delivery] = await endedOf(conversationId, 1);
  const owner = await anOperator(stack);
  const told = randomUUID();
  const body = JSON.stringify({ event: KIND, event_id: told, payload: { conversation_id: conversationId } });
  const missed = { ...delivery, _id: `${told}:${refusing.endpointId}`, eventId: told, event: KIND, sequence: 2, body };
  await stack.service.mongo.collection<typeof missed>('deliveries').insertOne(missed);
  // A process that is killed after it has deleted the document leaves the texts until the purge a minute later.
  await stack.service.mongo.collection('conversations').deleteOne({ conversationId });
  const from = new Date(Date.now() - 60_000).toISOString();

  const recovered = await owner.post<{ recovery: { recoveryId: string } }>(
    `/endpoints/${refusing.endpointId}/recoveries`,
    { from, outcomes: ['rejected'] },
  );
  const { recoveryId } = recovered.body.recovery;
  await eventually(async () => {
    const { body } = await owner.get<{ state: string }>(`/recoveries/${recoveryId}`);
    expect(body.state).toBe('done');
  });
  // It tells of the erasure all the same.
  await refusing.receiver.waitFor((received) => received.length >= 2);
  const { deliveries, deliveryQueue } = stack.service;
  const original = await deliveries.getDelivery(String(delivery?._id));
  const plan = await deliveries.planResend(original);
  const resent = await deliveries.queueResend({ original, plan, number: plan.number, url: refusing.receiver.url });
  deliveryQueue.wakeDelivery(resent);
  await eventually(async () =>
    expect(await deliveries.getDelivery(resent)).toMatchObject({ outcome: 'not_sent', errorKind: 'erased' }),
  );

  expect(refusing.seen().map(({ event }) => event)).toEqual(['message.received', KIND]);
});
