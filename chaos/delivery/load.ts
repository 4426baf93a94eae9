import { setTimeout as sleep } from 'node:timers/promises';
import type { Service } from '../../src/service.ts';
import { createFeed } from '../../test/kit/feed.ts';
import type { Random } from '../../test/kit/random.ts';

const CONVERSATIONS = 1_500;
/** The number of events kept pending, so that a killed worker always has work in flight. */
const BEHIND = 600;
const COUNT_EVERY_MS = 100;
const LANES = 8;

/**
 * Keeps events pending until the load is stopped. The events of a conversation are numbered, so that their order can be
 * checked.
 */
export const startLoad = async (service: Service, { assistants, random }: { assistants: string[]; random: Random }) => {
  const feed = createFeed(service);
  const opened = assistants.map((assistantId) =>
    feed.openConversations(assistantId, CONVERSATIONS / assistants.length),
  );
  const keys = (await Promise.all(opened)).flatMap((some, index) =>
    some.map((key) => ({ key, assistantId: assistants[index] as string, said: 0 })),
  );
  const events = new Set<string>();
  const deliveries = service.mongo.collection('deliveries');
  let stopped = false;

  const speak = async (): Promise<void> => {
    const one = keys[random.below(keys.length)] as (typeof keys)[number];
    const contents = Array.from({ length: 1 + random.below(3) }, () => `${(one.said += 1)} ${'x'.repeat(400)}`);
    const fed = await feed.say(one.assistantId, one.key, contents);
    for (const { eventId } of fed) events.add(eventId);
  };
  const run = async (): Promise<void> => {
    while (!stopped) {
      const until = performance.now() + COUNT_EVERY_MS;
      // The number of events without a record. Every claimed event has a record, so these are unclaimed.
      let behind = events.size - (await deliveries.estimatedDocumentCount());
      for (; behind < BEHIND && !stopped; behind += 2 * LANES) await Promise.all(Array.from({ length: LANES }, speak));
      await sleep(Math.max(0, until - performance.now()));
    }
  };
  const running = run();
  running.catch(() => undefined); // `stop` reports the failure

  return {
    events,
    stop: async (): Promise<void> => {
      stopped = true;
      await running;
    },
  };
};

export type Load = Awaited<ReturnType<typeof startLoad>>;
