import { randomUUID } from 'node:crypto';
import { OutgoingMessage } from 'node:http';
import { expect, onTestFinished, test, vi } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { followInbox, type LiveStream } from '../support/live-stream.ts';
import { anOperator } from '../support/operator-client.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
type Client = Awaited<ReturnType<typeof anOperator>>;

const follow = async (client: Client, url = stack.url): Promise<LiveStream> => {
  const stream = await followInbox(url, client);
  onTestFinished(stream.leave);
  return stream;
};
const presencesIn = ({ events }: LiveStream) => events.filter(({ event }) => event === 'presence');

/** Counts the writes of presence to browsers, and the most in one turn of the loop. Each then takes at least `busyMs`. */
const watchWrites = (busyMs = 0) => {
  const seen = { writes: 0, mostInATurn: 0 };
  let inTurn = 0;
  const write = Reflect.get(OutgoingMessage.prototype, 'write') as (
    this: OutgoingMessage,
    ...args: unknown[]
  ) => boolean;
  const spy = vi.spyOn(OutgoingMessage.prototype, 'write').mockImplementation(function (
    this: OutgoingMessage,
    ...args: unknown[]
  ) {
    if (String(args[0]).includes('event: presence')) {
      if (inTurn === 0) setImmediate(() => (inTurn = 0));
      seen.writes += 1;
      inTurn += 1;
      seen.mostInATurn = Math.max(seen.mostInATurn, inTurn);
      const until = performance.now() + busyMs;
      while (performance.now() < until);
    }
    return write.apply(this, args);
  });
  onTestFinished(() => spy.mockRestore());
  return seen;
};

const WATCHERS = 3;
const BROWSERS = 10 * WATCHERS;
const REPORTS = 50;
const GATHERED_MS = 200;

test('many reports are told to each browser a few times a second, and other work runs between the browsers', async () => {
  const assistant = await anAssistant(stack);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const reporters = [await anOperator(stack), await anOperator(stack)];
  const watchers = await Promise.all(Array.from({ length: WATCHERS }, () => anOperator(stack)));
  const streams = await Promise.all(Array.from({ length: BROWSERS }, (_, nth) => follow(watchers[nth % WATCHERS]!)));
  const seen = watchWrites(1);
  const since = performance.now();

  const report = async (client: Client) => {
    for (let nth = 0; nth < REPORTS; nth += 1) {
      const { status } = await client.post(`/conversations/${conversationId}/presence`, {
        state: nth % 2 === 0 ? 'reading' : 'writing',
      });
      expect(status).toBe(204);
    }
  };
  await Promise.all(reporters.map(report));

  await eventually(() => {
    for (const stream of streams) {
      const states = presencesIn(stream).map(({ data }): [unknown, unknown] => [data['operatorId'], data['state']]);
      expect(new Map(states)).toEqual(new Map(reporters.map(({ operatorId }) => [operatorId, 'writing'])));
    }
  });
  const rounds = (performance.now() - since) / GATHERED_MS + 2;
  expect(seen.writes).toBeLessThanOrEqual(rounds * BROWSERS);
  expect(seen.mostInATurn).toBeLessThan(BROWSERS / 2);
});

const PRESENT = 300;

test('a new connection learns in one write who is present', async () => {
  const own = await stack.startApi();
  onTestFinished(own.close);
  const { redis, partitions } = stack.service;
  const key = `${partitions.tags[0]}:presence`;
  const someone = () => ({
    conversationId: randomUUID(),
    assistantId: randomUUID(),
    operatorId: randomUUID(),
    email: 'someone@example.com',
    state: 'reading',
  });
  const present = Array.from({ length: PRESENT }, (_, nth) => [Date.now() + 600_000 + nth, JSON.stringify(someone())]);
  await redis
    .multi()
    .del(key)
    .zadd(key, ...present.flat())
    .exec();
  onTestFinished(async () => void (await redis.del(key)));
  const owner = await anOperator(stack);
  const seen = watchWrites();

  for (const nth of [1, 2]) {
    const stream = await follow(owner, own.url);
    await eventually(() => expect(presencesIn(stream)).toHaveLength(PRESENT));
    expect(seen.writes).toBe(nth);
  }
});
