import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { anAssistant, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { useStack } from '../support/stack.ts';

// The reply worker's own sweeps would compete with the ones that are measured.
const stack = useStack({ deliveryWorkers: 0, replyWorkers: 1 });
const CONVERSATIONS = 300;
const EVENTS = 500;
const endpointIds = Array.from({ length: 10 }, () => randomUUID());
let assistant: TestAssistant;

/** Events that wait for the endpoints of an assistant. Their receivers do not answer. */
const fillOutboxes = async (): Promise<void> => {
  const { mongo } = stack.service;
  const { assistantId } = assistant;
  await assistant.chat(aTurn());
  const conversation = await mongo.collection('conversations').findOne({ assistantId });
  const paused = { reason: 'retry_after', until: new Date(Date.now() + 3_600_000) };
  await mongo.collection('endpoints').insertMany(
    endpointIds.map((_id, place) => ({
      _id,
      place,
      assistantId,
      url: 'https://x.example/',
      enabled: true,
      pause: paused,
    })) as never,
  );
  const at = new Date(Date.now() - 60_000);
  const event = () => ({ eventId: randomUUID(), event: 'message.sent', timestamp: 1, at, endpoints: endpointIds });
  for (let nth = 0; nth < CONVERSATIONS; nth += 50) {
    const some = Array.from({ length: 50 }, () => ({
      ...conversation,
      _id: randomUUID().replaceAll('-', ''),
      conversationId: randomUUID(),
      outbox: Array.from({ length: EVENTS }, event),
    }));
    await mongo.collection('conversations').insertMany(some as never);
  }
};

beforeAll(async () => {
  assistant = await anAssistant(stack, { knowledge: [] });
  await fillOutboxes();
});

test('a sweep reads the first event of each endpoint, and not the others', async () => {
  const { outbox } = stack.service.deliveries;
  const stop = watchLoop();

  const found = await outbox.findStale({ olderThanMs: 1_000, exclude: [], limit: 5_000 });

  expect(await stop()).toBeLessThan(atPace(60));
  expect(found).toHaveLength(CONVERSATIONS);
  expect(found.every(({ outbox: events, isFull }) => events?.length === 1 && !isFull)).toBe(true);
  expect(found[0]?.outbox?.[0]?.endpoints).toEqual(endpointIds);
});

test('a list of deliveries reads a bounded part of the events that wait', async () => {
  const { assistantId } = assistant;
  const made = { name: 'a program', scope: 'read' as const, assistantIds: [assistantId], createdBy: null };
  const { secret: bearer } = await stack.service.tokens.createToken(made);
  const stop = watchLoop();

  const { status, body } = await request<{ deliveries: object[]; nextCursor: string | null }>(
    `${stack.url}/operator/v1/assistants/${assistantId}/deliveries`,
    { bearer },
  );

  expect(await stop()).toBeLessThan(atPace(100));
  expect([status, body.deliveries.length, typeof body.nextCursor]).toEqual([200, 50, 'string']);
});
