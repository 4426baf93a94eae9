import { setTimeout as sleep } from 'node:timers/promises';
import { createFeed } from '../../test/kit/feed.ts';
import { ascending, quantile } from '../../test/kit/quantiles.ts';
import type { Parley } from '../../test/kit/parley.ts';
import { nowMs, type Sink } from '../../test/kit/sink.ts';

/** The content of an event. With its envelope, the body of the event has 600 bytes. */
const CONTENT = 'x'.repeat(365);
const ENDPOINTS = 10;
const EVENTS_A_LINE = 5;
const PLANT_AT_ONCE = 200;
const ARRIVE_WITHIN_MS = 30_000;

type Conversation = { assistantId: string; key: string };

/** Creates ten assistants with one endpoint each, and conversations of these assistants that can announce events. */
export const openEventFeed = async (parley: Parley, sink: Sink) => {
  const feed = createFeed(parley.service);
  const assistantIds: string[] = [];
  for (let nth = 0; nth < ENDPOINTS; nth += 1) {
    assistantIds.push((await parley.addAssistant([sink.url])).assistantId);
  }

  const openTalks = async (count: number): Promise<Conversation[]> => {
    const each = await Promise.all(
      assistantIds.map(async (assistantId) => {
        const keys = await feed.openConversations(assistantId, Math.ceil(count / ENDPOINTS));
        return keys.map((key) => ({ assistantId, key }));
      }),
    );
    // The list alternates between the assistants, so that all endpoints get events at the same time.
    return (each[0] ?? []).flatMap((_, index) => each.flatMap((conversations) => conversations[index] ?? []));
  };

  const untilArrived = async (count: number): Promise<void> => {
    const until = performance.now() + ARRIVE_WITHIN_MS;
    while ((await sink.count()) < count) {
      if (performance.now() > until) throw new Error(`only ${await sink.count()} of ${count} events arrived`);
      await sleep(20);
    }
  };

  return {
    openTalks,

    /** Stores `count` events, five per conversation, then wakes the worker. Returns how many arrived per second. */
    drain: async (count: number): Promise<number> => {
      const conversations = await openTalks(count / EVENTS_A_LINE);
      const contents = Array.from({ length: EVENTS_A_LINE }, () => CONTENT);
      await sink.take();
      for (let start = 0; start < conversations.length; start += PLANT_AT_ONCE) {
        const some = conversations.slice(start, start + PLANT_AT_ONCE);
        await Promise.all(some.map(({ assistantId, key }) => feed.say(assistantId, key, contents, { silent: true })));
      }
      const startedAt = nowMs();
      for (const { key, assistantId } of conversations) parley.service.deliveryQueue.wake({ _id: key, assistantId });
      await untilArrived(conversations.length * EVENTS_A_LINE);
      const arrivals = await sink.take();
      const last = arrivals.reduce((latest, [, at]) => Math.max(latest, at), 0);
      return arrivals.length / ((last - startedAt) / 1000);
    },

    /**
     * Stores events at a fixed rate. For each event, returns two times in ms: from the planned time to the arrival, and
     * from storing to the arrival.
     */
    stream: async (conversations: Conversation[], perSecond: number, seconds: number) => {
      const count = Math.round(perSecond * seconds);
      const offset = nowMs() - performance.now();
      await sink.take();
      const startedAt = nowMs() + 50;
      const announced: Promise<{ eventId: string; dueAt: number; storedAt: number }>[] = [];
      while (announced.length < count) {
        const dueAt = startedAt + (announced.length * 1000) / perSecond;
        if (nowMs() < dueAt) {
          await sleep(1);
          continue;
        }
        const { assistantId, key } = conversations[announced.length % conversations.length] as Conversation;
        const toTimes = ([event]: Awaited<ReturnType<typeof feed.say>>) => ({
          eventId: event?.eventId ?? '',
          dueAt,
          storedAt: (event?.committedAt ?? 0) + offset,
        });
        announced.push(feed.say(assistantId, key, [CONTENT]).then(toTimes));
      }
      const times = await Promise.all(announced);
      await untilArrived(count);
      const arrivedAt = new Map(await sink.take());
      const latencies = (from: 'dueAt' | 'storedAt'): number[] =>
        ascending(times.map((one) => (arrivedAt.get(one.eventId) ?? Number.POSITIVE_INFINITY) - one[from]));
      const quantiles = (sorted: number[]) => ({
        p50: quantile(sorted, 0.5),
        p95: quantile(sorted, 0.95),
        p99: quantile(sorted, 0.99),
      });
      return { due: quantiles(latencies('dueAt')), stored: quantiles(latencies('storedAt')) };
    },

    body: JSON.stringify({ event: 'message.received', content: 'x'.repeat(600 - 47) }),
  };
};
