import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { claimOf } from '../../src/events/claims.ts';
import { createDeliverySweeps } from '../../src/events/sweep.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { createNotTakenSweep, createTurnSweep } from '../../src/turns/sweep.ts';
import { createFeed } from '../kit/feed.ts';
import { anAssistant } from '../support/builders.ts';
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

const head = (assistantId: string, since: Date) => {
  const turnId = randomUUID();
  const waiting = [{ turnId, acceptedAt: since }];
  return { _id: randomUUID() as never, conversationId: randomUUID(), assistantId, headSince: since, waiting };
};
type Head = ReturnType<typeof head>;
const turnIdsOf = (heads: Head[]) => heads.flatMap(({ waiting }) => waiting.map(({ turnId }) => turnId));

/** A sweep of these heads alone, and the turns whose jobs it restores. */
const aTurnSweep = async (heads: Head[], leased: Head[] = []) => {
  await conversations().deleteMany({ 'waiting.0': { $exists: true } });
  await conversations().insertMany(heads);
  const restored: string[] = [];
  const sweep = createTurnSweep({
    conversations: stack.service.conversations,
    leases: { findLeased: async () => new Set(turnIdsOf(leased)) } as never,
    turnQueue: {
      byPartition: async (items) => [{ items, oldestWaitingAt: null }] as never,
      enqueue: ({ turnId }) => void restored.push(turnId),
    },
    timing: { turnStaleMs: 20_000, turnJobReplacedAfterMs: 60_000 } as never,
  });
  return { sweep, restored };
};

test('a lost job is restored while more than a thousand older turns are being answered', async () => {
  const answering = Array.from({ length: 1_500 }, (_, nth) => head('slow', at(60 - nth / 100)));
  const lost = [head('neighbour', at(30)), head('slow', at(30))];
  const { sweep, restored } = await aTurnSweep([...answering, ...lost], answering);

  await sweep();

  expect(restored).toEqual(turnIdsOf(lost));
});

test.for([
  { busy: 1, sweeps: 1 },
  { busy: 7, sweeps: 2 },
])(
  'heads without a job of $busy busy assistants delay the job of another by $sweeps sweeps',
  async ({ busy, sweeps }) => {
    const waiting = Array.from({ length: 2_500 }, (_, nth) => head(`busy ${nth % busy}`, at(60 - nth / 100)));
    const own = head('neighbour', at(25));
    const { sweep, restored } = await aTurnSweep([...waiting, own]);

    for (let nth = 0; nth < sweeps; nth += 1) await sweep();
    const first = [...restored];
    for (let nth = sweeps; nth < 4; nth += 1) await sweep();

    expect(first).toContain(own.waiting[0]?.turnId);
    expect(first.length).toBeGreaterThanOrEqual(1_000);
    expect(new Set(restored)).toEqual(new Set(turnIdsOf([...waiting, own])));
  },
);

test('a sweep wakes streams before it ends events, and reads an outbox once for all of its streams', async () => {
  const { assistantId } = await anAssistant(stack);
  const url = 'http://127.0.0.1:9/';
  const { conversations: store, deliveries, endpoints } = stack.service;
  const added = [];
  for (let nth = 0; nth < 3; nth += 1) added.push((await endpoints.addEndpoint(assistantId, { url })).endpoint);
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  const say = (count: number) =>
    feed.say(assistantId, key, Array.from({ length: count }, String), { at: at(3), silent: true });
  const done: string[] = [];
  const read = (of: string) => {
    done.push('read');
    return store.outbox.read(of);
  };
  const { streams: sweep } = createDeliverySweeps({
    ...stack.service,
    conversations: { outbox: { ...store.outbox, read } },
    deliveryQueue: { ...stack.service.deliveryQueue, wake: () => void done.push('woken') },
    eventMaxAgeMs: 600_000,
    timing: TIMING,
  });
  await say(502);

  await sweep();
  const [first, left] = [done.splice(0), await store.outbox.read(key)];
  const [head] = left?.outbox ?? [];
  for (const { endpointId } of added)
    if (left && head) await deliveries.claim(claimOf(left, head, { endpointId, url, body: '', sequence: null }));
  await say(1);
  await sweep();

  expect(first).toEqual(['woken', 'read']);
  expect(left?.outbox).toHaveLength(500);
  // All 501 are one that is being sent and 500 behind it.
  expect(done).toEqual([]);
});
