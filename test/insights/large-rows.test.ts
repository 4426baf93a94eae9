import { expect, test } from 'vitest';
import { createFeed } from '../kit/feed.ts';
import { anAssistant } from '../support/builders.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';
import { projectOn } from '../support/projection.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** As many as the projection takes in one step. */
const COUNT = 25;
/** Three of these cost more than a step may. */
const LONG = 'kites and umbrellas '.repeat(5_000);

/** Conversations of which a first message is projected, and a second one of this text is not. */
const addConversations = async (text: string): Promise<string[]> => {
  const { mongo } = stack.service;
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const keys = await createFeed(stack.service).openConversations(assistantId, COUNT);
  const conversations = mongo.collection<{ _id: string; conversationId: string }>('conversations');
  const message = (content: string) => [{ role: 'user', content, turnId: null, createdAt: new Date() }];
  const texts = { 1: message('Do you sell kites?'), 2: message(text) };
  await conversations.updateMany({ _id: { $in: keys } }, { $set: { texts, seq: 2, storedTo: 0 } });
  const rows = await conversations.find({ _id: { $in: keys } }).toArray();
  await mongo.collection<{ _id: string }>('search').insertMany(
    rows.map(({ _id: key, conversationId: _id }) => ({
      _id,
      key,
      assistantId,
      session: 'a',
      terms: ['kites'],
      seq: 1,
      updatedAt: new Date(0),
      resolvedAt: null,
    })),
  );
  return keys;
};

/** Projects these conversations. Returns those that were not reached, and how many rows came in each answer. */
const profiled = async (keys: string[]): Promise<{ behind: string[]; returned: number[] }> => {
  let behind: string[] = [];
  const all = await profileStatements(stack, async () => {
    ({ behind } = await projectOn(stack)(keys));
  });
  const reads = all.filter((one) => collectionIn(one) === 'search' && ['query', 'getmore'].includes(one.op));
  return { behind, returned: reads.map(({ nreturned = 0 }) => nreturned) };
};

test('the words of many conversations, which may have a megabyte each, are read a few at a time', async () => {
  const keys = await addConversations('And umbrellas?');

  const { behind, returned } = await profiled(keys);

  expect(behind).toEqual([]);
  expect(returned.reduce((sum, count) => sum + count, 0)).toBe(COUNT);
  expect(Math.max(...returned)).toBeLessThanOrEqual(5);
  const rows = await stack.service.mongo
    .collection('search')
    .find({ key: { $in: keys } })
    .toArray();
  expect(rows.map(({ seq, terms }) => [seq, terms])).toEqual(keys.map(() => [2, ['kites', 'and', 'umbrellas']]));
});

test('the words of conversations for which a step has no room are not read', async () => {
  const keys = await addConversations(LONG);

  const { behind, returned } = await profiled(keys);

  expect(behind).toEqual(keys.slice(3));
  expect(returned.reduce((sum, count) => sum + count, 0)).toBe(5);
});
