import { expect, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';
import { heapMb } from '../support/heap.ts';

const stack = useStack({
  replyWorkers: 0,
  env: { ENDPOINT_CONCURRENCY: '2', DELIVERY_CONCURRENCY: '16', SHUTDOWN_DEADLINE_MS: '60000' },
});

const CONVERSATIONS = 400;
/** Two bytes each in memory. */
const LONG = '語'.repeat(8_000);

test('streams that wait for a receiver that hangs keep neither their events nor its endpoint', async () => {
  const { assistantId } = await anAssistant(stack);
  const { promise, resolve: answer } = Promise.withResolvers<{ status: number }>();
  const hanging = await openReceiver({ respond: () => promise });
  const good = await openReceiver();
  const { endpoints } = stack.service;
  const feed = createFeed(stack.service);
  await endpoints.addEndpoint(assistantId, { url: hanging.url });
  const keys = await feed.openConversations(assistantId, CONVERSATIONS);
  for (const key of keys) await feed.say(assistantId, key, [LONG, LONG], { silent: true });
  await endpoints.addEndpoint(assistantId, { url: good.url });
  const [last = ''] = await feed.openConversations(assistantId, 1);
  const before = heapMb();

  for (const key of keys) stack.service.deliveryQueue.wake({ _id: key, assistantId });
  await hanging.waitFor((all) => all.length >= 2);
  // It is read after all others of its assistant.
  await feed.say(assistantId, last, ['the last']);
  await good.waitFor((all) => all.map(contentOf).includes('the last'));

  // The events of all would be 13 MB.
  await eventually(() => expect(heapMb() - before).toBeLessThan(5));
  answer({ status: 200 });
  await hanging.waitFor((all) => all.length >= 20); // those that waited go on
});
