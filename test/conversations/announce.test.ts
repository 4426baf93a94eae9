import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

// Without a delivery worker, every wake-up stays in the queue, and nothing is sent to the endpoint.
const stack = useStack({ deliveryWorkers: 0 });

/** A sweep sends wake-ups only for events that have waited for 2 seconds, so an earlier wake-up is not from a sweep. */
const SOONER_THAN_A_SWEEP_MS = 1_900;

const HANDOFF = 'I want to speak to a human please';

const anAudience = async ({ listens }: { listens: boolean }) => {
  const assistant = await anAssistant(stack);
  if (listens) await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: 'http://127.0.0.1:9/' });
  const session_id = randomUUID();
  const say = (message: string) => assistant.chat(aTurn({ session_id, message }));
  const { conversationId } = (await say('hello')).body;
  const stored = async () => {
    const found = await stack.service.mongo
      .collection<StoredConversation>('conversations')
      .findOne({ conversationId }, { readConcern: 'majority' });
    if (!found) throw new Error('there is no such conversation');
    return found;
  };
  return { ...assistant, say, conversationId, stored };
};

/** The time at which each wake-up of a conversation was added. */
const wakeUpsOf = async (key: string): Promise<number[]> => {
  const jobs = await Promise.all(stack.service.queues.deliveries.queues.map((queue) => queue.getJobs(['waiting'])));
  return jobs
    .flat()
    .filter(({ data }) => data.conversations.includes(key))
    .map(({ timestamp }) => timestamp);
};

/** The time between an event and its wake-up. */
const delayOfWakeUp = (key: string, event: { at: Date } | undefined): Promise<number> =>
  eventually(async () => {
    if (event === undefined) throw new Error('the event was not stored');
    const delays = (await wakeUpsOf(key)).map((at) => at - event.at.getTime()).filter((ms) => ms >= 0);
    expect(delays).not.toEqual([]);
    return Math.min(...delays);
  });

test('an accepted turn, a handoff, and a change by an operator each wake the delivery worker', async () => {
  const { say, conversationId, stored } = await anAudience({ listens: true });
  const { _id: key, outbox } = await stored();
  expect(await delayOfWakeUp(key, outbox?.[0])).toBeLessThan(atPace(SOONER_THAN_A_SWEEP_MS));
  const eventOf = async (kind: string) => (await stored()).outbox?.find(({ event }) => event === kind);

  await say(HANDOFF);
  expect(await delayOfWakeUp(key, await eventOf('conversation.escalated'))).toBeLessThan(
    atPace(SOONER_THAN_A_SWEEP_MS),
  );

  await stack.service.conversations.transitions.resolve({ conversationId }, randomUUID());
  expect(await delayOfWakeUp(key, await eventOf('conversation.resolved'))).toBeLessThan(atPace(SOONER_THAN_A_SWEEP_MS));
});

test('without an enabled endpoint, nothing is announced and no worker is woken', async () => {
  const silent = await anAudience({ listens: false });
  await silent.say(HANDOFF);
  await stack.service.conversations.transitions.resolve({ conversationId: silent.conversationId }, randomUUID());
  const heard = await anAudience({ listens: true });
  const { _id: later, outbox: announced } = await heard.stored();
  await delayOfWakeUp(later, announced?.[0]);

  const { _id: key, outbox } = await silent.stored();

  expect(outbox ?? []).toEqual([]);
  expect(await wakeUpsOf(key)).toEqual([]);
});

test('a playground conversation announces nothing', async () => {
  const { conversationId, stored } = await anAudience({ listens: true });
  const { _id: key } = await stored();
  const { mongo, conversations } = stack.service;
  await mongo
    .collection('conversations')
    .updateOne({ conversationId }, { $set: { channel: 'playground', outbox: [] } });
  const before = await wakeUpsOf(key);

  await conversations.transitions.escalate({ conversationId }, {});
  await conversations.transitions.resolve({ conversationId }, randomUUID());
  await conversations.transitions.addTag({ conversationId }, { tag: 'vip', color: null });
  const heard = await anAudience({ listens: true });
  const { _id: later, outbox: announced } = await heard.stored();
  await delayOfWakeUp(later, announced?.[0]);

  expect((await stored()).outbox).toEqual([]);
  expect(await wakeUpsOf(key)).toEqual(before);
});

test('a long outbox does not hold the texts of its later events, and each is sent with its own', async () => {
  const receiver = await openReceiver();
  const { say, stored, assistantId } = await anAudience({ listens: false });
  const events = ['message.received' as const];
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events });
  const long = (nth: number | string) => `${nth} ${'😀'.repeat(490)}`;
  // Every third message was said before, so it is compared with the earlier ones.
  const messages = Array.from({ length: 70 }, (_, nth) => long(nth % 3 === 2 ? 'again' : nth));

  await eventually(async () => {
    await say(randomUUID());
    expect((await stored()).outbox).toHaveLength(1);
  });
  for (const message of messages) await say(message);

  const { outbox = [] } = await stored();
  expect(outbox).toHaveLength(71);
  const holding = outbox.filter(({ payload }) => 'content' in payload);
  expect(holding).toEqual(outbox.slice(0, 50));
  const worker = await stack.startDeliveryWorker();
  const received = await receiver.waitFor((all) => all.length >= 71);
  expect(received.slice(1).map(contentOf)).toEqual(messages);
  await worker.close();
});
