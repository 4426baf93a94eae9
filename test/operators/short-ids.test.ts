import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { conversationModels, PAGE_SIZE, type StoredPage } from '../../src/conversations/conversation.ts';
import { pageIdOf } from '../../src/conversations/history.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { anOperator } from '../support/operator-client.ts';
import { addressOf } from '../kit/operations.ts';
import { OPERATIONS } from '../../src/api/operator-routes.ts';
import { collectionIn, examinedBy, type Profiled, profileStatements } from '../support/profile.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

const PAGES = 500;

const onConversations = (one: Profiled): boolean => ['conversations', 'messages'].includes(collectionIn(one));

test('the beginning of an id finds nothing and reads no conversation, at every operation on a conversation or a turn', async () => {
  const owner = await anOperator(stack);
  const { chat } = await anAssistant(stack);
  const conversations = sized({ everyday: 1, long: 30 });
  let conversationId = '';
  for (let count = 0; count < conversations; count += 1) ({ conversationId } = (await chat(aTurn())).body);
  const digits = sized({ everyday: [conversationId.charAt(0)], long: [...'0123456789abcdef'] });
  const { assistantId: empty } = await stack.service.assistants.createAssistant({ name: 'Empty' });
  const body = { name: 'a program', scope: 'manage', assistantIds: [empty] };
  const { secret: bearer } = (await owner.post<{ secret: string }>('/tokens', body)).body;
  const own = OPERATIONS.filter(
    ({ resource, peopleOnly }) => peopleOnly !== true && (resource === 'turn' || resource?.startsWith('conversation')),
  );

  const told = new Set<number>();
  const sent = await profileStatements(stack, async () => {
    for (const id of [...digits, 'g', '0'.repeat(36), '%00'])
      for (const one of own) {
        const path = addressOf(one, { id, tag: 'vip', noteId: '0' });
        const method = one.method.toUpperCase();
        told.add((await request(`${stack.url}/operator/v1${path}`, { method, bearer })).status);
      }
  });

  expect([...told]).toEqual([404]);
  expect(own.length).toBeGreaterThan(10);
  const byPrefix = sent.filter((one) => onConversations(one) && JSON.stringify(one.command).includes('"_id":{"$gte"'));
  expect(byPrefix).toEqual([]);
});

test('an unknown turn reads no page of a long conversation, and an old turn only its own', async () => {
  const { chat, call } = await anAssistant(stack);
  const { conversationId } = (await chat(aTurn())).body;
  const pages = collectionOf<StoredPage>(conversationModels(stack.service.mongo).messages);
  const message = { role: 'user' as const, content: 'old', language: 'en', createdAt: new Date() };
  const entries = (page: number) =>
    Array.from({ length: PAGE_SIZE }, (_, nth) => {
      const turnId = `${conversationId.slice(0, 14)}${randomUUID().slice(14)}`;
      const said = { ...message, turnId, messageId: randomUUID() };
      const reply = { ...said, role: 'assistant' as const, messageId: randomUUID(), content: `reply ${page}` };
      return { seq: 1 + nth + page * PAGE_SIZE, messages: [said, reply] };
    });
  const stored = Array.from({ length: PAGES }, (_, page) => ({
    _id: pageIdOf(conversationId, page + 1),
    conversationId,
    entries: entries(page + 1),
  }));
  await pages.insertMany(stored);
  const old = stored[PAGES / 2]?.entries[3]?.messages[0]?.turnId;
  const unknown = `${conversationId.slice(0, 14)}${randomUUID().slice(14)}`;

  const told: unknown[] = [];
  const sent = await profileStatements(stack, async () => {
    for (const id of [unknown, old]) told.push((await call<{ reply?: string }>(`/api/v1/turns/${id}`)).body.reply);
  });

  expect(told).toEqual([undefined, `reply ${PAGES / 2 + 1}`]);
  const ofConversation = (one: Profiled) => JSON.stringify(one.command).includes(conversationId.slice(0, 14));
  const read = sent.filter((one) => onConversations(one) && ofConversation(one)).map(examinedBy);
  expect(read.length).toBeGreaterThan(0);
  expect(Math.max(...read)).toBeLessThan(10);
});
