import { setTimeout as pause } from 'node:timers/promises';
import { mongo } from 'mongoose';
import { expect, onTestFinished, test } from 'vitest';
import type { StoredDelivery } from '../../src/events/delivery.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { type EventPage, followEvents } from '../kit/event-pages.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { startRealProcess } from '../kit/processes.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const EVENTS_A_SECOND = 500;
const AT_ONCE = 20;
const { CONVERSATIONS, EVENTS, WORKERS, KILLS } = sized({
  everyday: { CONVERSATIONS: 40, EVENTS: 240, WORKERS: 1, KILLS: 1 },
  long: { CONVERSATIONS: 400, EVENTS: 10_000, WORKERS: 2, KILLS: 10 },
});

// The last worker is in this process, and begins once all others are killed.
const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  timing: { endWrittenWithinMs: sized({ everyday: 1_000, long: 5_000 }), sweepEveryMs: 250, eventStaleMs: 500 },
});

type Ended = Pick<StoredDelivery, '_id' | 'outcome' | 'sequence' | 'conversationId'>;

test('readers by long poll, by page and of one outcome get each end once and in order while workers are killed', async () => {
  const { assistantId, apiKey: bearer } = await anAssistant(stack, { knowledge: [] });
  const other = await anAssistant(stack, { knowledge: [] });
  const receiver = await openReceiver({ respond: (_, nth) => ({ status: nth % 10 === 0 ? 500 : 200, delayMs: 10 }) });
  onTestFinished(receiver.close);
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const keys = await feed.openConversations(assistantId, CONVERSATIONS);
  const [deliveries, conversations] = ['deliveries', 'conversations'].map((name) =>
    stack.service.mongo.collection(name),
  );
  const start = async () => {
    const worker = await startRealProcess('delivery', stack.env);
    onTestFinished(() => worker.kill());
    return worker;
  };

  let settledAt = Number.POSITIVE_INFINITY;
  const follow = async (query: Record<string, string>): Promise<EventPage['events']> => {
    const found: EventPage['events'] = [];
    const ids = new Set<string>();
    for await (const { events, readUpTo } of followEvents({ url: stack.url, bearer, ask: request<EventPage> }, query)) {
      found.push(...events);
      for (const { deliveryId } of events) ids.add(deliveryId);
      expect(ids.size).toBe(found.length); // a reader that gets something twice would never come to the end
      if (events.length === 0 && Date.parse(readUpTo) > settledAt) break;
    }
    return found;
  };
  const write = async (): Promise<void> => {
    const begun = performance.now();
    for (let nth = 0; nth < EVENTS; nth += AT_ONCE) {
      const some = Array.from({ length: AT_ONCE }, (_, one) => keys[(nth + one) % CONVERSATIONS] ?? '');
      await Promise.all(some.map((key) => feed.say(assistantId, key, ['hello'])));
      await pause(Math.max(0, begun + (nth / EVENTS_A_SECOND) * 1_000 - performance.now()));
    }
  };
  const kill = async (): Promise<void> => {
    const workers = await Promise.all(Array.from({ length: WORKERS }, start));
    for (let nth = 0; nth < KILLS; nth += 1) {
      const received = (EVENTS * (nth + 1)) / (KILLS + 1);
      await receiver.waitFor((all) => all.length >= received);
      await workers[nth % WORKERS]?.kill();
      if (nth < KILLS - 1) workers[nth % WORKERS] = await start();
    }
    await Promise.all(workers.map((worker) => worker.kill()));
  };
  const reading = Promise.all([
    follow({ wait: '1' }),
    follow({ limit: '50' }),
    follow({ outcome: 'delivered', limit: '50' }),
  ]);
  reading.catch(() => undefined); // its failure is seen below
  await Promise.all([write(), kill()]);
  // The claims of the dead workers would be lost after ten seconds. The test makes them old instead.
  const claimedAt = new mongo.Timestamp({ t: Math.floor(Date.now() / 1000) - 60, i: 1 });
  await deliveries?.updateMany({ outcome: 'sending' }, [{ $set: { claimedAt } }]);
  await stack.startDeliveryWorker();
  await eventually(async () => {
    expect(await conversations?.countDocuments({ 'outbox.0': { $exists: true } })).toBe(0);
    expect(await deliveries?.countDocuments({ endedOn: { $exists: true } })).toBe(EVENTS);
  });
  settledAt = Date.now();
  let isRead = false;
  // The list is complete up to some seconds before the last write of anybody, so somebody goes on writing.
  const goOn = async (): Promise<void> => {
    while (!isRead) {
      await other.chat(aTurn(), { headers: { Prefer: 'respond-async' } });
      await pause(100);
    }
  };
  const [[polled, paged, filtered]] = await Promise.all([reading.finally(() => (isRead = true)), goOn()]);

  const rows = (await deliveries
    ?.find({ assistantId }, { projection: { outcome: 1, sequence: 1, conversationId: 1, endedOn: 1 } })
    .sort({ endedOn: 1, _id: 1 })
    .toArray()) as unknown as Ended[];
  const idsOf = (all: Ended[]): string[] => all.map(({ _id }) => _id);
  const listed = (all: EventPage['events']): string[] => all.map(({ deliveryId }) => deliveryId);
  const outcomes = Map.groupBy(rows, ({ outcome }) => outcome);
  expect([...outcomes.keys()].toSorted()).toEqual(['delivered', 'rejected', 'unknown']);
  expect(listed(polled)).toEqual(idsOf(rows));
  expect(listed(paged)).toEqual(idsOf(rows));
  expect(listed(filtered)).toEqual(idsOf(outcomes.get('delivered') ?? []));
  expect(new Map(polled.map(({ deliveryId, outcome }) => [deliveryId, outcome]))).toEqual(
    new Map(rows.map(({ _id, outcome }) => [_id, outcome])),
  );
  for (const own of Map.groupBy(polled, ({ conversationId }) => conversationId).values())
    expect(own.map(({ sequence }) => sequence)).toEqual(own.map((_, nth) => nth + 1));
});
