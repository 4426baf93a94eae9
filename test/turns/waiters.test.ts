import { once } from 'node:events';
import { setImmediate as nextRound } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openReplies, type Replies } from '../../src/turns/waiters.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';
import { readConfig } from '../../src/platform/process/config.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const TURNS = 100;
const CALLERS = 10;
const AT_ONCE = 20;

type Published = Parameters<Parameters<Parameters<typeof openReplies>[0]['hear']>[1]>[0][number];

const openHeard = async (): Promise<{ replies: Replies; publish: (all: Published[]) => void }> => {
  const subscriber = new Redis(stack.env['REDIS_URL'] ?? '');
  await once(subscriber, 'ready');
  let publish: (all: Published[]) => void = () => undefined;
  const replies = await openReplies({
    subscriber,
    hear: (_channel, listener) => {
      publish = listener;
    },
    channel: 'test:replies',
    isPending: async () => true,
    findTurn: async () => null,
    storedReply: async () => ({ outcome: 'erased' }),
    timing: readConfig(stack.env).timing,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  const close = () => {
    replies.close();
    subscriber.disconnect();
  };
  return { replies: { ...replies, close }, publish };
};

test('the first caller of each turn is answered at once, and all others a few at a time', async () => {
  const { replies, publish } = await openHeard();
  let [first, others] = [0, 0];
  const turns = Array.from({ length: TURNS }, (_, nth) => ({ key: 'k', turnId: `turn-${nth}` }));
  for (const turn of turns) {
    for (let nth = 0; nth < CALLERS; nth += 1) {
      const count = () => (nth === 0 ? (first += 1) : (others += 1));
      void replies.watch(turn).reply.then(count);
    }
  }

  publish(turns.map(({ turnId }) => ({ turnId, conversationId: 'c', reply: { outcome: 'failed' } })));
  await nextRound();
  const soon = [first, others];
  await eventually(() => expect(others).toBe(TURNS * (CALLERS - 1)));
  replies.close();

  expect(soon[0]).toBe(TURNS);
  expect(soon[1]).toBeLessThanOrEqual(2 * AT_ONCE);
});

test('the callers of a turn that has thousands of them do not keep those of another turn waiting', async () => {
  const { replies, publish } = await openHeard();
  const [large, small] = ['large', 'small'].map((turnId) => ({ key: 'k', turnId }));
  let [ofLarge, before] = [0, Infinity];
  for (let nth = 0; nth < 2_000; nth += 1) void replies.watch(large!).reply.then(() => (ofLarge += 1));
  void replies.watch(small!);
  void replies.watch(small!).reply.then(() => (before = ofLarge));

  publish([large!, small!].map(({ turnId }) => ({ turnId, conversationId: 'c', reply: { outcome: 'failed' } })));
  await eventually(() => expect(ofLarge).toBe(2_000));
  replies.close();

  expect(before).toBeLessThanOrEqual(1 + AT_ONCE);
});
