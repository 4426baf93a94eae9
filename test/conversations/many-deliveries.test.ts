import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { conversationDataOperations } from '../../src/inbox/http/conversations.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { anOperator } from '../support/operator-client.ts';
import { collectionIn, profileStatements, type Profiled } from '../support/profile.ts';
import { useOpened, useStack } from '../support/stack.ts';

// A tenant may have tens of thousands of deliveries of one conversation, each with its texts.

const stack = useStack({ deliveryWorkers: 0 });
const owner = useOpened(() => anOperator(stack));
type Events = AnswerOf<typeof conversationDataOperations.events>;

const LISTED = 200;
const DAY_MS = 86_400_000;

/** A conversation with events, one delivery each, the newest first. */
const aConversation = async (events: number) => {
  const { assistantId, chat } = await anAssistant(stack);
  const { conversationId } = (await chat(aTurn())).body;
  const endpointId = randomUUID();
  const rows = Array.from({ length: events }, (_, nth) => {
    const eventId = randomUUID();
    const happenedAt = new Date(Date.now() - nth * 1_000);
    return {
      _id: `${eventId}:${endpointId}`,
      eventId,
      endpointId,
      assistantId,
      conversationId,
      url: 'http://127.0.0.1:9/',
      event: 'tag.added',
      redelivery: false,
      outcome: 'delivered',
      status: 200,
      body: 'x'.repeat(1_000),
      worker: null,
      token: null,
      happenedAt,
      createdAt: happenedAt,
      endedAt: happenedAt,
      expiresAt: new Date(Date.now() + DAY_MS),
    };
  });
  const deliveries = stack.service.mongo.collection<{ _id: string }>('deliveries');
  await deliveries.insertMany(rows);
  const read = () => owner.get<Events>(`/conversations/${conversationId}/events`);
  return { conversationId, rows, deliveries, read };
};

/** The statements that read the conversation with its contents, or its deliveries. Others only look who may read it. */
const readsOf = (conversationId: string, sent: Profiled[]): Profiled[] =>
  sent.filter(({ command, originatingCommand: { filter, projection } = command }) => {
    const wanted = filter as { conversationId?: string } | undefined;
    return wanted?.conversationId === conversationId && !Object.hasOwn(Object(projection), 'sessionId');
  });

test('the events of a conversation with many deliveries are read without the older ones', async () => {
  const { conversationId, rows, deliveries, read } = await aConversation(1_000);
  const sentAgain = [rows[0], rows[LISTED]].map((row) => ({ ...row, _id: `${row?._id}:1`, createdAt: new Date() }));
  await deliveries.insertMany(sentAgain);
  let events: Events['events'] = [];

  const sent = await profileStatements(stack, async () => {
    ({ events } = (await read()).body);
  });

  const found = readsOf(conversationId, sent).filter((one) => collectionIn(one) === 'deliveries');
  expect(found.reduce((sum, { docsExamined = 0 }) => sum + docsExamined, 0)).toBe(LISTED);
  // An event that was sent again has all of its deliveries, and its own place.
  expect(events.map(({ eventId }) => eventId)).toEqual(rows.slice(0, LISTED - 1).map(({ eventId }) => eventId));
  expect(events.flatMap((one) => one.deliveries)).toHaveLength(LISTED);
});

test('a caller who asks for the events of a conversation many times reads them one at a time', async () => {
  const { conversationId, read } = await aConversation(1);

  let answered: number[] = [];

  const sent = await profileStatements(stack, async () => {
    answered = (await Promise.all(Array.from({ length: 5 }, read))).map(({ status }) => status);
  });

  expect(answered).toEqual([200, 200, 200, 200, 200]);

  const inTurn = Array.from({ length: answered.length }, () => ['conversations', 'deliveries']).flat();
  expect(readsOf(conversationId, sent).map(collectionIn)).toEqual(inTurn);
});
