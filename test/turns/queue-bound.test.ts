import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { DELIVERIES_QUEUE } from '../../src/deliveries/queue.ts';
import { TURNS_QUEUE } from '../../src/turns/queue.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../support/receiver.ts';
import { useStack } from '../support/stack.ts';

/** More jobs than the limit of either queue. */
const FULL = 20_001;

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

const waitingKey = (name: string): string => `{${stack.env.REDIS_PREFIX}-0}:${name}:wait`;
const both = [TURNS_QUEUE, DELIVERIES_QUEUE];

/** Fills the queues with job ids only, because so many whole jobs would keep the shared Redis busy for long. */
beforeAll(async () => {
  const ids = Array.from({ length: FULL }, (_, index) => `old-${index}`);
  for (const name of both) await stack.service.redis.rpush(waitingKey(name), ...ids);
});

test('without workers the queues grow to a bound, and the sweeps find the remaining work', async () => {
  const { assistantId, chat, history } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const conversations = [];
  for (let session = 0; session < 5; session += 1) {
    const body = { session_id: randomUUID(), message: 'hello' };
    const { body: accepted } = await chat(body, { headers: { Prefer: 'respond-async' } });
    conversations.push(accepted.conversationId);
  }
  await Promise.all([stack.service.turnQueue.close(), stack.service.deliveryQueue.close()]);
  for (const name of both) expect(await stack.service.redis.llen(waitingKey(name))).toBe(FULL);

  for (const name of both) await stack.service.redis.del(waitingKey(name));
  await stack.startReplyWorker();
  await stack.startDeliveryWorker();
  for (const conversationId of conversations) {
    await eventually(async () => expect((await history(conversationId)).body.messages).toHaveLength(2));
  }
  await receiver.waitFor((all) => all.length >= 2 * conversations.length);
  await receiver.close();
});
