import { expect, test } from 'vitest';
import { openDeliveryWorker } from '../../workers/delivery/worker.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { openRelayed } from '../support/relayed.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** The commands that remove ended events from an outbox: `findAndModify` for a single event, `update` for several. */
const PULLS = ['update', 'findAndModify'];

/** A stream whose receiver answers the first event only after `release`, and the other events slowly. */
const aHeldStream = async () => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { assistantId } = await anAssistant(stack);
  const receiver = await openReceiver({
    respond: async (_, nth) => {
      if (nth > 1) return { delayMs: 500 };
      await released;
      return {};
    },
  });
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  return {
    receiver,
    release,
    endpointId: endpoint.endpointId,
    say: (...contents: string[]) => feed.say(assistantId, key, contents),
    readEnds: async () => {
      const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
      return rows.map(({ body, outcome, errorKind }) => [
        contentOf({ json: JSON.parse(String(body)) }),
        errorKind ?? outcome,
      ]);
    },
  };
};

test('a worker that stops wakes others for its streams', async () => {
  const { say, receiver, release } = await aHeldStream();
  const first = await stack.startDeliveryWorker();
  await say('0', '1', '2');
  await receiver.waitFor((all) => all.length >= 1);
  const before = await stack.service.queues.deliveries.countJobs();

  const stopped = first.close();
  release();
  await stopped;
  const after = await stack.service.queues.deliveries.countJobs();
  const second = await stack.startDeliveryWorker();
  await receiver.waitFor((all) => all.length >= 3);
  await second.close();

  expect([before['waiting'], after['waiting']]).toEqual([0, 1]);
  expect(receiver.received.map(contentOf)).toEqual(['0', '1', '2']);
});

test('what waits for the rate of an endpoint ends at once when that is disabled, also with one worker', async () => {
  const { endpoints, mongo } = stack.service;
  const { assistantId } = await anAssistant(stack);
  const receiver = await openReceiver();
  const limited = { url: receiver.url, ratePerSecond: 1 };
  const { endpointId } = (await endpoints.addEndpoint(assistantId, limited)).endpoint;
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistantId, 50);
  const worker = await stack.startDeliveryWorker();
  await Promise.all(keys.map((key) => feed.say(assistantId, key, ['hello'])));
  await receiver.waitFor(({ length }) => length >= 3);

  await endpoints.setEnabled(endpointId, false);

  // By the rate it would take another 47 s.
  await eventually(
    async () =>
      expect(await mongo.collection('deliveries').countDocuments({ assistantId, endedAt: { $ne: null } })).toBe(50),
    20_000,
  );
  expect(receiver.received.length).toBeLessThan(25);
  await worker.close();
});

test('events after an endpoint is switched on again are sent, even if a worker read the endpoint before', async () => {
  const { say, receiver, release, endpointId, readEnds } = await aHeldStream();
  const { endpoints } = stack.service;
  const { promise: pulling, resolve: onPull } = Promise.withResolvers<void>();
  const { promise: pullable, resolve: letPull } = Promise.withResolvers<void>();
  let endpointReadings = 0;
  const relayed = await openRelayed(stack, {
    holds: ({ name, collection }) => {
      if (name === 'find' && collection === 'endpoints') endpointReadings += 1;
      if (!PULLS.includes(name) || collection !== 'conversations') return null;
      onPull();
      return pullable;
    },
  });
  await openDeliveryWorker(relayed);
  await say('0', '1');
  await receiver.waitFor((all) => all.length >= 1);

  await endpoints.setEnabled(endpointId, false);
  const readingsBefore = endpointReadings;
  release();
  await pulling;
  await eventually(() => expect(endpointReadings).toBeGreaterThan(readingsBefore));
  await endpoints.setEnabled(endpointId, true);
  await say('2');
  letPull();
  await receiver.waitFor((all) => all.length >= 2);

  expect(receiver.received.map(contentOf)).toEqual(['0', '2']);
  await eventually(async () =>
    expect((await readEnds()).toSorted()).toEqual([
      ['0', 'delivered'],
      ['1', 'endpoint_disabled'],
      ['2', 'delivered'],
    ]),
  );
});
