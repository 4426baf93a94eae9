import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { createGroupMisses, type Embedding } from '../../src/insights/group-misses.ts';
import { MAX_GROUPS } from '../../src/insights/misses.ts';
import type { missOperations } from '../../src/assistants/knowledge/http.ts';
import { newId } from '../../src/platform/process/ids.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { anEmbedder, vectorOf } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { useProjection } from '../support/projection.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, embedder: anEmbedder });
useProjection(stack, anEmbedder());
type Misses = AnswerOf<typeof missOperations.list>['misses'];
const WAIT_MS = 25_000;

const owner = useOpened(() => anOperator(stack));

const aLearner = async () => {
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  const path = `/assistants/${assistantId}`;
  const misses = async (): Promise<Misses> => (await owner.get<{ misses: Misses }>(`${path}/misses`)).body.misses;
  const ask = async (message: string, session_id = `visitor-${randomUUID()}`) =>
    (await assistant.chat({ session_id, message })).body.conversationId;
  return { assistant, assistantId, path, misses, ask };
};

// These wait until they are projected and grouped, so they wait together.
test.concurrent('questions without an answer are grouped by meaning, with examples and the operator’s answer', async ({
  expect,
}) => {
  const { misses, ask } = await aLearner();
  const first = await ask('Do you repair broken umbrellas?');
  await ask('What are your opening hours?');
  await eventually(async () => expect(await misses()).toHaveLength(1), WAIT_MS);

  const second = await ask('do you repair broken umbrellas');
  const other = await ask('Is there a lighthouse nearby?');
  await owner.post(`/conversations/${first}/replies`, { content: 'Hello!' });
  await owner.post(`/conversations/${first}/replies`, { content: 'We repair umbrellas on Fridays.' });
  await owner.post(`/conversations/${first}/replies`, { content: 'Anything else?' });

  await eventually(async () => {
    const [umbrellas, lighthouse, ...rest] = await misses();
    expect(rest).toEqual([]);
    expect(umbrellas).toMatchObject({
      question: 'Do you repair broken umbrellas?',
      count: 2,
      examples: [{ conversationId: second }, { conversationId: first }],
      answer: { conversationId: first, content: 'We repair umbrellas on Fridays.' },
    });
    expect(lighthouse).toMatchObject({ count: 1, examples: [{ conversationId: other }], answer: null });
  }, WAIT_MS);
});

test.concurrent('a group that becomes a knowledge entry is gone, counts as taught, and opens again with a later miss', async ({
  expect,
}) => {
  const { misses, ask, path, assistantId } = await aLearner();
  await ask('Do you sell harpoons?');
  await eventually(async () => expect(await misses()).toHaveLength(1), WAIT_MS);
  const [{ missId } = { missId: '' }] = await misses();
  const entry = anEntry({ question: 'Something else entirely', answer: 'Yes.' });

  const unknown = await owner.post<{ error: { field: string } }>(`${path}/knowledge`, {
    ...entry,
    fromMiss: randomUUID(),
  });
  const taught = await owner.post<{ entryId: string }>(`${path}/knowledge`, { ...entry, fromMiss: missId });

  expect(unknown).toMatchObject({ status: 422, body: { error: { field: 'fromMiss' } } });
  expect(taught.status).toBe(201);
  expect(await misses()).toEqual([]);
  const { body } = await owner.get<{ figures: { totals: { taught: number } } }>(`${path}/overview`);
  expect(body.figures.totals.taught).toBe(1);
  const stored = stack.service.mongo.collection('misses');
  expect(await stored.findOne({ assistantId })).toMatchObject({ state: 'taught', entryId: taught.body.entryId });
  // As if the group had been taught an hour ago.
  await stored.updateOne({ assistantId }, { $set: { taughtAt: new Date(Date.now() - 3_600_000), count: 7 } });
  await ask('do you sell harpoons');
  await eventually(async () => expect(await misses()).toMatchObject([{ missId, count: 1 }]), WAIT_MS);
});

test.concurrent('an entry is added once even if its group of misses cannot be marked as taught', async ({ expect }) => {
  const { misses, ask, path, assistantId } = await aLearner();
  await ask('Do you rent out canoes?');
  await eventually(async () => expect(await misses()).toHaveLength(1), WAIT_MS);
  const [{ missId } = { missId: '' }] = await misses();
  const setValidator = (validator: object) => stack.service.mongo.db?.command({ collMod: 'misses', validator });
  await setValidator({ $nor: [{ assistantId, state: 'taught' }] });

  const entry = anEntry({ question: 'Do you rent canoes?', answer: 'Yes.' });
  const added = await owner.post<{ entryId: string }>(`${path}/knowledge`, { ...entry, fromMiss: missId });
  await setValidator({});

  expect(added.status).toBe(201);
  expect(await misses()).toMatchObject([{ missId }]);
  const { entryId } = added.body;
  expect(stack.logs).toContainEqual(expect.objectContaining({ level: 50, missId, entryId }));
});

test.concurrent('a dismissed group stays hidden, and only its owners’ assistants have it', async ({ expect }) => {
  const { misses, ask, path } = await aLearner();
  await ask('Who painted your ceiling?');
  await eventually(async () => expect(await misses()).toHaveLength(1), WAIT_MS);
  const [{ missId } = { missId: '' }] = await misses();
  const stranger = await aLearner();

  expect((await owner.post(`${stranger.path}/misses/${missId}/dismiss`)).status).toBe(404);
  expect((await owner.post(`${path}/misses/${missId}/dismiss`)).status).toBe(204);
  await ask('who painted your ceiling');
  await ask('Where do whales sleep at night?');

  await eventually(
    async () => expect(await misses()).toMatchObject([{ question: 'Where do whales sleep at night?' }]),
    WAIT_MS,
  );
  expect(await stranger.misses()).toEqual([]);
  const agent = await anOperator(stack, 'agent');
  expect((await agent.get(`${path}/misses`)).status).toBe(403);
});

test.concurrent('erasure removes a conversation’s question and answer from its group', async ({ expect }) => {
  const { misses, ask, assistant, assistantId } = await aLearner();
  const first = await ask('Can I bring Rex the secret dog?');
  await eventually(async () => expect(await misses()).toHaveLength(1), WAIT_MS);
  const second = await ask('can i bring Rex the secret dog');
  await owner.post(`/conversations/${first}/replies`, { content: 'Yes, Rex may come.' });
  await eventually(
    async () => expect(await misses()).toMatchObject([{ count: 2, answer: { conversationId: first } }]),
    WAIT_MS,
  );

  await assistant.call(`/api/v1/conversations/${first}`, { method: 'DELETE' });

  expect(await misses()).toMatchObject([
    { question: 'can i bring Rex the secret dog', examples: [{ conversationId: second }], answer: null },
  ]);
  const stored = await stack.service.mongo.collection('misses').find({ assistantId }).toArray();
  expect(JSON.stringify(stored)).not.toContain(first);
  await assistant.call(`/api/v1/conversations/${second}`, { method: 'DELETE' });
  expect(await stack.service.mongo.collection('misses').countDocuments({ assistantId })).toBe(0);
});

const learnerOf = (assistantId: string, questions: string[]) => ({
  conversationId: newId(),
  assistantId,
  lessons: questions.map((question) => ({ kind: 'miss' as const, question, language: 'en', at: new Date() })),
  lastMissId: null,
});

const WITHOUT_MODEL: Embedding = { embed: async () => null, model: () => null };
const WITH_MODEL: Embedding = { embed: async (texts) => texts.map(vectorOf), model: () => 'trigrams-1' };

test('without a model questions are grouped by their words, and get vectors once there is a model', async () => {
  const { mongo } = stack.service;
  const assistantId = newId();
  const stored = mongo.collection<{ _id: string; count: number; model: string | null }>('misses');
  const learn = async (embedding: Embedding, questions: string[]) => {
    const { writes } = await createGroupMisses(mongo, embedding)([learnerOf(assistantId, questions)]);
    await stored.bulkWrite(writes as never);
    return stored
      .find({ assistantId } as never)
      .sort({ count: -1 })
      .toArray();
  };

  const first = await learn(WITHOUT_MODEL, ['Do you ship to Norway?', 'do you SHIP to norway!', 'Is it dog friendly?']);
  const second = await learn(WITH_MODEL, ['Do you ship to norway??', '¿?', 'Is it dog-friendly']);

  expect(first.map(({ count, model }) => [count, model])).toEqual([
    [2, null],
    [1, null],
  ]);
  expect(second.slice(0, 2).map(({ count, model }) => [count, model])).toEqual([
    [3, 'trigrams-1'],
    [2, 'trigrams-1'],
  ]);
});

test('an assistant has a bounded number of groups, whatever the visitors ask', async () => {
  const { mongo } = stack.service;
  const assistantId = newId();
  const stored = mongo.collection('misses');
  const group = createGroupMisses(mongo, WITHOUT_MODEL);
  const BATCHES = sized({ everyday: 2, long: 3 });
  const QUESTIONS = sized({ everyday: 255, long: 300 });
  for (let batch = 0; batch < BATCHES; batch += 1) {
    const questions = Array.from(
      { length: QUESTIONS },
      (_, nth) => `zz${batch}q${nth} ${'$where {"$gt":""} \u0000'.replace('\u0000', '')}${batch}${nth}`,
    );
    const frequent = Array.from({ length: 3 }, () => 'the frequent one');
    const { writes } = await group([learnerOf(assistantId, [...frequent, ...questions])]);
    await stored.bulkWrite(writes as never);
  }

  expect(await stored.countDocuments({ assistantId })).toBeLessThanOrEqual(MAX_GROUPS);
  expect(await stored.findOne({ assistantId, question: 'the frequent one' })).toMatchObject({ count: 3 * BATCHES });
  const [largest] = await stored.find({ assistantId }).sort({ count: -1 }).limit(1).toArray();
  expect(largest?.['examples']).toHaveLength(5);
});

test('a full list drops its rarest group for a new one', async () => {
  const assistantId = newId();
  const questions = Array.from({ length: MAX_GROUPS }, (_, nth) => `question${nth}`);
  const group = createGroupMisses(stack.service.mongo, { embed: async () => null, model: () => null });

  const { writes } = await group([learnerOf(assistantId, ['rare', ...questions, 'rare'])]);

  const [inserted, deleted] = ['insertOne', 'deleteOne'].map((kind) => writes.filter((write) => kind in write).length);
  expect([inserted, deleted]).toEqual([MAX_GROUPS + 2, 2]);
});
