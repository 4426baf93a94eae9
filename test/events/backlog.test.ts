import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { OUTBOX_INDEXES } from '../../src/conversations/conversation.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { profileStatements } from '../support/profile.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

/** A hanging send lasts longer than the test, even on a busy machine. */
const DEADLINE_MS = 120_000;
const stack = useStack({
  deliveryWorkers: 0,
  env: { SHUTDOWN_DEADLINE_MS: String(DEADLINE_MS + 5_000) },
  sending: { deadlineMs: DEADLINE_MS },
  timing: {
    deliveryDeadlineMs: DEADLINE_MS,
    writeBeforeMs: DEADLINE_MS + 2_000,
    claimLostMs: DEADLINE_MS + 3_000,
    recordForMs: DEADLINE_MS + 3_000,
    claimEndedWithinMs: DEADLINE_MS + 5_000,
  },
});

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => String(from + index));

/** A receiver that answers the first request only after `release`. */
const aHangingReceiver = async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const receiver = await openReceiver({
    respond: async (_, nth) => {
      if (nth === 1) await promise;
      return {};
    },
  });
  return { receiver, release: resolve };
};

const countEnds = async (assistantId: string) => {
  const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
  const byKind = Map.groupBy(rows, ({ outcome, errorKind }) => String(errorKind ?? outcome));
  return Object.fromEntries([...byKind].map(([kind, some]) => [kind, some.length]));
};

const readOutbox = async (assistantId: string) => {
  const row = await stack.service.mongo.collection('conversations').findOne({ assistantId });
  return (row?.outbox ?? []) as { payload: { content: string } }[];
};

test('the bound holds without a delivery worker, and the remaining events are sent once one starts', async () => {
  const { assistantId } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);

  const EVENTS = sized({ everyday: 550, long: 800 });
  const ended = EVENTS - 500;
  await feed.say(assistantId, key, numbers(0, EVENTS));
  // Waits until the reply worker's sweep has ended the oldest events.
  await eventually(async () => expect(await readOutbox(assistantId)).toHaveLength(500));
  const ends = await countEnds(assistantId);
  const worker = await stack.startDeliveryWorker();
  await receiver.waitFor((all) => all.length >= 20);
  await worker.close();
  const atClose = receiver.received.length;
  const left = await readOutbox(assistantId);

  expect(ends).toEqual({ backlog: ended });
  expect(receiver.received.map(contentOf)).toEqual(numbers(ended, ended + atClose));
  // The worker was stopped in the middle of its stream. The events that it sent are recorded, and the remaining events
  // are unclaimed.
  expect(await countEnds(assistantId)).toEqual({ backlog: ended, delivered: atClose });
  expect(left.map(({ payload }) => payload.content)).toEqual(numbers(ended + atClose, EVENTS));
});

/** How many events are said, and then stored, before the times are measured, and how many there are in the end. */
const { SAID, STORED, ALL } = sized({
  everyday: { SAID: 6, STORED: 505, ALL: 515 },
  long: { SAID: 21, STORED: 590, ALL: 610 },
});

test('beyond 500 pending events the oldest end, also behind one that is being sent, and chat still works', async () => {
  const worker = await stack.startDeliveryWorker();
  const { assistantId, chat } = await anAssistant(stack);
  const { receiver, release } = await aHangingReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events: ['message.received'] });
  const session_id = randomUUID();
  const other = await anAssistant(stack);
  const time = async (answering: Promise<{ status: number }>): Promise<number> => {
    const startedAt = performance.now();
    expect((await answering).status).toBe(200);
    return performance.now() - startedAt;
  };
  const say = (message: string) => time(chat({ session_id, message }));

  await say('0');
  await receiver.waitFor((all) => all.length >= 1);
  for (const number of numbers(1, SAID)) await say(number);
  const row = await stack.service.mongo.collection('conversations').findOne({ assistantId });
  const feed = createFeed(stack.service);
  await feed.say(assistantId, String(row?._id), numbers(SAID, STORED));
  const hot: number[] = [];
  const calm: number[] = [];
  for (const number of numbers(STORED, ALL)) {
    hot.push(await say(number));
    calm.push(await time(other.chat({ session_id, message: number })));
  }
  // The test waits, because an event is removed from its outbox only a moment after it has ended.
  await eventually(async () => expect(await readOutbox(assistantId)).toHaveLength(501));
  const ends = await countEnds(assistantId);
  release();
  const sent = sized({ everyday: 20, long: 50 });
  await receiver.waitFor((all) => all.length >= sent);
  await worker.close();

  expect(ends.backlog).toBe(ALL - 501);
  expect(receiver.received.slice(0, sent).map(contentOf)).toEqual(['0', ...numbers(ALL - 500, ALL - 501 + sent)]);
  const median = (times: number[]) => times.toSorted((a, b) => a - b)[times.length >> 1] as number;
  // Every day, other files use the machine too.
  expect(median(hot)).toBeLessThan(median(calm) + atPace(sized({ everyday: 500, long: 50 })));
  expect(median(calm)).toBeLessThan(atPace(500));
});

test('new events of a full stream read hardly any of those that wait, and the oldest still end', async () => {
  const worker = await stack.startDeliveryWorker();
  const { assistantId } = await anAssistant(stack);
  const { promise, resolve: release } = Promise.withResolvers<void>();
  const receiver = await openReceiver({ respond: () => promise.then(() => ({})) });
  const { endpoints, queues } = stack.service;
  const ENDPOINTS = 5;
  for (let nth = 0; nth < ENDPOINTS; nth += 1) await endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  await feed.say(assistantId, key, ['0']);
  await receiver.waitFor((all) => all.length === ENDPOINTS);
  await feed.say(assistantId, key, numbers(1, 501), { silent: true });

  const NEW = 20;
  const statements = await profileStatements(stack, async () => {
    for (const number of numbers(501, 501 + NEW)) {
      await feed.say(assistantId, key, [number]);
      await eventually(async () =>
        expect(await queues.deliveries.countJobs()).toMatchObject({ waiting: 0, active: 0 }),
      );
    }
  });
  await eventually(async () => expect(await readOutbox(assistantId)).toHaveLength(501));
  const ends = await countEnds(assistantId);
  release();
  await worker.close();

  const whole = statements.filter(({ command }) => (command['projection'] as { outbox?: unknown })?.outbox === 1);
  const sweeps = statements.filter(({ command }) => command['hint'] === OUTBOX_INDEXES.full);
  expect(whole.length).toBeLessThanOrEqual(sweeps.length);
  expect(ends).toEqual({ sending: ENDPOINTS, backlog: ENDPOINTS * NEW });
});
