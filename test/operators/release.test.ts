import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import { createReleaseSweep } from '../../src/inbox/assignees.ts';
import { type Operator } from '../../src/operators/operator.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

test('of one operator whose conversations cannot be read, no other operator’s wait', async () => {
  const assistantId = randomUUID();
  const disabled = (operatorId: string) => ({ operator: { operatorId, disabled: true } as Operator, changedAt: null });
  const started: string[] = [];
  const released: string[] = [];
  const { transitions } = stack.service.conversations;
  const sweep = createReleaseSweep({
    conversations: {
      findAssigned: async ({ operatorId }) => {
        if (operatorId === 'silent') throw new Error('no answer in time');
        return operatorId === 'holder' ? ['held'] : [];
      },
      transitions: {
        ...transitions,
        startTakeBy: async ({ conversationId }) => {
          started.push(conversationId);
          return transitions.startTakeBy({ conversationId });
        },
      },
    },
    operators: {
      findUnreleased: async () => ['silent', 'holder', 'free'].map(disabled),
      markReleased: async (operatorId) => void released.push(operatorId),
    },
    listIdsWithTakeWithin: async () => [assistantId],
  });

  await expect(sweep()).rejects.toThrow('no answer in time');

  expect([started, released]).toEqual([['held'], ['free']]);
});

test('a sweep handles the escalations of each operator for a while, and ends', async () => {
  const started: string[] = [];
  const sweep = createReleaseSweep({
    conversations: {
      findAssigned: async ({ operatorId }) => Array.from({ length: operatorId === 'last' ? 1 : 200 }, () => operatorId),
      transitions: {
        ...stack.service.conversations.transitions,
        startTakeBy: async ({ conversationId }) => {
          started.push(conversationId);
          await sleep(50);
          throw new Error('it changes too fast');
        },
      },
    },
    operators: {
      findUnreleased: async () =>
        ['a', 'b', 'c', 'last'].map((operatorId) => ({
          operator: { operatorId, disabled: true } as Operator,
          changedAt: null,
        })),
      markReleased: async () => undefined,
    },
    listIdsWithTakeWithin: async () => [randomUUID()],
    releasedForMs: 120,
  });

  await sweep();

  expect(new Set(started)).toEqual(new Set(['a', 'b', 'c', 'last']));
  expect(started.length).toBeLessThanOrEqual(3 * 3 + 1);
});

test('one statement reads few of an operator’s escalations, because each may be large', async () => {
  const { mongo, conversations } = stack.service;
  const assistant = await anAssistant(stack);
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const rows = mongo.collection<StoredConversation>('conversations');
  const one = await rows.findOne({ conversationId });
  if (!one) throw new Error('there is no such conversation');
  const operatorId = randomUUID();
  const copy = (more: Partial<StoredConversation> = {}): StoredConversation => {
    const id = randomUUID();
    const own = { _id: id, conversationId: id, sessionId: id, status: 'escalated' as const, assigneeId: operatorId };
    return { ...one, ...own, waiting: [], outbox: [], ...more };
  };
  const timed = Array.from({ length: 120 }, () => copy({ takeBy: new Date(Date.now() + 3_600_000) }));
  const reminded = copy({ remindedAt: new Date() });
  const played = copy({ channel: 'playground' });
  const wanted = [copy(), copy(), copy()];
  await rows.insertMany([...timed, reminded, played, ...wanted]);
  const to = { operatorId, assistantIds: [assistant.assistantId] };

  let found: string[] = [];
  const statements = await profileStatements(stack, async () => {
    found = await conversations.findAssigned(to, 200);
  });

  expect(found.toSorted()).toEqual(wanted.map((row) => row.conversationId).toSorted());
  expect(await conversations.findAssigned(to, 2)).toHaveLength(2);
  const reads = statements.filter(
    (read) =>
      collectionIn(read) === 'conversations' &&
      JSON.stringify([read.command, read.originatingCommand]).includes(operatorId),
  );
  expect(reads.length).toBeGreaterThan(1);
  expect(Math.max(...reads.map(({ docsExamined = 0 }) => docsExamined))).toBeLessThanOrEqual(51);
});
