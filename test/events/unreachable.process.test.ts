import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openDeliveryWorker } from '../../workers/delivery/worker.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { freePort } from '../../scripts/services.ts';
import { contentOf, openReceiver, type Receiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

/** The pause of the dead endpoint. It is longer than the healthy endpoint needs, even on a busy machine. */
const PAUSE_MS = 5_000;

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  env: { ENDPOINT_CONCURRENCY: '2', DELIVERY_CONCURRENCY: '8', SHUTDOWN_DEADLINE_MS: '60000' },
});
const opened: Receiver[] = [];
let lifecycle: Lifecycle;

/** While the healthy endpoint gets its events, no hanging request may end, even on a busy machine. */
const LONG_DEADLINE = {
  deliveryDeadlineMs: 40_000,
  writeBeforeMs: 42_000,
  claimLostMs: 50_000,
  recordForMs: 50_000,
  claimEndedWithinMs: 55_000,
};

beforeAll(async () => {
  const logger = createLogger({ name: 'test', level: 'silent' });
  lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  await openDeliveryWorker({
    config: readConfig(stack.env, LONG_DEADLINE),
    logger,
    lifecycle,
    breaking: { pauseMs: PAUSE_MS },
  });
});
afterAll(async () => {
  await Promise.all(opened.map((one) => one.close()));
  await lifecycle.close();
});

const streamsTo = async (url: string, count: number) => {
  const { assistantId } = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistantId, { url });
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistantId, count);
  const say = (text: string) => Promise.all(keys.map((key) => feed.say(assistantId, key, [`${text} 1`, `${text} 2`])));
  const countRows = async (filter: object) =>
    stack.service.mongo.collection('deliveries').countDocuments({ assistantId, ...filter });
  return { assistantId, keys, say, count: countRows };
};

test('five refused connections suspend an endpoint; after a successful probe all its events are sent in order', async () => {
  const port = await freePort();
  const dead = await streamsTo(`http://127.0.0.1:${port}/`, 20);
  const healthy = await openReceiver();
  opened.push(healthy);
  const others = await streamsTo(healthy.url, 20);

  await dead.say('a');
  await eventually(async () => expect(await dead.count({ errorKind: 'connect' })).toBeGreaterThanOrEqual(5));
  await others.say('b');
  await healthy.waitFor((all) => all.length >= 40, 5_000);
  const failed = await dead.count({});
  const revived = await openReceiver({ port });
  opened.push(revived);
  const received = await revived.waitFor((all) => all.length >= 40 - failed, 16_000);

  // An endpoint has two slots, so a send that was still in flight at the fifth failure may fail too.
  expect(failed).toBeGreaterThanOrEqual(5);
  expect(failed).toBeLessThanOrEqual(7);
  expect(await dead.count({ errorKind: 'connect' })).toBe(failed);
  const spoken = Map.groupBy(
    received,
    ({ json }) => (json as { payload: { conversation_id: string } }).payload.conversation_id,
  );
  for (const events of spoken.values())
    expect(events.map(contentOf)).toEqual(events.length === 2 ? ['a 1', 'a 2'] : ['a 2']);
});

test('hanging endpoints hold no more than their share of the slots', async () => {
  const hanging = await Promise.all(
    Array.from({ length: 6 }, () => openReceiver({ respond: () => new Promise(() => undefined) })),
  );
  const healthy = await openReceiver();
  opened.push(...hanging, healthy);
  const held = await Promise.all(hanging.map(({ url }) => streamsTo(url, 5)));
  const others = await streamsTo(healthy.url, 20);

  await Promise.all(held.map((stream) => stream.say('held')));
  await Promise.all(hanging.map((receiver) => receiver.waitFor((all) => all.length >= 1)));
  await others.say('healthy');
  await healthy.waitFor((all) => all.length >= 40, 30_000);

  expect(Math.max(...hanging.map(({ received }) => received.length))).toBeLessThanOrEqual(4);
});
