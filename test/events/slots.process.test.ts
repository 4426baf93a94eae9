import { setTimeout as pause } from 'node:timers/promises';
import { expect, type TestContext, test } from 'vitest';
import { startMongod } from '../../scripts/services.ts';
import type { Timing } from '../../src/platform/process/time-limits.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { createFeed } from '../kit/feed.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { openStack, useOpened, useStack } from '../support/stack.ts';

/** Shorter than the time after which the service takes MongoDB for unavailable. */
const SLOW_WRITE_MS = 1_500;

/** A busy machine needs seconds to fill the slots. Until then, no request may end. */
const SLOW_DEADLINE = {
  deliveryDeadlineMs: 30_000,
  writeBeforeMs: 32_000,
  claimLostMs: 40_000,
  recordForMs: 40_000,
  claimEndedWithinMs: 45_000,
};

const ONE_AT_A_TIME = { ENDPOINT_CONCURRENCY: '1', DELIVERY_CONCURRENCY: '1' };

const mongod = useOpened(
  () => startMongod({ failPoints: true }),
  (opened) => opened.dispose(),
);
const stack = useStack(() => ({ replyWorkers: 0, env: { MONGODB_URL: mongod.url, ...ONE_AT_A_TIME } }));

/** Delays each update by `SLOW_WRITE_MS` while `during` runs. Claims are inserts, so they are not delayed. */
const delayUpdates = (during: () => Promise<void>): Promise<void> =>
  withFailPoint(mongod.url, { failCommands: ['update'], blockConnection: true, blockTimeMS: SLOW_WRITE_MS }, during);

/** An endpoint with one event in each conversation. The first request is answered after `release`. */
const anEndpointWithEvents = async ({ conversations, status }: { conversations: number; status: number }) => {
  const { assistantId } = await anAssistant(stack);
  const { promise, resolve: release } = Promise.withResolvers<void>();
  let inFlight = 0;
  let most = 0;
  const receiver = await openReceiver({
    respond: async (_request, nth) => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      if (nth === 1) await promise;
      inFlight -= 1;
      return { status: nth === 1 ? status : 200 };
    },
  });
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistantId, conversations);
  await Promise.all(keys.map((key) => feed.say(assistantId, key, ['hello'])));
  await receiver.waitFor((all) => all.length >= 1);
  const outcomes = async () => {
    const rows = await stack.service.mongo
      .collection('deliveries')
      .find({ assistantId })
      .sort({ createdAt: 1 })
      .toArray();
    return rows.map(({ outcome }) => outcome as string);
  };
  return { receiver, release, outcomes, endpoint, mostInFlight: () => most };
};

test('the next request starts while the outcome of the last one is being stored, but not before its response', async () => {
  const { receiver, release, outcomes, mostInFlight } = await anEndpointWithEvents({ conversations: 2, status: 200 });

  await delayUpdates(async () => {
    release();
    await receiver.waitFor((all) => all.length >= 2);
    expect(await outcomes()).toEqual(['sending', 'sending']);
  });

  await eventually(async () => expect(await outcomes()).toEqual(['delivered', 'delivered']));
  expect(mostInFlight()).toBe(1);
  await receiver.close();
});

test('if as many outcomes are being stored as there may be sends, the next request waits for one of them', async () => {
  const { receiver, release, outcomes } = await anEndpointWithEvents({ conversations: 3, status: 200 });

  await delayUpdates(async () => {
    release();
    await receiver.waitFor((all) => all.length >= 3);
    expect(await outcomes()).toContain('delivered');
  });

  await eventually(async () => expect(await outcomes()).toEqual(['delivered', 'delivered', 'delivered']));
  await receiver.close();
});

test('a request that waits for its slot is not sent if the response before it pauses the endpoint', async () => {
  const { receiver, release, outcomes, endpoint } = await anEndpointWithEvents({ conversations: 2, status: 410 });

  release();
  await eventually(async () => expect(await outcomes()).toEqual(['rejected']));

  expect((await stack.service.endpoints.getEndpoint(endpoint.endpointId)).pause?.reason).toBe('gone');
  // A test event ignores the pause and needs the same slot, so nothing waits for it any longer.
  stack.service.deliveryQueue.wakeDelivery(await stack.service.deliveries.queueTest(endpoint));
  await receiver.waitFor((all) => all.some(({ json }) => (json as { event: string }).event === 'webhook.test'));
  expect(receiver.received).toHaveLength(2);
  await receiver.close();
});

/** Resolves once a receiver that never answers gets no more requests, because its senders have no more slots. */
const untilFull = async ({ received }: Receiver): Promise<void> => {
  for (let before = -1; before < 10 || before < received.length; ) {
    before = received.length;
    await pause(200);
  }
};

/** A delivery worker with few slots, a receiver that never answers, and one that does. */
const besideHanging = async ({ onTestFinished }: TestContext, env: Record<string, string>, timing: Partial<Timing>) => {
  const few = await openStack({ replyWorkers: 0, env: { SHUTDOWN_DEADLINE_MS: '60000', ...env }, timing });
  const hanging = await openReceiver({ respond: () => new Promise(() => undefined) });
  const good = await openReceiver();
  onTestFinished(async () => {
    await Promise.all([hanging.close(), good.close()]);
    await few.close();
  });
  const feed = createFeed(few.service);
  const add = (assistantId: string, { url }: Receiver) => few.service.endpoints.addEndpoint(assistantId, { url });
  return { few, hanging, good, feed, add };
};

// These have stacks of their own, and mostly wait, so they wait together.
test.concurrent.for([
  ['slots', 'of two other assistants', 4, 2, 8, sized({ everyday: 12, long: 20 })],
  ['slots', 'of five other assistants', 4, 5, 8, 4],
  ['a slot', 'of its own assistant', 1, 1, 9, sized({ everyday: 12, long: 20 })],
] as const)(
  'an endpoint finds %s beside many endpoints %s that all hang',
  async ([, , found, assistants, endpoints, conversations], context) => {
    const { expect } = context;
    const slots = { DELIVERY_CONCURRENCY: '64', ENDPOINT_CONCURRENCY: '20' };
    const { few, hanging, feed, add } = await besideHanging(context, slots, SLOW_DEADLINE);
    const own = (await anAssistant(few)).assistantId;
    const others = assistants === 1 ? [own] : [];
    while (others.length < assistants) others.push((await anAssistant(few)).assistantId);
    for (const assistantId of others) {
      for (let nth = 0; nth < endpoints; nth += 1) await add(assistantId, hanging);
      const keys = await feed.openConversations(assistantId, conversations);
      await Promise.all(keys.map((key) => feed.say(assistantId, key, ['hello'])));
    }
    await untilFull(hanging);

    const good = await openReceiver({ respond: () => new Promise(() => undefined) });
    context.onTestFinished(good.close);
    await add(own, good);
    const keys = await feed.openConversations(own, found);
    await Promise.all(keys.map((key) => feed.say(own, key, ['hello'])));
    await good.waitFor((all) => all.length >= found);

    // No request that hangs has ended, so that none has freed a slot.
    const ended = { url: hanging.url, outcome: { $nin: ['queued', 'sending'] } };
    expect(await few.service.mongo.collection('deliveries').countDocuments(ended)).toBe(0);
  },
);

test.concurrent('others wait for no endpoint that has shown that it hangs, however many there are', async (context) => {
  const { expect } = context;
  const slots = { DELIVERY_CONCURRENCY: '16', ENDPOINT_CONCURRENCY: '4' };
  const { few, hanging, good, feed, add } = await besideHanging(context, slots, { deliveryDeadlineMs: 1_300 });
  const ENDPOINTS = sized({ everyday: 18, long: 60 });
  for (let assistants = 0; assistants < ENDPOINTS / 3; assistants += 1) {
    const { assistantId } = await anAssistant(few);
    for (let nth = 0; nth < 3; nth += 1) await add(assistantId, hanging);
    const keys = await feed.openConversations(assistantId, 3);
    await Promise.all(keys.map((key) => feed.say(assistantId, key, ['one', 'two', 'three'])));
  }
  const { assistantId } = await anAssistant(few);
  await add(assistantId, good);
  const deliveries = few.service.mongo.collection('deliveries');
  await eventually(async () =>
    expect(await deliveries.distinct('endpointId', { endedAt: { $ne: null } })).toHaveLength(ENDPOINTS),
  );

  const before = hanging.received.length;
  const [key = ''] = await feed.openConversations(assistantId, 1);
  for (let nth = 1; nth <= sized({ everyday: 5, long: 10 }); nth += 1) {
    await feed.say(assistantId, key, ['hello']);
    await good.waitFor((all) => all.length >= nth);
  }

  expect(await deliveries.countDocuments({ url: hanging.url, endedAt: null })).toBeGreaterThan(0);
  // Each of them had its turn before the others had theirs.
  expect(hanging.received.length - before).toBeLessThan(ENDPOINTS);
});

test.concurrent('an endpoint that answers in more than a second has its places beside many that hang', async (context) => {
  const { expect, onTestFinished } = context;
  const slots = { DELIVERY_CONCURRENCY: '16', ENDPOINT_CONCURRENCY: '4' };
  const { few, hanging, feed, add } = await besideHanging(context, slots, { deliveryDeadlineMs: 3_500 });
  const slow = await openReceiver({ respond: () => pause(1_200, { status: 200 }) });
  onTestFinished(slow.close);
  const ENDPOINTS = 12;
  const EVENTS = sized({
    everyday: ['one', 'two', 'three', 'four'],
    long: ['one', 'two', 'three', 'four', 'five', 'six'],
  });
  for (let nth = 0; nth < ENDPOINTS; nth += 1) {
    const { assistantId } = await anAssistant(few);
    await add(assistantId, hanging);
    const keys = await feed.openConversations(assistantId, 3);
    await Promise.all(
      keys.map((key) =>
        feed.say(
          assistantId,
          key,
          Array.from({ length: 20 }, () => 'hello'),
        ),
      ),
    );
  }
  const { assistantId } = await anAssistant(few);
  await add(assistantId, slow);
  const deliveries = few.service.mongo.collection('deliveries');
  await eventually(async () =>
    expect(await deliveries.distinct('endpointId', { endedAt: { $ne: null } })).toHaveLength(ENDPOINTS),
  );

  const before = hanging.received.length;
  const [key = ''] = await feed.openConversations(assistantId, 1);
  await feed.say(assistantId, key, EVENTS);
  await slow.waitFor((all) => all.length >= EVENTS.length);

  // If it took its turn with all others, each would have had one less.
  expect(hanging.received.length - before).toBeLessThan((EVENTS.length / 2) * ENDPOINTS);
});
