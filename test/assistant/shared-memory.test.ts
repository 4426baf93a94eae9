import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { findSemanticStatus } from '../../src/assistants/knowledge/semantic-state.ts';
import { chatTurnOperations } from '../../src/turns/http/turn-routes.ts';
import { createSharedMemory } from '../../src/platform/process/lru.ts';
import { someEntries } from '../support/assistant-with-vectors.ts';
import { anAssistant } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { sized } from '../support/size.ts';
import { addPassages } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

const ROUNDS = sized({ everyday: 2, long: 20 });

/** An assistant with so many entries about a word, as many passages, and vectors of its entries. */
const aKnower = async (word: string, count: number) => {
  const { assistantId, callOperation } = await anAssistant(stack, { knowledge: someEntries(count, word) });
  const { assistants, mongo } = stack.service;
  const ids = { assistantId, sourceId: randomUUID() };
  const source = { _id: ids.sourceId, assistantId, live: 1, removedAt: null, createdAt: new Date() };
  await mongo.collection('sources').insertOne(source as never);
  const passages = Array.from(
    { length: count },
    (_, nth) => `A ${word} of kind ${nth} is repaired in ${nth + 3} weeks.`,
  );
  await addPassages(stack, ids, passages);
  await assistants.raisePassages(assistantId, async () => ({ live: count, drafted: 0 }));
  const ask = async (message: string) => {
    const body = { session_id: randomUUID(), message };
    return (await callOperation(chatTurnOperations.send, { body, query: '?include=sources' })).body;
  };
  return {
    assistantId,
    answers: async (nth: number) => (await ask(`Where is the ${word} number ${nth}?`)).reply,
    sources: async (nth: number) => (await ask(`In how many weeks is a ${word} of kind ${nth} repaired?`)).sources,
    isReady: async () => (await findSemanticStatus(assistants, assistantId)).state === 'ready',
  };
};

test('all that a reply worker holds has one bound, and large assistants in use do not push out a small one', async () => {
  const large = [await aKnower('lamp', 300), await aKnower('chair', 300)];
  const small = await aKnower('spoon', 3);
  const all = [...large, small];
  const askAll = async (nth: number): Promise<void> => {
    for (const { sources } of all) await sources(nth);
  };
  const roomy = createSharedMemory();
  const before = await stack.startReplyWorker(undefined, anEmbedder(), roomy);
  await eventually(async () => expect(await Promise.all(all.map(({ isReady }) => isReady()))).not.toContain(false));
  await askAll(1);
  const needed = roomy.bytes();
  await before.close();

  const maxBytes = 0.6 * needed;
  const memory = createSharedMemory({ maxBytes });
  await stack.startReplyWorker(undefined, anEmbedder(), memory);
  const held: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const { answers } of large) {
      expect(await answers(round)).toContain(`${round} is on its shelf.`);
      held.push(memory.bytes());
    }
    await askAll(2);
    held.push(memory.bytes());
    expect(await small.answers(2)).toBe('The spoon 2 is on its shelf.');
    expect(await small.sources(2)).toMatchObject([{ quote: expect.stringContaining('5 weeks') }]);
  }

  expect(Math.max(...held)).toBeLessThanOrEqual(maxBytes);
  const gave = stack.logs.filter(({ msg }) => String(msg).includes('made room for other assistants'));
  expect(gave.map(({ msg }) => msg)).toContain('passages made room for other assistants');
  expect(gave.map(({ assistantId }) => assistantId)).not.toContain(small.assistantId);
});
