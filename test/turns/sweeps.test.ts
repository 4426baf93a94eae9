import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import { claimOf } from '../../src/events/claims.ts';
import { createDeliverySweeps } from '../../src/events/sweep.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { createNotTakenSweep, createTurnSweep } from '../../src/turns/sweep.ts';
import { createFeed } from '../kit/feed.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const conversations = () => stack.service.mongo.collection('conversations');
const at = (secondsAgo: number): Date => new Date(Date.now() - secondsAgo * 1_000);

const notTaken = (assistantId: string, takeBy: Date) => ({
  _id: randomUUID() as never,
  conversationId: randomUUID(),
  assistantId,
  language: 'en',
  takeBy,
});

/** A sweep of what nobody took, and the conversations that it ends. */
const aNotTakenSweep = (onEnd: () => void = () => undefined) => {
  const ended: string[] = [];
  const transitions: Pick<typeof stack.service.conversations.transitions, 'endTakeBy'> = {
    endTakeBy: async ({ conversationId }) => {
      ended.push(conversationId);
      await conversations().updateOne({ conversationId }, { $unset: { takeBy: '' } });
      onEnd();
      return { changed: null } as never;
    },
  };
  const sweep = createNotTakenSweep({
    conversations: { ...stack.service.conversations, transitions: transitions as never },
    findAssistant: async () => null,
    onReminded: async () => undefined,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  return { sweep, ended };
};

test('a thousand escalations of one assistant that nobody took hardly delay one of another', async () => {
  const own = notTaken('neighbour', at(1));
  await conversations().insertMany(Array.from({ length: 1_000 }, () => notTaken('busy', at(60))));
  await conversations().insertOne(own);
  const { sweep, ended } = aNotTakenSweep();

  await sweep();
  const first = [...ended];
  for (let nth = 0; nth < 9; nth += 1) await sweep();

  expect(first.indexOf(own.conversationId)).toBeGreaterThanOrEqual(0);
  expect(first.length).toBeGreaterThanOrEqual(200);
  expect(new Set(ended).size).toBe(1_001);
});

test('a sweep of escalations that take long to end stops after some seconds, and the next one goes on with others', async () => {
  const own = notTaken('neighbour', at(1));
  await conversations().insertMany([...Array.from({ length: 12 }, () => notTaken('busy', at(60))), own]);
  const now = performance.now.bind(performance);
  let lateMs = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + lateMs);
  onTestFinished(() => clock.mockRestore());
  const { sweep, ended } = aNotTakenSweep(() => (lateMs += 2_000));

  await sweep();
  const first = ended.length;
  await sweep();

  // Each takes two seconds.
  expect(first).toBeLessThanOrEqual(3);
  expect(ended.slice(first)).toContain(own.conversationId);
});

const head = (assistantId: string, since: Date, message = '') => {
  const turnId = randomUUID();
  const waiting = [{ turnId, acceptedAt: since, message }];
  return { _id: randomUUID() as never, conversationId: randomUUID(), assistantId, headSince: since, waiting };
};
const largeHead = (assistantId: string, since: Date) => head(assistantId, since, 'long'.repeat(20_000));
type Head = ReturnType<typeof head>;
const turnIdsOf = (heads: Head[]) => heads.flatMap(({ waiting }) => waiting.map(({ turnId }) => turnId));

type RenewHeads = typeof stack.service.conversations.renewHeads;

/** A sweep of these heads alone, and the turns whose jobs it restores. `beforeRenewal`: what MongoDB does to a renewal. */
const aTurnSweep = async (
  heads: Head[],
  leased: Head[] = [],
  beforeRenewal: (...renewed: Parameters<RenewHeads>) => Promise<void> = async () => undefined,
) => {
  await conversations().deleteMany({ 'waiting.0': { $exists: true } });
  await conversations().insertMany(heads);
  const restored: string[] = [];
  const { findStaleHeads, renewHeads } = stack.service.conversations;
  const renewSlowly: RenewHeads = async (renewed) => {
    await beforeRenewal(renewed);
    await renewHeads(renewed);
  };
  const sweep = createTurnSweep({
    conversations: { findStaleHeads, renewHeads: renewSlowly },
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

test('a large head that goes on waiting is found again when it has waited for twice as long, a small one at once', async () => {
  const heads = [largeHead('busy', at(40)), largeHead('busy', at(7_200)), head('busy', at(7_200))];
  const { sweep, restored } = await aTurnSweep(heads);

  await sweep();

  expect(new Set(restored)).toEqual(new Set(turnIdsOf(heads)));
  const foundIn = await Promise.all(
    heads.map(async ({ _id }) => {
      const row = await conversations().findOne<{ headSince: Date }>({ _id });
      return ((row?.headSince.getTime() ?? 0) - Date.now()) / 1_000;
    }),
  );
  expect(foundIn[0]).toBeGreaterThan(20);
  expect(foundIn[0]).toBeLessThan(60);
  expect(foundIn[1]).toBeGreaterThan(200);
  expect(foundIn[1]).toBeLessThan(301);
  expect(foundIn[2]).toBeLessThan(1);
});

test('an assistant whose large heads take long to renew rests after a few, while others have their turns', async () => {
  const large = Array.from({ length: 40 }, (_, nth) => largeHead('busy', at(60 - nth / 100)));
  const others = [head('busy', at(25)), head('neighbour', at(25))];
  const { sweep, restored } = await aTurnSweep([...large, ...others], [], async (renewed) => {
    if (renewed.length > others.length) await sleep(400);
  });

  await sweep();
  await sweep();
  const first = [...restored];
  await eventually(async () => {
    await sweep();
    expect(restored.length).toBeGreaterThan(first.length);
  });

  expect(first).toEqual(turnIdsOf([...others, ...large.slice(0, 8)]));
  expect(new Set(restored).size).toBe(restored.length);
});

test('a failed renewal of one assistant’s heads delays no other’s', async () => {
  const own = head('neighbour', at(25));
  const fails = async (renewed: { assistantId: string }[]) => {
    if (renewed.some(({ assistantId }) => assistantId === 'busy')) throw new Error('silent');
  };
  const many = await aTurnSweep([...Array.from({ length: 200 }, () => head('busy', at(60))), own], [], fails);

  await many.sweep().catch(() => undefined);
  await many.sweep().catch(() => undefined);
  const large = await aTurnSweep([largeHead('busy', at(60)), own], [], fails);
  await large.sweep().catch(() => undefined);

  expect(many.restored).toEqual(turnIdsOf([own]));
  expect(large.restored).toEqual(turnIdsOf([own]));
});

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
