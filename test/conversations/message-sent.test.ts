import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { chatConversationOperations } from '../../src/conversations/http.ts';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import type { EventKind } from '../../src/conversations/event.ts';
import { anAssistant, type HistoryBody } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { useStack } from '../support/stack.ts';

const LONG = '😀x'.repeat(4_000);
const ACTIONS = [{ label: 'Directions', type: 'link' as const, payload: '/directions' }];

/** The engine writes long replies, except to `short…`. */
const { engine, hold } = aScriptedEngine(({ message }) => ({
  suggestedActions: message === 'where' ? ACTIONS : [],
  ...(message === 'human' && { escalate: 'user_requested' }),
  ...(!message.startsWith('short') && { text: `${message} ${LONG}` }),
}));

const stack = useStack({ engine });

type Event = { event: string; event_id: string; payload: Record<string, unknown> & { seq: number; content: string } };
const eventsOf = ({ received }: Receiver): Event[] => received.map(({ json }) => json as Event);
const sentTo = (receiver: Receiver): Event[] => eventsOf(receiver).filter(({ event }) => event === 'message.sent');
const kindsOf = (receiver: Receiver): string[] => eventsOf(receiver).map(({ event }) => event);

/** What the history says that `message.sent` must have carried. */
const expectedOf = ({ messages }: HistoryBody) =>
  messages
    .filter(({ role }) => role !== 'user')
    .map(({ messageId, seq, role, content }) => [messageId, seq, role, content]);
const carriedBy = (receiver: Receiver) =>
  sentTo(receiver).map(({ payload }) => [payload.message_id, payload.seq, payload.role, payload.content]);

const aConversation = async (events: EventKind[] = ['message.received', 'conversation.escalated', 'message.sent']) => {
  const assistant = await anAssistant(stack);
  const receiver = await openReceiver();
  const { endpoints } = stack.service;
  const { endpoint } = await endpoints.addEndpoint(assistant.assistantId, { url: receiver.url, events });
  const session_id = randomUUID();
  const say = (message: string, rest?: object) => assistant.chat({ session_id, message }, rest);
  const { conversationId } = (await say('short hello')).body;
  const record = async () => (await assistant.history(conversationId)).body;
  const received = (count: number) => eventually(() => expect(sentTo(receiver)).toHaveLength(count));
  return {
    ...assistant,
    receiver,
    endpoint,
    session_id,
    conversationId,
    where: { conversationId },
    say,
    record,
    received,
  };
};

const storedOf = async (conversationId: string): Promise<StoredConversation | null> =>
  stack.service.mongo.collection<StoredConversation>('conversations').findOne({ conversationId });

test('a reply, an operator’s message and the system messages are sent whole, in the order of the history', async () => {
  const { receiver, say, record, where, conversationId, received } = await aConversation();
  const { transitions } = stack.service.conversations;

  await say('where');
  await transitions.escalate(where, { reason: 'angry' });
  await say('anybody?');
  await say('hello?');
  await transitions.replyAsOperator(where, LONG);
  await transitions.handBack(where);
  await received(6);

  const history = await record();
  expect(carriedBy(receiver)).toEqual(expectedOf(history));
  expect(history.messages.map(({ role }) => role).join(' ')).toBe(
    'user assistant user assistant system user assistant user operator system',
  );
  expect(kindsOf(receiver).join(' ')).toBe(
    'message.received message.sent message.received message.sent conversation.escalated message.sent ' +
      'message.received message.sent message.received message.sent message.sent',
  );
  const [, second] = sentTo(receiver);
  const reply = history.messages.filter(({ role }) => role === 'assistant')[1];
  expect(second?.payload).toEqual({
    conversation_id: conversationId,
    message_id: reply?.messageId,
    turn_id: reply?.turnId,
    seq: 2,
    role: 'assistant',
    content: `where ${LONG}`,
    suggested_actions: ACTIONS,
    channel: 'api',
    language: 'en',
  });
  expect(
    sentTo(receiver)
      .slice(2)
      .map(({ payload }) => [payload.turn_id, payload.language]),
  ).toEqual([
    [null, 'en'],
    [expect.any(String), 'en'],
    [null, 'en'],
    [null, 'en'],
  ]);
});

test('an endpoint that wants every event gets no message.sent, and its conversation stores none', async () => {
  const { receiver, say, where, conversationId } = await aConversation([]);

  await say('human');
  await stack.service.conversations.transitions.replyAsOperator(where, 'I am here');
  await stack.service.conversations.transitions.resolve(where, randomUUID());
  await receiver.waitFor(() => kindsOf(receiver).includes('conversation.resolved'));

  expect(kindsOf(receiver)).toEqual([
    'conversation.created',
    'message.received',
    'message.received',
    'conversation.escalated',
    'conversation.resolved',
  ]);
  await eventually(async () => expect((await storedOf(conversationId))?.outbox).toEqual([]));
});

test('a joined and a replayed turn give one message.sent, and so does the handoff of the assistant', async () => {
  const { receiver, say, record, received } = await aConversation();
  const release = hold('short wait');

  const both = [say('short wait'), say('short wait')];
  await eventually(async () => expect((await record()).messages.at(-1)?.content).toBe('short wait'));
  release();
  const [one, other] = await Promise.all(both);
  const replayed = await say('short wait');
  await say('human');
  await received(4);

  expect([one?.body, replayed.body]).toEqual([other?.body, other?.body]);
  expect(carriedBy(receiver)).toEqual(expectedOf(await record()));
  expect(kindsOf(receiver).slice(-4)).toEqual([
    'message.received',
    'message.sent',
    'conversation.escalated',
    'message.sent',
  ]);
});

test('twenty turns that are committed together are sent in order, and the outbox holds no texts', async () => {
  const { receiver, say, record, endpoint, conversationId, received } = await aConversation();
  await received(1);
  // The receiver asks for time, so that the events stay in the outbox.
  await stack.service.endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });
  const release = hold('first');
  const turns = Array.from({ length: 20 }, (_, at) => (at === 0 ? 'first' : `turn ${at}`));
  for (const message of turns) await say(message, { headers: { Prefer: 'respond-async' } });
  release();
  await eventually(async () => expect((await record()).messages).toHaveLength(42));

  const outbox = (await storedOf(conversationId))?.outbox ?? [];
  const pending = outbox.filter(({ event }) => event === 'message.sent');
  expect(pending).toHaveLength(20);
  expect(JSON.stringify(pending).length).toBeLessThan(20 * 500);

  await stack.service.endpoints.resumeEndpoint(endpoint.endpointId);
  await received(21);
  expect(carriedBy(receiver)).toEqual(expectedOf(await record()));
});

test('a message that could not be sent is recorded whole, so that a person can send it again', async () => {
  const { say, endpoint, where, received } = await aConversation(['message.sent']);
  await received(1);
  const { endpoints, deliveries, conversations } = stack.service;
  await endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });
  await say('where');
  await conversations.transitions.replyAsOperator(where, LONG);
  await endpoints.setEnabled(endpoint.endpointId, false);

  const records = await eventually(async () => {
    const { deliveries: found } = await deliveries.listRecords({
      assistantId: endpoint.assistantId,
      outcome: 'not_sent',
    });
    expect(found).toHaveLength(2);
    return found;
  });

  const whole = await deliveries.readByIds(records.map(({ _id }) => _id));
  const contents = [...whole.values()].map(({ body }) => (JSON.parse(body ?? '') as Event).payload.content);
  expect(contents.toSorted()).toEqual([`where ${LONG}`, LONG].toSorted());
});

test('the pending messages of an erased conversation are not sent', async () => {
  const { say, endpoint, receiver, conversationId, callOperation, received } = await aConversation(['message.sent']);
  await received(1);
  await stack.service.endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });
  await say('short secret');

  await callOperation(chatConversationOperations.erase, { params: { id: conversationId } });
  await stack.service.endpoints.resumeEndpoint(endpoint.endpointId);
  await say('short again');
  await received(2);

  expect(sentTo(receiver).map(({ payload }) => payload.content)).toEqual(['echo: short hello', 'echo: short again']);
});
