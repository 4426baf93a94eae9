import { randomUUID } from 'node:crypto';
import type { Connection } from 'mongoose';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { anAssistant, anEntry } from '../support/builders.ts';
import { askedOf } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { collectionIn, connectUnprofiled, type Profiled, profileStatements } from '../support/profile.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const owner = useOpened(() => anOperator(stack));
let mongo: Connection;
beforeAll(async () => {
  mongo = await connectUnprofiled(stack);
});
afterAll(() => mongo.close());

/** What one statement may delete of documents that have up to 90 KB each. */
const AT_ONCE = 50;
const MANY = 220;
const KEPT_EVALUATIONS = 30;

const range = (count: number) => Array.from({ length: count }, (_, nth) => nth);
const collection = (name: string) => mongo.collection<{ _id: string }>(name);
const entriesOf = (assistantId: string) => collection('knowledge').countDocuments({ assistantId });
const importInto = (assistantId: string, { replace }: { replace: boolean }) =>
  owner.post(`/assistants/${assistantId}/knowledge-import`, {
    format: 'json',
    text: JSON.stringify([anEntry({ question: 'A new one?' })]),
    replace,
  });

/** How many documents each statement has deleted. No more than may be, and none was read to find them. */
const deletionsIn = (name: string, statements: Profiled[]): number => {
  const of = statements.filter((one) => collectionIn(one) === name);
  const deleted = of.filter(({ op }) => op === 'remove').map(({ ndeleted = 0 }) => ndeleted);
  expect(Math.max(...deleted)).toBeLessThanOrEqual(AT_ONCE);
  return deleted.reduce((sum, count) => sum + count, 0);
};

/** What statements have read that looked only for ids. */
const readForIds = (name: string, statements: Profiled[]): number[] =>
  statements
    .filter((one) => collectionIn(one) === name && ['query', 'getmore'].includes(one.op))
    .filter(({ command, originatingCommand }) => {
      const projection = (originatingCommand ?? command)['projection'];
      return JSON.stringify(projection) === '{"_id":1}';
    })
    .map(({ docsExamined = 0 }) => docsExamined);

test('an import that replaces many entries deletes them a few at a time, without reading them', async () => {
  const knowledge = range(MANY).map((nth) => anEntry({ question: `Question ${nth}?` }));
  const { assistantId } = await anAssistant(stack, { knowledge });

  const statements = await profileStatements(stack, async () => {
    expect((await importInto(assistantId, { replace: true })).body).toMatchObject({ imported: 1 });
    await eventually(async () => expect(await entriesOf(assistantId)).toBe(1));
  });

  expect(deletionsIn('knowledge', statements)).toBe(MANY);
  const read = readForIds('knowledge', statements);
  expect(read.length).toBeGreaterThan(MANY / AT_ONCE);
  expect(Math.max(...read)).toBe(0);
});

test('an import whose deletion fails has succeeded, and the next one deletes what was left', async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: range(60).map(() => anEntry()) });
  // The deletion waits for this transaction, until its connection counts as silent.
  const session = await mongo.startSession();
  onTestFinished(() => session.endSession());
  session.startTransaction();
  await collection('knowledge').updateOne({ assistantId }, { $set: { language: 'de' } }, { session });

  expect((await importInto(assistantId, { replace: true })).status).toBe(200);

  const listed = await stack.service.assistants.listKnowledge(assistantId);
  expect(listed.map(({ question }) => question)).toEqual(['A new one?']);
  expect(await entriesOf(assistantId)).toBeGreaterThan(1);
  await session.abortTransaction();
  expect((await importInto(assistantId, { replace: false })).status).toBe(200);
  await eventually(async () => expect(await entriesOf(assistantId)).toBe(2));
});

test('imports during a deletion begin no further ones', async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: range(MANY).map(() => anEntry()) });
  const MORE = 10;
  // The deletion waits for this transaction.
  const session = await mongo.startSession();
  onTestFinished(() => session.endSession());
  session.startTransaction();
  await collection('knowledge').updateOne({ assistantId }, { $set: { language: 'de' } }, { session });

  const statements = await profileStatements(stack, async () => {
    const replaced = importInto(assistantId, { replace: true });
    await eventually(async () => expect(await stack.service.assistants.listKnowledge(assistantId)).toHaveLength(1));
    await Promise.all(range(MORE).map(() => importInto(assistantId, { replace: false })));
    await session.abortTransaction();
    await replaced;
    await eventually(async () => expect(await entriesOf(assistantId)).toBe(1 + MORE));
  });

  const removes = statements.filter((one) => one.op === 'remove' && collectionIn(one) === 'knowledge');
  expect(removes.length).toBeLessThan(MANY / AT_ONCE + MORE / 2);
});

test('a version deletes what no version needs a few at a time, without reading it', async () => {
  const { assistantId } = await anAssistant(stack);
  const own = `/assistants/${assistantId}`;
  expect((await owner.call('PATCH', own, { drafts: true })).status).toBe(200);
  await owner.post(`${own}/knowledge`, anEntry());
  // As an import leaves it that was killed after it had replaced them.
  const entry = { assistantId, ...anEntry() };
  await collection('knowledge').insertMany(range(MANY).map((nth) => ({ _id: randomUUID(), position: -nth, ...entry })));
  await collection('assistants').updateOne({ _id: assistantId }, { $set: { 'knowledgePlaces.from': 1 } });
  await collection('pastEntries').insertMany(
    range(MANY).map((position) => {
      return { _id: randomUUID(), assistantId, entryId: randomUUID(), position, since: 0, until: 1, entry: anEntry() };
    }),
  );

  const statements = await profileStatements(stack, async () => {
    expect((await owner.post(`${own}/draft/publish`, { confirm: true })).status).toBe(200);
    await eventually(async () => {
      expect(await collection('pastEntries').countDocuments({ assistantId })).toBe(0);
      expect(await entriesOf(assistantId)).toBe(2);
    });
  });

  for (const name of ['knowledge', 'pastEntries']) {
    expect(deletionsIn(name, statements)).toBe(MANY);
    const read = readForIds(name, statements);
    expect(read.length).toBeGreaterThan(MANY / AT_ONCE);
    expect(Math.max(...read)).toBe(0);
  }
});

test('results of old evaluations and of erased conversations are deleted a few at a time', async () => {
  const { evaluations } = stack.service;
  const { assistantId } = await anAssistant(stack);
  const conversationId = randomUUID();
  const asked = askedOf('Where?', { conversationId, conversationIds: [conversationId] });
  const old = range(KEPT_EVALUATIONS).map((nth) => ({
    _id: randomUUID(),
    assistantId,
    state: 'done',
    set: null,
    total: MANY,
    done: MANY,
    next: MANY,
    counts: {},
    createdAt: new Date(nth),
    startedAt: null,
    endedAt: new Date(nth),
  }));
  await collection('evaluations').insertMany(old);
  const [oldest, newer] = old.map(({ _id }) => _id);
  const results = (evaluationId: string | undefined) =>
    range(MANY).map((nth) => ({ _id: `${evaluationId}:${nth}`, evaluationId, assistantId, doubt: 1, ...asked }));
  await collection('evaluationResults').insertMany([...results(oldest), ...results(newer)]);
  const left = () => collection('evaluationResults').countDocuments({ assistantId });

  const began = await profileStatements(stack, async () => {
    await evaluations.create({ assistantId, set: null, questions: [{ ...asked, conversationIds: [] }] });
    await eventually(async () => expect(await left()).toBe(MANY + 1));
  });
  const erased = await profileStatements(stack, () => evaluations.eraseConversations([conversationId]));

  expect(deletionsIn('evaluationResults', began)).toBe(MANY);
  expect(Math.max(...readForIds('evaluationResults', began))).toBe(0);
  expect(deletionsIn('evaluationResults', erased)).toBe(MANY);
  expect(await left()).toBe(1);
  await eventually(async () => expect(await collection('evaluations').findOne({ _id: oldest ?? '' })).toBeNull());
});

test('an entry is removed in the write that tells workers of it', async () => {
  const { assistantId } = await anAssistant(stack);
  const own = `/assistants/${assistantId}/knowledge`;
  const { entryId } = (await owner.post<{ entryId: string }>(own, anEntry())).body;
  const session = await mongo.startSession();
  session.startTransaction();
  await collection('assistants').updateOne({ _id: assistantId }, { $inc: { version: 1 } }, { session });

  await profileStatements(stack, async () => {
    const removed = owner.call('DELETE', `${own}/${entryId}`);
    const conflict = { ns: `${mongo.name}.assistants`, errName: 'WriteConflict' };
    await eventually(async () => expect(await collection('system.profile').findOne(conflict)).not.toBeNull());
    expect(await collection('knowledge').findOne({ _id: entryId })).not.toBeNull();
    await session.commitTransaction();
    expect((await removed).status).toBe(204);
  });

  expect(await collection('knowledge').findOne({ _id: entryId })).toBeNull();
  await session.endSession();
});
