import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createNotTakenSweep, createTurnSweep } from '../../src/turns/sweep.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const conversations = () => stack.service.mongo.collection('conversations');
const at = (secondsAgo: number): Date => new Date(Date.now() - secondsAgo * 1_000);

test('a thousand escalations of one assistant that nobody took hardly delay one of another', async () => {
  const notTaken = (assistantId: string, takeBy: Date) => ({
    _id: randomUUID() as never,
    conversationId: randomUUID(),
    assistantId,
    language: 'en',
    takeBy,
  });
  const own = notTaken('neighbour', at(1));
  await conversations().insertMany(Array.from({ length: 1_000 }, () => notTaken('busy', at(60))));
  await conversations().insertOne(own);
  const ended: string[] = [];
  const transitions: Pick<typeof stack.service.conversations.transitions, 'endTakeBy'> = {
    endTakeBy: async ({ conversationId }) => {
      ended.push(conversationId);
      await conversations().updateOne({ conversationId }, { $unset: { takeBy: '' } });
      return { changed: null } as never;
    },
  };
  const sweep = createNotTakenSweep({
    conversations: { ...stack.service.conversations, transitions: transitions as never },
    findAssistant: async () => null,
    onReminded: async () => undefined,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });

  await sweep();
  const first = [...ended];
  for (let nth = 0; nth < 9; nth += 1) await sweep();

  expect(first.indexOf(own.conversationId)).toBeGreaterThanOrEqual(0);
  expect(first.length).toBeGreaterThanOrEqual(200);
  expect(new Set(ended).size).toBe(1_001);
});

test('a lost job is restored while more than a thousand older turns are being answered', async () => {
  const head = (assistantId: string, since: Date) => {
    const turnId = randomUUID();
    const waiting = [{ turnId, acceptedAt: since }];
    return { _id: randomUUID() as never, conversationId: randomUUID(), assistantId, headSince: since, waiting };
  };
  const answering = Array.from({ length: 1_500 }, (_, nth) => head('slow', at(60 - nth / 100)));
  const lost = head('neighbour', at(30));
  await conversations().insertMany([...answering, lost]);
  const leased = new Set(answering.flatMap(({ waiting }) => waiting.map(({ turnId }) => turnId)));
  const queued: string[] = [];
  const sweep = createTurnSweep({
    conversations: stack.service.conversations,
    leases: { findLeased: async () => leased } as never,
    turnQueue: {
      byPartition: async (items) => [{ items, oldestWaitingAt: null }] as never,
      enqueue: ({ turnId }) => void queued.push(turnId),
    },
    timing: { turnStaleMs: 2_000, turnJobReplacedAfterMs: 60_000 } as never,
  });

  await sweep();

  expect(queued).toEqual([lost.waiting[0]?.turnId]);
});
