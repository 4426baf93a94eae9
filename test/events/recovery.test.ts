import { mongo } from 'mongoose';
import { expect, test } from 'vitest';
import { freePort } from '../../scripts/services.ts';
import { eventOperations } from '../../src/events/http/events.ts';
import { MISSED } from '../../src/events/delivery.ts';
import { recoveryOperations } from '../../src/events/http/endpoints.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver, type Receiver, type ReceiverOptions } from '../kit/receiver.ts';
import { profileStatements } from '../support/profile.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 2,
  timing: { endWrittenWithinMs: 1_000, sweepEveryMs: 250 },
});
const owner = useOpened(() => anOperator(stack));

type Recovery = AnswerOf<typeof recoveryOperations.read>;
type Started = AnswerOf<typeof recoveryOperations.start>;

/** An assistant whose receiver is down: nobody listens at its port until `open`. */
const aSilentEndpoint = async (conversations = 1) => {
  const assistant = await anAssistant(stack);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/hook`;
  const { endpointId } = (await stack.service.endpoints.addEndpoint(assistant.assistantId, { url })).endpoint;
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistant.assistantId, conversations);
  const from = new Date(Date.now() - 60_000).toISOString();
  const listOf = (filter = {}) =>
    stack.service.deliveries.listRecords({ assistantId: assistant.assistantId, limit: 200, ...filter });
  return {
    ...assistant,
    endpointId,
    keys,
    from,
    say: (key: string, ...texts: string[]) => feed.say(assistant.assistantId, key, texts),
    ended: (count: number) =>
      eventually(async () => {
        const { deliveries } = await listOf();
        expect(deliveries.filter(({ endedAt }) => endedAt !== null)).toHaveLength(count);
        return deliveries;
      }),
    open: async (options: ReceiverOptions = {}) => {
      const receiver = await openReceiver({ ...options, port });
      return receiver;
    },
    start: (body: object = {}) => owner.post<Started>(`/endpoints/${endpointId}/recoveries`, { from, ...body }),
    change: (recoveryId: string | undefined, to: string) => owner.post<Recovery>(`/recoveries/${recoveryId}/${to}`),
    done: (recoveryId: string | undefined) =>
      eventually(async () => {
        const { body } = await owner.get<Recovery>(`/recoveries/${recoveryId}`);
        expect(body.state).toBe('done');
        return body;
      }),
  };
};

const seenBy = ({ received }: Receiver) =>
  received.map(({ json, headers }) => ({
    text: (json as { payload: { content: string } }).payload.content,
    id: String(headers['x-factory-event-id']),
    sequence: Number(headers['x-factory-sequence']),
    redelivery: headers['x-factory-redelivery'] === 'true',
  }));

test('a recovery does not read the failures of a conversation that it does not want', async () => {
  const { assistantId, keys, say, ended, start, endpointId } = await aSilentEndpoint();
  const [one = ''] = keys;
  await say(one, 'a', 'b');
  const [missed] = await ended(2);
  const deliveries = stack.service.mongo.collection<{ _id: string; sequence: number; endedOn: mongo.Timestamp }>(
    'deliveries',
  );
  const { _id: _own, ...record } = (await deliveries.findOne({ _id: missed!._id }))!;
  const endedOn = new mongo.Timestamp({ t: Math.floor(Date.now() / 1000) - 86_400, i: 1 });
  const older = Array.from({ length: 500 }, (_, nth) => ({
    ...record,
    _id: `${assistantId}:${nth}`,
    sequence: 0,
    endedOn,
  }));
  await deliveries.insertMany(older);
  await stack.service.endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
  const { recovery } = (await start()).body;

  const statements = await profileStatements(stack, () =>
    stack.service.recoveries.nextMissed(recovery?.recoveryId ?? '', missed!.conversationId ?? ''),
  );

  const reads = statements.filter(({ command }) => command['hint'] === MISSED);
  expect(reads.length).toBeGreaterThan(0);
  expect(Math.max(...reads.map(({ docsExamined = 0 }) => docsExamined))).toBeLessThanOrEqual(2);
});

// Each waits until the range of its recovery is over, so they wait together.
test.concurrent('a recovery sends what an endpoint missed again, in order, before newer events, and only once', async () => {
  const { keys, say, ended, open, start, done, endpointId } = await aSilentEndpoint(2);
  const [one = '', other = ''] = keys;
  // Five failed connections in a row open the breaker, which is not the subject.
  const first = await say(one, 'a', 'b');
  await say(other, 'x', 'y');
  const missed = await ended(4);

  const dry = await start({ dryRun: true });
  const receiver = await open();
  const started = await start();
  await say(one, 'c');
  const recovery = await done(started.body.recovery?.recoveryId);
  await receiver.waitFor((received) => received.length >= 5);

  const [oldest] = missed.map(({ happenedAt }) => happenedAt.toISOString()).toSorted();
  const byOutcome = { not_sent: 4, rejected: 0, unknown: 0 };
  expect(dry.body).toEqual({ events: 4, conversations: 2, oldest, byOutcome, recovery: null });
  expect(started.body).toMatchObject({
    events: 4,
    conversations: 2,
    recovery: { state: 'running', outcomes: ['not_sent'] },
  });
  expect(recovery).toMatchObject({
    events: 4,
    sent: { delivered: 4, not_sent: 0 },
    endedAt: expect.any(String) as string,
  });
  const seen = seenBy(receiver);
  expect(seen.filter(({ text }) => 'abc'.includes(text))).toMatchObject([
    { text: 'a', sequence: 1, redelivery: true, id: first[0]?.eventId },
    { text: 'b', sequence: 2, redelivery: true, id: first[1]?.eventId },
    { text: 'c', sequence: 3, redelivery: false },
  ]);
  expect(seen.filter(({ text }) => 'xy'.includes(text)).map(({ sequence }) => sequence)).toEqual([1, 2]);

  const again = await start();
  await done(again.body.recovery?.recoveryId);
  const { body: listed } = await owner.get<{ recoveries: Recovery[] }>(`/endpoints/${endpointId}/recoveries`);

  expect(again.body).toMatchObject({ events: 0, conversations: 0, oldest: null });
  expect(listed.recoveries.map(({ events, state }) => [events, state])).toEqual([
    [0, 'done'],
    [4, 'done'],
  ]);
  expect(receiver.received).toHaveLength(5);
});

test.concurrent('a recovery is paused, resumed and cancelled, and an endpoint has one that is not over', async () => {
  const { keys, say, ended, open, start, change, endpointId, done } = await aSilentEndpoint(1);
  const [key = ''] = keys;
  await say(key, 'a', 'b', 'c');
  await ended(3);
  const hold = Promise.withResolvers<void>();
  const receiver = await open({ respond: async (_, nth) => (nth === 1 ? hold.promise.then(() => ({})) : {}) });
  const { body } = await start();
  const id = body.recovery?.recoveryId;
  await receiver.waitFor((received) => received.length >= 1);

  const second = await start();
  const paused = await change(id, 'pause');
  hold.resolve();
  await eventually(async () => expect((await stack.service.recoveries.read(id ?? '')).sent).toEqual({ delivered: 1 }));
  await say(key, 'd');
  await receiver.waitFor((received) => received.length >= 2);
  await stack.service.endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
  const resumed = await change(id, 'resume');
  const wrong = await change(id, 'resume');
  await stack.service.endpoints.resumeEndpoint(endpointId);
  const ends = await done(id);
  const over = await change(id, 'cancel');

  expect([second.status, paused.status, resumed.status, wrong.status, over.status]).toEqual([422, 200, 200, 200, 422]);
  expect([paused.body.state, resumed.body.state]).toEqual(['paused', 'running']);
  // While it is paused, newer events go on.
  expect(seenBy(receiver).map(({ text }) => text)).toEqual(['a', 'd', 'b', 'c']);
  expect(ends.sent).toMatchObject({ delivered: 3 });
});

test.concurrent('only chosen outcomes are sent again, and an event that may have arrived by a redelivery is not', async () => {
  const { assistantId, keys, say, open, start, done, ended } = await aSilentEndpoint(1);
  const { deliveries, deliveryQueue } = stack.service;
  const [key = ''] = keys;
  const receiver = await open({
    respond: ({ json }, nth) => ({ status: nth <= 2 ? 500 : 200, body: JSON.stringify(json) }),
  });
  const [a, b] = await say(key, 'a', 'b');
  await say(key, 'c');
  const rows = await ended(3);
  const rejected = rows.find(({ eventId }) => eventId === a?.eventId);
  const original = await deliveries.getDelivery(rejected?._id ?? '');
  const plan = await deliveries.planResend(original);
  deliveryQueue.wakeDelivery(await deliveries.queueResend({ original, plan, number: plan.number, url: original.url }));
  await receiver.waitFor((received) => received.length >= 4);

  const none = await start();
  await done(none.body.recovery?.recoveryId);
  const chosen = await start({ outcomes: ['not_sent', 'rejected', 'unknown'] });
  const { sent } = await done(chosen.body.recovery?.recoveryId);

  expect(none.body.events).toBe(0);
  expect(chosen.body.byOutcome).toEqual({ not_sent: 0, rejected: 2, unknown: 0 });
  expect(sent).toMatchObject({ delivered: 1 });
  expect(seenBy(receiver).slice(4)).toMatchObject([{ id: b?.eventId, sequence: 2, redelivery: true }]);
  expect((await deliveries.listRecords({ assistantId, limit: 200 })).deliveries).toHaveLength(5);
});

test.concurrent('one that did not get through is sent by a later recovery; an erased or test event never is', async () => {
  const { assistantId, keys, say, ended, open, start, done, call } = await aSilentEndpoint(2);
  const [key = '', erased = ''] = keys;
  const { deliveries, deliveryQueue, conversations, endpoints } = stack.service;
  await say(key, 'a');
  await say(erased, 'private');
  const [endpoint] = await endpoints.listEndpoints(assistantId);
  if (endpoint) deliveryQueue.wakeDelivery(await deliveries.queueTest(endpoint));
  await ended(3);
  const { conversationId = '' } = (await conversations.outbox.read(erased)) ?? {};
  await call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });

  const inVain = await start();
  const first = await done(inVain.body.recovery?.recoveryId);
  const receiver = await open();
  const later = await start();
  const second = await done(later.body.recovery?.recoveryId);

  expect(inVain.body).toMatchObject({ events: 1, conversations: 1 });
  expect(first.sent).toMatchObject({ not_sent: 1, delivered: 0 });
  expect(second.sent).toMatchObject({ delivered: 1 });
  expect(seenBy(receiver)).toMatchObject([{ text: 'a', sequence: 1, redelivery: true }]);
});

/** Waits until workers have driven this recovery, and have left it again because something must wait. */
const lookedAtTwice = async (recoveryId: string): Promise<void> => {
  for (let nth = 0; nth < 2; nth += 1) {
    const dueAt = async () => (await stack.service.recoveries.find(recoveryId))?.due?.getTime() ?? 0;
    const before = await dueAt();
    await eventually(async () => expect(await dueAt()).toBeGreaterThan(before));
  }
};

/** Makes the claim of a redelivery so old that a sweep ends it. */
const loseClaim = async ({ eventId }: { eventId: string }): Promise<void> => {
  const claimedAt = new mongo.Timestamp({ t: Math.floor(Date.now() / 1000) - 60, i: 1 });
  const { matchedCount } = await stack.service.mongo
    .collection('deliveries')
    .updateOne({ eventId, outcome: 'sending' }, [{ $set: { claimedAt } }]);
  expect(matchedCount).toBe(1);
};

test.concurrent('what stopped after the claim of a recovered event is unknown, and never sent twice', async () => {
  const { keys, say, ended, open, start, done } = await aSilentEndpoint(1);
  const { deliveries, endpoints } = stack.service;
  const [key = ''] = keys;
  await say(key, 'a', 'b');
  const rows = await ended(2);
  const receiver = await open();
  const a = rows.find(({ sequence }) => sequence === 1);
  const original = await deliveries.getDelivery(a?._id ?? '');
  const first = await start({ dryRun: true });
  // Nobody sends before the claim.
  await endpoints.pauseEndpoint(original.endpointId, { reason: 'gone', until: null });
  // As a worker leaves it that is killed between the claim and its outcome, before it has noted anything.
  const range = { assistantId: original.assistantId, endpointId: original.endpointId, outcomes: ['not_sent' as const] };
  const started = await stack.service.recoveries.start(
    { ...range, from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 1_000) },
    'a test',
  );
  const { eventId, endpointId, assistantId, conversationId, event, url, body, sequence, happenedAt } = original;
  const claim = {
    eventId,
    endpointId,
    assistantId,
    conversationId,
    event,
    url,
    sequence: sequence ?? null,
    happenedAt,
  };
  const claimed = await deliveries.claim({ ...claim, body: body ?? '' }, { resend: 1, recoveryId: started._id });
  await endpoints.resumeEndpoint(endpointId);
  await lookedAtTwice(started._id);
  const beforeItsEnd = seenBy(receiver);
  await loseClaim(original);
  const recovery = await done(started._id);

  expect([first.body.events, claimed.won, beforeItsEnd]).toEqual([2, true, []]);
  expect(seenBy(receiver).map(({ text }) => text)).toEqual(['b']);
  expect(recovery.sent).toMatchObject({ unknown: 1, delivered: 1 });
});

test.concurrent('the list of ended events skips nothing while deliveries go on, and says what became of each', async () => {
  const { assistantId, keys, say, ended, open, endpointId, call, callOperation } = await aSilentEndpoint(3);
  const other = await anAssistant(stack);
  for (const key of keys) await say(key, 'a');
  await ended(3);
  await open();

  const found = new Map<string, AnswerOf<typeof eventOperations.list>['events'][number]>();
  let cursor: string | null = null;
  const page = async (limit: number, query = '') => {
    const from = cursor === null ? '' : `&after=${cursor}`;
    const { status, body } = await callOperation(eventOperations.list, { query: `?limit=${limit}${from}${query}` });
    expect(status).toBe(200);
    for (const one of body.events) {
      expect(found.has(one.deliveryId)).toBe(false);
      found.set(one.deliveryId, one);
    }
    ({ cursor } = body);
    return body;
  };
  for (let nth = 0; nth < 30; nth += 1) {
    await say(keys[nth % 3] ?? '', `text ${nth}`);
    await page(7);
  }
  const all = await eventually(async () => {
    const { deliveries } = await stack.service.deliveries.listRecords({ assistantId, limit: 200 });
    for (const key of keys) expect((await stack.service.conversations.outbox.read(key))?.outbox).toEqual([]);
    expect(deliveries).toHaveLength(33);
    return deliveries;
  });
  await eventually(async () => {
    await page(7);
    expect(found.size).toBe(all.length);
  });
  const last = await page(7);

  expect(last).toMatchObject({ events: [], hasMore: false, cursor });
  expect([...found.keys()].toSorted()).toEqual(all.map(({ _id }) => _id).toSorted());
  const [first] = found.values();
  expect(first).toMatchObject({
    endpointId,
    sequence: 1,
    outcome: 'not_sent',
    errorKind: 'connect',
    redelivery: false,
    envelope: { event: 'message.received', payload: { content: 'a' } },
  });
  for (const key of keys) {
    const { conversationId } = (await stack.service.conversations.outbox.read(key)) ?? { conversationId: '' };
    const own = [...found.values()].filter(
      (one) => one.conversationId === conversationId && one.endpointId === endpointId,
    );
    expect(own.map(({ sequence }) => sequence)).toEqual(own.map((_, nth) => nth + 1));
  }
  const only = await call<AnswerOf<typeof eventOperations.list>>(
    `/api/v1/events?endpoint=${endpointId}&outcome=unknown`,
  );
  const theirs = await other.callOperation(eventOperations.list, { query: `?endpoint=${endpointId}` });
  const wrong = await call(`/api/v1/events?after=nonsense`);
  expect([only.body.events, theirs.body.events, wrong.status]).toEqual([[], [], 422]);
  // A cursor is only a position: that of another assistant, or one that nobody was given, shows nothing else.
  const forge = (position: unknown) => Buffer.from(JSON.stringify(position)).toString('base64url');
  const after = async (position: string, by = callOperation) => {
    const { status, body } = await by(eventOperations.list, { query: `?limit=1&after=${position}` });
    return status === 200 ? body.events.map(({ deliveryId }) => deliveryId) : status;
  };
  const oldest = (await call<AnswerOf<typeof eventOperations.list>>('/api/v1/events?limit=1')).body;
  expect(await after(String(oldest.cursor), other.callOperation)).toEqual([]);
  expect(await after(forge([1, 1, 'x']))).toEqual(oldest.events.map(({ deliveryId }) => deliveryId));
  expect(await after(forge([0xffffffff, 0xffffffff, 'x']))).toEqual([]);
  for (const position of [[-1, 0, 'x'], [2 ** 32, 0, 'x'], [1, 1, { $gt: '' }], [1, 1], { $gt: 1 }, null])
    expect(await after(forge(position))).toBe(422);
  expect(wrong.body).toMatchObject({ error: { code: 'validation_failed', field: 'after' } });
  expect((await stack.service.conversations.outbox.read(keys[0] ?? ''))?.outbox ?? []).toEqual([]);
});

test.concurrent('a long poll of the list answers with the first event after the cursor, or without one in time', async () => {
  const { keys, say, ended, callOperation } = await aSilentEndpoint();
  const read = (query: string) => callOperation(eventOperations.list, { query });
  const [key = ''] = keys;

  const begun = performance.now();
  const none = await read('?wait=1');
  const noneMs = performance.now() - begun;
  const waiting = read('?wait=20');
  await say(key, 'a');
  const first = await waiting;
  const at = performance.now();
  const again = await read('?wait=20');
  const againMs = performance.now() - at;
  const next = read(`?wait=20&after=${first.body.cursor}`);
  await say(key, 'b');
  const [row] = (await ended(2)).filter(({ sequence }) => sequence === 2);
  const second = await next;

  expect([none.status, none.body]).toMatchObject([200, { events: [], hasMore: false, cursor: null }]);
  expect(noneMs).toBeGreaterThan(900);
  const contents = [first, second].map(({ body }) => body.events.map(({ envelope }) => envelope?.['payload']));
  expect(contents).toMatchObject([[{ content: 'a' }], [{ content: 'b' }]]);
  expect(again.body.events).toEqual(first.body.events);
  expect(againMs).toBeLessThan(5_000);
  const readUpTo = Date.parse(second.body.readUpTo);
  // The time has whole seconds.
  expect(readUpTo).toBeGreaterThan((row?.endedAt?.getTime() ?? Infinity) - 1_000);
  expect(readUpTo).toBeLessThan(Date.now());
  expect((await read('?wait=21')).status).toBe(422);
});
