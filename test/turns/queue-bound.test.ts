import { beforeEach, expect, test } from 'vitest';
import { DELIVERIES_QUEUE } from '../../src/events/queue.ts';
import { TURNS_QUEUE } from '../../src/turns/queue.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

/** More jobs than the limit of either queue. */
const FULL = 20_001;
/** A count of the jobs is older than this after a pause. */
const COUNT_OUTDATED_MS = 2_500;

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  timing: { sweepEveryMs: 250, eventStaleMs: 500, turnStaleMs: 500 },
});

const waitingKey = (name: string): string => `{${stack.env.REDIS_PREFIX}-0}:${name}:wait`;
const both = [TURNS_QUEUE, DELIVERIES_QUEUE];

/** Fills the queues with job ids only, because so many whole jobs would keep the shared Redis busy for long. */
beforeEach(async () => {
  const ids = Array.from({ length: FULL }, (_, index) => `old-${index}`);
  for (const name of both) {
    await stack.service.redis.del(waitingKey(name));
    await stack.service.redis.rpush(waitingKey(name), ...ids);
  }
});

const lengthOf = (name: string): Promise<number> => stack.service.redis.llen(waitingKey(name));

test('a queue that was full long ago gets the next job', async () => {
  const { chat } = await anAssistant(stack);
  const accept = () => chat(aTurn(), { headers: { Prefer: 'respond-async' } });
  await accept();
  const countedAt = performance.now();
  await eventually(() => expect(performance.now() - countedAt).toBeGreaterThan(COUNT_OUTDATED_MS));
  await stack.service.redis.del(waitingKey(TURNS_QUEUE));

  await accept();

  await eventually(async () => expect(await lengthOf(TURNS_QUEUE)).toBe(1));
});

test('without workers the queues grow to a bound, and the sweeps find the remaining work', async () => {
  const { assistantId, chat, history } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const conversations: string[] = [];
  const accept = async (): Promise<string> => {
    const { body } = await chat(aTurn({ message: 'hello' }), { headers: { Prefer: 'respond-async' } });
    return body.conversationId;
  };
  const lengths = () => Promise.all(both.map(lengthOf));
  // The first messages start the count, and are still added.
  await eventually(async () => {
    const before = await lengths();
    for (let session = 0; session < 5; session += 1) conversations.push(await accept());
    expect(await lengths()).toEqual(before);
  });

  for (const name of both) await stack.service.redis.del(waitingKey(name));
  await stack.startReplyWorker();
  await stack.startDeliveryWorker();
  for (const conversationId of conversations) {
    await eventually(async () => expect((await history(conversationId)).body.messages).toHaveLength(2));
  }
  await receiver.waitFor((all) => all.length >= 2 * conversations.length);
});
