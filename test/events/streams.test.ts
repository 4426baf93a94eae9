import { expect, test } from 'vitest';
import { isFinal } from '../../src/events/delivery.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { contentOf, openReceiver, type ReceiverOptions } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 2 });

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => String(from + index));

const aStream = async (options: ReceiverOptions & { ratePerSecond?: number } = {}, conversations = 1) => {
  const { assistantId } = await anAssistant(stack);
  const receiver = await openReceiver(options);
  const { endpoints, deliveries } = stack.service;
  const { endpoint } = await endpoints.addEndpoint(assistantId, {
    url: receiver.url,
    ratePerSecond: options.ratePerSecond ?? null,
  });
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistantId, conversations);
  const key = keys[0] as string;
  return {
    assistantId,
    receiver,
    feed,
    keys,
    key,
    endpointId: endpoint.endpointId,
    say: (...contents: string[]) => feed.say(assistantId, key, contents),
    contents: () => receiver.received.map(contentOf),
    outbox: async () => (await stack.service.conversations.outbox.read(key))?.outbox ?? [],
    ended: (count: number, timeoutMs?: number) =>
      eventually(async () => {
        const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
        const final = rows.filter(({ outcome }) => isFinal(outcome));
        expect(final).toHaveLength(count);
        return final;
      }, timeoutMs),
    countEnds: async () => {
      const { deliveries: rows } = await deliveries.listRecords({ assistantId, limit: 200 });
      return Object.fromEntries(
        [...Map.groupBy(rows, ({ outcome, errorKind }) => errorKind ?? outcome)].map(([kind, some]) => [
          kind,
          some.length,
        ]),
      );
    },
  };
};

test('after a 410 nothing is sent until an operator resumes the endpoint, then everything in order', async () => {
  const { endpoints } = stack.service;
  const { say, receiver, endpointId, contents, outbox } = await aStream({
    respond: (_, nth) => ({ status: nth === 1 ? 410 : 200 }),
  });

  await say('0', '1', '2');
  await eventually(async () => expect((await endpoints.getEndpoint(endpointId)).pause?.reason).toBe('gone'));
  await say('3');
  await eventually(async () => expect(await outbox()).toHaveLength(3));
  const whilePaused = contents();
  // Simulates a late response: another request was still in flight when the 410 arrived.
  await endpoints.pauseEndpoint(endpointId, { reason: 'retry_after', until: new Date(Date.now() + 1) });
  const { pause } = await endpoints.getEndpoint(endpointId);
  const resumedAt = performance.now();
  await endpoints.resumeEndpoint(endpointId);
  await receiver.waitFor((all) => all.length >= 4);

  expect(whilePaused).toEqual(['0']);
  expect(pause).toEqual({ reason: 'gone', until: null });
  expect(contents()).toEqual(['0', '1', '2', '3']);
  expect(performance.now() - resumedAt).toBeLessThan(atPace(1_000));
});

const RETRY_AFTER = [
  ['seconds', 429, () => '2'],
  ['a date', 503, () => new Date(Date.now() + 2_900).toUTCString()],
] as const;

test.each(sized({ everyday: RETRY_AFTER.slice(0, 1), long: [...RETRY_AFTER] }))(
  'Retry-After in %s, with %i, delays pending events and repeats nothing',
  async (_name, status, retryAfter) => {
    const { say, receiver, contents } = await aStream({
      respond: (_request, nth) => (nth === 1 ? { status, headers: { 'retry-after': retryAfter() } } : {}),
    });

    await say('0', '1', '2');
    const received = await receiver.waitFor((all) => all.length >= 3);

    expect(contents()).toEqual(['0', '1', '2']);
    expect((received[1]?.at ?? 0) - (received[0]?.at ?? 0)).toBeGreaterThan(1_000);
  },
);

test('a Retry-After is at most ten minutes, and a shorter one does not shorten the pause', async () => {
  const { endpoints } = stack.service;
  const { say, endpointId } = await aStream({ respond: () => ({ status: 503, headers: { 'retry-after': '86400' } }) });

  await say('0');
  const pause = await eventually(async () => {
    const { pause: now } = await endpoints.getEndpoint(endpointId);
    expect(now).not.toBeNull();
    return now;
  });
  await endpoints.pauseEndpoint(endpointId, { reason: 'retry_after', until: new Date(Date.now() + 1_000) });

  expect((pause?.until?.getTime() ?? 0) - Date.now()).toBeGreaterThan(595_000);
  expect((pause?.until?.getTime() ?? 0) - Date.now()).toBeLessThanOrEqual(600_000);
  expect((await endpoints.getEndpoint(endpointId)).pause).toEqual(pause);
});

test.each(['removed', 'disabled'] as const)(
  'pending events of a %s endpoint end at once, paused or not',
  async (how) => {
    const { endpoints } = stack.service;
    const { say, endpointId, ended, countEnds, outbox } = await aStream();
    await endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
    await say('0', '1', '2');

    const changedAt = performance.now();
    await (how === 'removed' ? endpoints.removeEndpoint(endpointId) : endpoints.setEnabled(endpointId, false));
    await ended(3);

    expect(performance.now() - changedAt).toBeLessThan(atPace(1_000));
    expect(await countEnds()).toEqual({ [`endpoint_${how}`]: 3 });
    await eventually(async () => expect(await outbox()).toEqual([]));
  },
);

test('events before an endpoint is enabled again are not sent, later ones are', async () => {
  const { endpoints } = stack.service;
  const { feed, assistantId, key, endpointId, say, receiver, countEnds, contents } = await aStream();
  // Simulates an event from a process that had not yet read that the endpoint was disabled.
  const before = new Date(Date.now() - 1_000);
  await endpoints.setEnabled(endpointId, false);
  await endpoints.setEnabled(endpointId, true);
  await feed.say(assistantId, key, ['before'], { at: before });
  await say('after');
  await receiver.waitFor((all) => all.length >= 1);

  expect(contents()).toEqual(['after']);
  expect(await countEnds()).toMatchObject({ endpoint_disabled: 1 });
});

test('an event is sent if the clock of its process is behind that of the process that added the endpoint', async () => {
  const { endpoints } = stack.service;
  const { feed, assistantId, key, endpointId, receiver, contents } = await aStream();
  const { createdAt } = await endpoints.getEndpoint(endpointId);

  await feed.say(assistantId, key, ['early'], { at: new Date(createdAt.getTime() - 100) });
  await receiver.waitFor((all) => all.length >= 1);

  expect(contents()).toEqual(['early']);
});

test('old events of a paused endpoint end expired, and the stream continues', async () => {
  const { endpoints } = stack.service;
  const { feed, assistantId, key, keys, endpointId, ended, countEnds, receiver, contents } = await aStream({}, 3);
  await endpoints.pauseEndpoint(endpointId, { reason: 'gone', until: null });
  const at = new Date(Date.now() - 601_000);
  for (const one of keys) await feed.say(assistantId, one, ['old 1', 'old 2'], { at, silent: true });
  await feed.say(assistantId, key, ['young'], { silent: true });

  await ended(6);
  const ends = await countEnds();
  await endpoints.resumeEndpoint(endpointId);
  await receiver.waitFor((all) => all.length >= 1);

  expect(ends).toEqual({ expired: 6 });
  expect(contents()).toEqual(['young']);
});

test('two endpoints of one conversation each get every event once, in order, at their own pace', async () => {
  const { assistantId, receiver, say, outbox } = await aStream();
  const slow = await openReceiver({ respond: () => ({ delayMs: 20 }) });
  await stack.service.endpoints.addEndpoint(assistantId, { url: slow.url });

  const COUNT = sized({ everyday: 20, long: 40 });
  for (const number of numbers(0, COUNT)) await say(number);
  await Promise.all([receiver, slow].map((one) => one.waitFor((all) => all.length >= COUNT)));
  await eventually(async () => expect(await outbox()).toEqual([]));

  for (const one of [receiver, slow]) expect(one.received.map(contentOf)).toEqual(numbers(0, COUNT));
});

test('events that wait for one endpoint do not block those for another', async () => {
  const { assistantId, receiver, say, outbox } = await aStream();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const held = await openReceiver({
    respond: async () => {
      await released;
      return {};
    },
  });
  await stack.service.endpoints.addEndpoint(assistantId, { url: held.url });

  const saidAt = performance.now();
  await say(...numbers(0, 12));
  await receiver.waitFor((all) => all.length >= 12);
  const ms = performance.now() - saidAt;
  const stillHeld = held.received.length;
  release();
  await held.waitFor((all) => all.length >= 12);
  await eventually(async () => expect(await outbox()).toEqual([]));

  // A sweep would need longer to find the events, so they did not wait for a sweep.
  expect(ms).toBeLessThan(atPace(1_500));
  expect(stillHeld).toBe(1);
  for (const one of [receiver, held]) expect(one.received.map(contentOf)).toEqual(numbers(0, 12));
});

test('an endpoint with a rate gets so many events a second from all workers, in order, and another one is not delayed', async () => {
  const limited = await aStream({ ratePerSecond: 10 }, 10);
  const other = await aStream();
  const third = await stack.startDeliveryWorker();
  const words = numbers(0, 4);

  const saidAt = Date.now();
  await Promise.all(limited.keys.map((key) => limited.feed.say(limited.assistantId, key, words)));
  await limited.receiver.waitFor(({ length }) => length >= 3);
  const begun = performance.now();
  await other.say('meanwhile');
  await other.receiver.waitFor(({ length }) => length >= 1);
  const otherMs = performance.now() - begun;
  // What a worker that stops has reserved is lost. Its events are sent by the others.
  await third.close();
  const { received } = limited.receiver;
  await limited.receiver.waitFor(({ length }) => length >= 40);

  const times = received.map(({ at }) => at);
  const inOneSecond = times.map((from) => times.filter((at) => at >= from && at < from + 1_000).length);
  // A machine that stands still for some hundred ms brings together what was due in them. Three workers that each kept a
  // rate of their own would give 30.
  expect(Math.max(...inOneSecond)).toBeLessThan(20);
  // From before the first event is said: its arrival may come late on a busy machine, its time of sending does not.
  expect((times[39] ?? 0) - saidAt).toBeGreaterThan(3_800);
  expect(received).toHaveLength(40);
  const byConversation = Map.groupBy(received, ({ body }) => JSON.parse(body.toString()).payload.conversation_id);
  for (const some of byConversation.values()) expect(some.map(contentOf)).toEqual(words);
  expect(otherMs).toBeLessThan(atPace(2_000));
});

test('a rate applies to test events too, and ends when it is taken away', async () => {
  const { endpoints, deliveries } = stack.service;
  const { receiver, endpointId, say } = await aStream({ ratePerSecond: 1 });
  const endpoint = await endpoints.getEndpoint(endpointId);
  const test = async () => stack.service.deliveryQueue.wakeDelivery(await deliveries.queueTest(endpoint));

  const queuedAt = Date.now();
  await Promise.all([test(), test(), test()]);
  const rated = await receiver.waitFor(({ length }) => length >= 3);
  await endpoints.updateEndpoint(endpointId, { ratePerSecond: null });
  await say(...numbers(0, 20));
  const all = await receiver.waitFor(({ length }) => length >= 23);

  expect((rated[2]?.at ?? 0) - queuedAt).toBeGreaterThan(1_950);
  expect((all[22]?.at ?? 0) - (all[3]?.at ?? 0)).toBeLessThan(atPace(5_000));
});
