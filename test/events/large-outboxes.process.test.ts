import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { OUTBOX_INDEXES } from '../../src/conversations/conversation.ts';
import { openService } from '../../src/service.ts';
import { createDeliverySweeps } from '../../src/events/sweep.ts';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { anAssistant, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { watchLoop } from '../support/loop.ts';
import { eventually } from '../support/eventually.ts';
import { atPace } from '../support/pace.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { startRealProcess } from '../kit/processes.ts';
import { memoryMbOf } from '../kit/services.ts';
import { createFeed } from '../kit/feed.ts';
import type { Command } from '../kit/relay.ts';
import { contentOf, openReceiver, type Receiver } from '../kit/receiver.ts';
import { longTest, sized } from '../support/size.ts';
import { openRelayed } from '../support/relayed.ts';
import { useStack } from '../support/stack.ts';

// The reply worker's own sweeps would compete with the ones that are measured.
const stack = useStack({ deliveryWorkers: 0, replyWorkers: 1 });
const CONVERSATIONS = sized({ everyday: 20, long: 300 });
/** More than a list of deliveries reads for a page, with all endpoints and conversations. */
const EVENTS = sized({ everyday: 60, long: 500 });
const ENDPOINTS = 10;
/** Every day, other files use the machine too, so only a hold that is much too long counts. */
const heldFor = (ms: number): number => atPace(sized({ everyday: 10 * ms, long: ms }));
const endpointIds: string[] = [];
let assistant: TestAssistant;
let hanging: Receiver;

type Waiting = { conversations: number; events: number; endpoints: string[] };

/** Stores conversations with events that wait for all of these endpoints. */
const storeOutboxes = async (assistantId: string, { conversations, events, endpoints }: Waiting): Promise<void> => {
  const { mongo } = stack.service;
  const conversation = await mongo.collection('conversations').findOne({ assistantId });
  const at = new Date(Date.now() - 60_000);
  const payload = { content: 'x'.repeat(500) };
  const event = () => ({ eventId: randomUUID(), event: 'message.received', timestamp: 1, at, payload, endpoints });
  for (let nth = 0; nth < conversations; nth += 50) {
    const some = Array.from({ length: Math.min(50, conversations - nth) }, () => ({
      ...conversation,
      _id: randomUUID().replaceAll('-', ''),
      conversationId: randomUUID(),
      outbox: Array.from({ length: events }, event),
    }));
    await mongo.collection('conversations').insertMany(some as never);
  }
};

/** Adds an endpoint that stays paused. It wants the events of any time. */
const addPaused = async (assistantId: string): Promise<string> => {
  const { endpoints, mongo } = stack.service;
  const { endpointId } = (await endpoints.addEndpoint(assistantId, { url: hanging.url })).endpoint;
  await endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
  await mongo.collection('endpoints').updateOne({ _id: endpointId as never }, { $set: { enabledSince: new Date(0) } });
  return endpointId;
};

/** Events that wait for the endpoints of an assistant. Their receivers do not answer. */
const fillOutboxes = async (): Promise<void> => {
  const { mongo } = stack.service;
  const { assistantId } = assistant;
  await assistant.chat(aTurn());
  for (let nth = 0; nth < ENDPOINTS; nth += 1)
    endpointIds.push(
      (await stack.service.endpoints.addEndpoint(assistantId, { url: hanging.url })).endpoint.endpointId,
    );
  const pause = { reason: 'retry_after', until: new Date(Date.now() + 3_600_000) };
  await mongo.collection('endpoints').updateMany({ assistantId }, { $set: { pause, enabledSince: new Date(0) } });
  await storeOutboxes(assistantId, { conversations: CONVERSATIONS, events: EVENTS, endpoints: endpointIds });
};

beforeAll(async () => {
  hanging = await openReceiver({ respond: () => new Promise(() => undefined) });
  assistant = await anAssistant(stack, { knowledge: [] });
  await fillOutboxes();
});

afterAll(() => hanging.close());

test('a sweep reads the first event of each endpoint, and not the others', async () => {
  const { outbox } = stack.service.conversations;
  const stop = watchLoop();

  const { outboxes: found } = await outbox.findStale({ olderThanMs: 1_000, exclude: [], limit: 5_000 });

  const { ms, name } = stop();
  expect(ms, name).toBeLessThan(heldFor(60));
  expect(found).toHaveLength(CONVERSATIONS);
  expect(found.every(({ outbox: events }) => events?.length === 1)).toBe(true);
  expect(found[0]?.outbox?.[0]?.endpoints).toEqual(endpointIds);
});

test('streams that are woken together get their outboxes a few at a time', async () => {
  const rows = await stack.service.mongo
    .collection('conversations')
    .find({ 'outbox.0': { $exists: true } })
    .toArray();
  const { outbox } = stack.service.conversations;

  const statements = await profileStatements(stack, () => Promise.all(rows.map(({ _id }) => outbox.read(String(_id)))));

  const wholes = statements.filter(({ command }) => (command['projection'] as { outbox?: unknown })?.outbox === 1);
  expect(wholes.reduce((sum, { nreturned = 0 }) => sum + nreturned, 0)).toBe(CONVERSATIONS);
  expect(Math.max(...wholes.map(({ nreturned = 0 }) => nreturned))).toBeLessThanOrEqual(8);
});

test('a list of deliveries reads a bounded part of the events that wait', async () => {
  const { assistantId } = assistant;
  const made = { name: 'a program', scope: 'read' as const, assistantIds: [assistantId], createdBy: null };
  const { secret: bearer } = await stack.service.tokens.createToken(made);
  const stop = watchLoop();

  const { status, body } = await request<{ deliveries: object[]; nextCursor: string | null; moreWaiting: boolean }>(
    `${stack.url}/operator/v1/assistants/${assistantId}/deliveries`,
    { bearer },
  );

  const { ms, name } = stop();
  expect(ms, name).toBeLessThan(heldFor(100));
  expect([status, body.deliveries.length, typeof body.nextCursor, body.moreWaiting]).toEqual([200, 50, 'string', true]);
});

test('an event that names its message is composed without the messages beside it', async () => {
  const { mongo, conversations } = stack.service;
  const { assistantId, chat } = await anAssistant(stack, { knowledge: [] });
  const long = 'a long message '.repeat(500);
  const session_id = randomUUID();
  const sayNext = () => chat(aTurn({ session_id, message: `${randomUUID()} ${long}` }));
  const findPage = async () => {
    const conversation = await mongo.collection('conversations').findOne({ assistantId });
    return mongo.collection('messages').findOne({ conversationId: conversation?.conversationId as string });
  };
  while (!(await findPage())) await sayNext();
  const found = await conversations.findTurn(String((await findPage())?.entries[0].messages[0].turnId), assistantId);
  if (found?.state !== 'finished') throw new Error('a stored turn is finished');

  const statements = await profileStatements(stack, async () => {
    const turn = await conversations.history.findFinishedTurn(found.conversation, found.turn.turnId);
    const message = await conversations.history.findMessage(found.conversation, turn ?? found.turn);
    expect(message?.content).toContain(long.trim());
  });

  const read = statements.filter((one) => collectionIn(one) === 'messages');
  expect(read).toHaveLength(2);
  expect(read.reduce((sum, { responseLength = 0 }) => sum + responseLength, 0)).toBeLessThan(2 * long.length);
});

test('an endpoint that is resumed again and again wakes its streams seldom', async () => {
  const [endpointId = ''] = endpointIds;
  const statements = await profileStatements(stack, async () => {
    for (let nth = 0; nth < 20; nth += 1) await stack.service.endpoints.resumeEndpoint(endpointId);
  });
  await stack.service.endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });

  const looked = statements.filter(({ command }) => JSON.stringify(command).includes(`"$in":["${endpointId}"]`));
  expect(looked.length).toBeGreaterThan(0);
  expect(looked.length).toBeLessThan(5);
});

test('an endpoint that is resumed has its conversations fetched a few at a time', async () => {
  const { mongo, tokens } = stack.service;
  const { assistantId, chat } = await anAssistant(stack, { knowledge: [] });
  await chat(aTurn());
  const endpointId = await addPaused(assistantId);
  await storeOutboxes(assistantId, { conversations: 60, events: 1, endpoints: [endpointId] });
  const made = { name: 'a program', scope: 'manage' as const, assistantIds: null, createdBy: null };
  const { secret: bearer } = await tokens.createToken(made);

  const statements = await profileStatements(stack, async () => {
    const path = `/operator/v1/endpoints/${endpointId}/resume`;
    expect((await request(`${stack.url}${path}`, { method: 'POST', bearer })).status).toBe(200);
  });
  await mongo.collection('conversations').deleteMany({ assistantId });

  const looked = statements.filter(({ command, originatingCommand }) =>
    JSON.stringify([command, originatingCommand]).includes(`"$in":["${endpointId}"]`),
  );
  expect(looked.length).toBeGreaterThan(0);
  expect(Math.max(...looked.map(({ docsExamined = 0 }) => docsExamined))).toBeLessThanOrEqual(10);
  expect(looked[0]?.command).toHaveProperty('maxTimeMS');
});

test('when endpoints of many assistants are resumed together, few look for streams, and the others are answered', async () => {
  const endpointIds = await Promise.all(
    Array.from({ length: 5 }, async () => addPaused((await anAssistant(stack, { knowledge: [] })).assistantId)),
  );
  const { promise: held, resolve: release } = Promise.withResolvers<void>();
  const { promise: answeredMost, resolve: onAnsweredMost } = Promise.withResolvers<number>();
  let [looks, answered] = [0, 0];
  const holds = ({ name, collection }: Command): Promise<void> | null => {
    if (name !== 'find' || collection !== 'conversations') return null;
    looks += 1;
    return held;
  };
  const { endpoints } = await openService({ ...(await openRelayed(stack, { holds })), redisRole: 'api' });

  const resumed = endpointIds.map(async (endpointId) => {
    await endpoints.resumeEndpoint(endpointId);
    answered += 1;
    if (answered === 3) onAnsweredMost(looks);
  });
  const looksMeanwhile = await answeredMost;
  release();
  await Promise.all(resumed);

  expect(looksMeanwhile).toBeLessThanOrEqual(2);
});

test('the events that wait for a paused endpoint are not read to send new ones to others', async () => {
  const waiting = await anAssistant(stack, { knowledge: [] });
  const [one, other] = [await openReceiver(), await openReceiver()];
  const worker = await stack.startDeliveryWorker();
  onTestFinished(async () => {
    await Promise.all([worker.close(), one.close(), other.close()]);
  });
  await waiting.chat(aTurn());
  const { endpoints, mongo } = stack.service;
  const add = async (url: string) => (await endpoints.addEndpoint(waiting.assistantId, { url })).endpoint.endpointId;
  const paused = await addPaused(waiting.assistantId);
  await storeOutboxes(waiting.assistantId, { conversations: 5, events: EVENTS, endpoints: [paused] });
  const keys = (await mongo.collection('conversations').find({ 'outbox.endpoints': paused }).toArray()).map(({ _id }) =>
    String(_id),
  );
  await Promise.all([add(one.url), add(other.url)]);
  const feed = createFeed(stack.service);
  const ROUNDS = 4;

  const statements = await profileStatements(stack, async () => {
    for (let round = 1; round <= ROUNDS; round += 1)
      for (const key of keys) await feed.say(waiting.assistantId, key, [`${key} ${round}`]);
    for (const { waitFor } of [one, other]) await waitFor((all) => all.length === ROUNDS * keys.length);
  });

  const wholes = statements.filter(({ command }) => (command['projection'] as { outbox?: unknown })?.outbox === 1);
  expect(wholes.filter(({ command }) => keys.some((key) => JSON.stringify(command).includes(key)))).toEqual([]);
  for (const key of keys) {
    const said = one.received.map(contentOf).filter((text) => String(text).startsWith(key));
    expect(said).toEqual(Array.from({ length: ROUNDS }, (_, nth) => `${key} ${nth + 1}`));
  }
});

test('endpoints that get an event together leave its entry together', async () => {
  const { outbox } = stack.service.conversations;
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const ids = ['one', 'two', 'three', 'four'];
  const [key = ''] = await createFeed(stack.service).openConversations(assistantId, 1);
  const event = { event: 'message.received', timestamp: 1, at: new Date(), payload: { content: '' }, endpoints: ids };
  const events = ['first', 'second'].map((eventId) => ({ ...event, eventId }));
  const rows = stack.service.mongo.collection<{ _id: string }>('conversations');
  await rows.updateOne({ _id: key }, { $set: { outbox: events } });
  const read = (await outbox.read(key))!;
  const pull = (endpointId: string) => outbox.pullEnded(read, endpointId, read.outbox!.slice(0, 1));

  const statements = await profileStatements(stack, () => Promise.all(['one', 'two', 'three'].map(pull)));
  const entries = (await outbox.read(key))?.outbox?.map(({ eventId, endpoints }) => [eventId, endpoints]);
  const rest = await pull('four');

  expect(entries).toEqual([
    ['first', ['four']],
    ['second', ids],
  ]);
  expect(rest?.outbox?.map(({ eventId }) => eventId)).toEqual(['second']);
  expect((await outbox.read(key))?.outbox).toHaveLength(1);
  const updates = statements.filter((one) => one.op === 'update' && collectionIn(one) === 'conversations');
  expect(updates).toHaveLength(2);
});

test('a sweep looks at a few outboxes with too many events, and the next ones at others', async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const { mongo } = stack.service;
  const endpointId = await addPaused(assistantId);
  await createFeed(stack.service).openConversations(assistantId, 1);
  for (let nth = 0; nth < 3; nth += 1)
    await storeOutboxes(assistantId, { conversations: 15, events: 501, endpoints: [endpointId] });
  const sweeps = createDeliverySweeps({ ...stack.service, eventMaxAgeMs: 600_000, timing: TIMING });
  const countEnds = () => mongo.collection('deliveries').countDocuments({ endpointId, errorKind: 'backlog' });

  const statements = await profileStatements(stack, async () => {
    for (let sweep = 0; sweep < 3; sweep += 1) await sweeps.streams();
  });

  const looked = statements.filter(({ command }) => command['hint'] === OUTBOX_INDEXES.full);
  expect(looked.length).toBeGreaterThanOrEqual(3);
  expect(Math.max(...looked.map(({ docsExamined = 0 }) => docsExamined))).toBe(20);
  await eventually(async () => {
    await sweeps.streams(); // for those that one had no time for
    expect(await countEnds()).toBe(45);
  });
});

test('an event does not wait until all conversations of another assistant that were woken are read', async () => {
  const [busy, neighbour] = [await anAssistant(stack, { knowledge: [] }), await anAssistant(stack, { knowledge: [] })];
  const good = await openReceiver();
  const worker = await stack.startDeliveryWorker();
  onTestFinished(async () => {
    await Promise.all([worker.close(), good.close()]);
  });
  const { endpoints, mongo, deliveryQueue } = stack.service;
  const feed = createFeed(stack.service);
  const endpointId = await addPaused(busy.assistantId);
  await feed.openConversations(busy.assistantId, 1);
  const WOKEN = 1_000;
  await storeOutboxes(busy.assistantId, { conversations: WOKEN, events: 21, endpoints: [endpointId] });
  const rows = await mongo.collection('conversations').find({ 'outbox.endpoints': endpointId }).toArray();
  await endpoints.addEndpoint(neighbour.assistantId, { url: good.url });
  const [key = ''] = await feed.openConversations(neighbour.assistantId, 1);

  const statements = await profileStatements(stack, async () => {
    for (const { _id } of rows) deliveryQueue.wake({ _id: String(_id), assistantId: busy.assistantId });
    await feed.say(neighbour.assistantId, key, ['hello']);
    await good.waitFor((all) => all.length === 1);
  });

  const read = statements.filter(({ command }) => 'isWhole' in ((command['projection'] as object) ?? {}));
  const count = read.reduce((sum, { nreturned = 0 }) => sum + nreturned, 0);
  expect(count).toBeGreaterThan(0);
  expect(count).toBeLessThan(WOKEN / 2);

  await worker.close(); // it sweeps too
  const exclude = [randomUUID()]; // tells its statements from others of the process
  const sweep = { olderThanMs: 0, exclude, limit: 5_000 };
  const all = await profileStatements(stack, () => stack.service.conversations.outbox.findStale(sweep));
  const swept = all.filter((statement) => JSON.stringify(statement).includes(String(exclude)));
  // One statement that reads thousands of large documents is cut off as silent, and repeated by the next sweep.
  expect(swept.length).toBeGreaterThan(2);
  expect(Math.max(...swept.map(({ nreturned = 0 }) => nreturned))).toBeLessThanOrEqual(50);
});

test('a paused endpoint that is resumed gets what has waited, also beside another one that stays paused', async () => {
  const assistantOf = await anAssistant(stack, { knowledge: [] });
  const [one, other] = [await openReceiver(), await openReceiver()];
  const worker = await stack.startDeliveryWorker();
  onTestFinished(async () => {
    await Promise.all([worker.close(), one.close(), other.close()]);
  });
  const { endpoints } = stack.service;
  const { assistantId } = assistantOf;
  const [first, second] = await Promise.all(
    [one, other].map(async ({ url }) => (await endpoints.addEndpoint(assistantId, { url })).endpoint.endpointId),
  );
  for (const id of [first, second]) await endpoints.pauseEndpoint(id ?? '', { reason: 'gone', until: null });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  for (const text of ['1', '2', '3']) await feed.say(assistantId, key, [text]);

  await endpoints.resumeEndpoint(first ?? '');
  await one.waitFor((all) => all.length === 3);
  await feed.say(assistantId, key, ['4']);
  await one.waitFor((all) => all.length === 4);

  expect(one.received.map(contentOf)).toEqual(['1', '2', '3', '4']);
  expect(other.received).toEqual([]);
});

longTest('many events of a disabled endpoint end beside the events of others', async () => {
  const worker = await startRealProcess('delivery', stack.env);
  onTestFinished(() => worker.kill());
  const good = await openReceiver();
  onTestFinished(() => good.close());
  const [busy, neighbour] = [await anAssistant(stack), await anAssistant(stack)];
  await busy.chat(aTurn());
  const { endpoints, mongo } = stack.service;
  const endpointId = await addPaused(busy.assistantId);
  const waiting = { conversations: 100, events: 300 };
  await storeOutboxes(busy.assistantId, { ...waiting, endpoints: [endpointId] });
  await endpoints.addEndpoint(neighbour.assistantId, { url: good.url });
  const countEnded = () => mongo.collection('deliveries').countDocuments({ endpointId });

  await endpoints.setEnabled(endpointId, false);
  await eventually(async () => expect(await countEnded()).toBeGreaterThan(0));
  await neighbour.chat(aTurn());
  await good.waitFor((all) => all.length >= 2);

  expect(await countEnded()).toBeLessThan((waiting.conversations * waiting.events) / 2);
});

longTest('streams that wait for hanging receivers do not keep their events in memory', async () => {
  await stack.service.mongo.collection('endpoints').updateMany({}, { $set: { pause: null } });
  const worker = await startRealProcess('delivery', stack.env);
  onTestFinished(() => worker.kill());
  await hanging.waitFor((received) => received.length >= 100);
  const before = hanging.received.length;
  // All streams are woken, and those without a slot wait.
  for (const { _id: key } of await stack.service.mongo
    .collection('conversations')
    .find({}, { projection: { _id: 1 } })
    .toArray())
    stack.service.deliveryQueue.wake({ _id: String(key), assistantId: assistant.assistantId });
  await hanging.waitFor((received) => received.length >= before + 10);

  const peak = memoryMbOf(worker.pid, 'VmHWM');
  expect(peak).toBeLessThan(700);
});
