import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { PAGE_SIZE, type StoredConversation, type StoredPage } from '../../src/conversations/conversation.ts';
import { anAssistant, anEntry, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

/** No worker runs while turns are accepted. Then a worker with the test's engine answers them. */
const stack = useStack({ replyWorkers: 0 });

const entry = (question: string, answer: string) => anEntry({ question, answer });
const KNOWLEDGE = [
  entry('Can I pay by card in the shop?', 'The answer to card.'),
  entry('Can I pay by cash in the shop?', 'The answer to cash.'),
  entry('When are you open?', 'From nine to five.'),
];

type Accepted = { conversationId: string; turnId: string };

const acceptAll = async ({ call }: TestAssistant, session_id: string, messages: string[]): Promise<Accepted[]> => {
  const accepted: Accepted[] = [];
  for (const message of messages) {
    const headers = { Prefer: 'respond-async' };
    const { status, body } = await call<Accepted>('/api/v1/chat', {
      body: { session_id, message, language: 'en' },
      headers,
    });
    expect(status).toBe(202);
    accepted.push(body);
  }
  return accepted;
};

const stored = async (conversationId: string) => {
  const { mongo } = stack.service;
  const conversation = await mongo.collection<StoredConversation>('conversations').findOne({ conversationId });
  const pages = await mongo.collection<StoredPage>('messages').find({ conversationId }).sort({ _id: 1 }).toArray();
  if (!conversation) throw new Error('the conversation is gone');
  return { conversation, pages };
};

const answered = (conversationId: string) =>
  eventually(async () => {
    const now = await stored(conversationId);
    expect(now.conversation.waiting).toEqual([]);
    return now;
  });

/** Counts the leased turns. Only the first turn of a commit is leased. */
const countLeased = async (turns: Accepted[]): Promise<number> => {
  const keys = turns.map(({ turnId }) => `{${stack.env['REDIS_PREFIX']}-0}:lease:${turnId}`);
  return stack.service.redis.exists(...keys);
};

const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);

test('pending turns of a session are each answered after the one before, and stored together', async () => {
  const assistant = await anAssistant(stack, { knowledge: KNOWLEDGE });
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  const turns = await acceptAll(assistant, randomUUID(), [
    'pay in the shop',
    'yes',
    'When are you open?',
    'I want to talk to a human',
    'When are you open?!',
    'are you there?',
  ]);
  const conversationId = turns[0]?.conversationId as string;

  const worker = await stack.startReplyWorker();
  await answered(conversationId);
  const { body } = await assistant.history(conversationId);
  await receiver.waitFor((all) =>
    all.some(({ json }) => (json as { event: string }).event === 'conversation.escalated'),
  );

  const said = body.messages.filter(({ role }) => role !== 'user').map(({ role, content }) => [role, content]);
  expect(said.slice(1, 3)).toEqual([
    ['assistant', 'The answer to card.'],
    ['assistant', 'From nine to five.'],
  ]);
  // The holding text is stored once. It is also the reply to later messages.
  expect(said.slice(3).map(([role]) => role)).toEqual(['assistant', 'system']);
  expect(body.status).toBe('escalated');
  expect(body.messages.map(({ seq }) => seq)).toEqual([1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7]);
  const told = await Promise.all(
    turns.map(({ turnId }) => assistant.call<{ messageId: string }>(`/api/v1/turns/${turnId}`)),
  );
  expect(new Set(told.slice(3).map((one) => one.body.messageId)).size).toBe(1);
  expect(await countLeased(turns)).toBe(2); // five, and the last that stayed
  const escalations = receiver.received.filter(
    ({ json }) => (json as { event: string }).event === 'conversation.escalated',
  );
  expect(escalations).toHaveLength(1);
  await worker.close();
});

test('a head whose first try was interrupted is answered alone', async () => {
  const assistant = await anAssistant(stack, { knowledge: KNOWLEDGE });
  const turns = await acceptAll(
    assistant,
    randomUUID(),
    numbers(1, 4).map((number) => `question ${number}?`),
  );
  const [head] = turns as [Accepted];
  await stack.service.redis.set(`{${stack.env['REDIS_PREFIX']}-0}:tries:${head.turnId}`, '1', 'PX', 60_000);

  const worker = await stack.startReplyWorker();
  await answered(head.conversationId);

  expect(await countLeased(turns)).toBe(3); // the head; the second with the third; the last
  await worker.close();
});

/** The engine is as quick as the retrieval engine, except for held messages. */
const quick = aScriptedEngine(() => ({}), { needsProvider: () => false, answersImmediately: () => true });

test('an accepted turn is always found, also while all pending turns are committed at once', async () => {
  const assistant = await anAssistant(stack);
  const session = randomUUID();
  const named = (name: string, count: number) => numbers(1, count).map((number) => `${session} ${name} ${number}`);
  const turns = await acceptAll(assistant, session, named('one', 17));
  const conversationId = turns[0]?.conversationId as string;
  // The first worker stops after fifteen turns. The second worker begins with a full page and many pending turns.
  const goOn = quick.hold(`${session} one 15`);
  const first = await stack.startReplyWorker(quick.engine);
  await eventually(() => expect(quick.asked).toContain(`${session} one 15`));
  const stopped = first.close();
  goOn();
  await stopped;
  expect((await stored(conversationId)).conversation.seq).toBe(15);
  turns.push(...(await acceptAll(assistant, session, named('two', 18))));
  const end = quick.hold(`${session} two 18`);

  const second = await stack.startReplyWorker(quick.engine);
  await eventually(async () => expect((await stored(conversationId)).conversation.waiting).toHaveLength(1));
  const looked = await Promise.all(turns.map(({ turnId }) => assistant.call(`/api/v1/turns/${turnId}`)));
  end();
  await answered(conversationId);

  expect(looked.map(({ status }) => status)).toEqual(turns.map(() => 200));
  await second.close();
});

/** A conversation with one turn, and a worker that answers immediately. */
const aConversation = async () => {
  const assistant = await anAssistant(stack);
  const session = randomUUID();
  const worker = await stack.startReplyWorker(quick.engine);
  const [first] = await acceptAll(assistant, session, ['hello']);
  const { conversationId } = first as Accepted;
  await answered(conversationId);
  return { assistant, session, worker, conversationId };
};

test('an operator and a visitor who alternate leave no more history in the document than others', async () => {
  const { assistant, session, worker, conversationId } = await aConversation();
  await assistant.call(`/api/v1/conversations/${conversationId}/escalate`, { body: {} });
  const where = { conversationId };

  for (const round of numbers(1, sized({ everyday: 24, long: 40 }))) {
    // Visitors' messages have the even numbers, so each full page is stored by an operator's message.
    await stack.service.conversations.transitions.replyAsOperator(where, `operator ${round}`);
    await acceptAll(assistant, session, [`visitor ${round}`]);
    await answered(conversationId);
  }

  const { conversation } = await stored(conversationId);
  expect(conversation.recent.length).toBeLessThan(28 + PAGE_SIZE);
  expect(conversation.recent.length).toBeGreaterThanOrEqual(20);
  await worker.close();
});

test('after many turns each number is stored once, and the document keeps few', async () => {
  const assistant = await anAssistant(stack, { knowledge: KNOWLEDGE });
  const session = randomUUID();
  const worker = await stack.startReplyWorker();
  let conversationId = '';
  for (const round of numbers(1, 5)) {
    const turns = await acceptAll(
      assistant,
      session,
      numbers(1, 13).map((number) => `When are you open? ${round}.${number}`),
    );
    conversationId = turns[0]?.conversationId as string;
    await answered(conversationId);
    if (round === 2) await assistant.call(`/api/v1/conversations/${conversationId}/escalate`, { body: {} });
    if (round === 3) {
      const where = { conversationId };
      await stack.service.conversations.transitions.handBack(where);
    }
  }
  const { conversation, pages } = await answered(conversationId);
  const { body } = await assistant.history(conversationId);

  const inDocument = Object.keys(conversation.texts).map(Number);
  const inPages = pages.flatMap(({ entries }) => entries.map(({ seq }) => seq));
  expect(conversation.seq).toBe(5 * 13 + 2);
  expect([...inPages, ...inDocument]).toEqual(numbers(1, conversation.seq));
  expect(pages.every(({ entries }) => entries.length === PAGE_SIZE)).toBe(true);
  expect(conversation.storedTo).toBe(inPages.at(-1));
  // A full page moves out of the document only at the next write, so the document may contain one page plus the turns
  // of one commit.
  expect(inDocument.length).toBeLessThan(PAGE_SIZE + 20);
  expect(conversation.recent.length).toBeGreaterThanOrEqual(20);
  expect(conversation.recent.length).toBeLessThan(28 + PAGE_SIZE + 20);
  expect(conversation.recent.at(-1)?.seq).toBe(conversation.seq);
  expect(body.messages.filter(({ role }) => role === 'user')).toHaveLength(5 * 13);
  await worker.close();
});
