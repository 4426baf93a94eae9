import { randomUUID } from 'node:crypto';
import type { Connection } from 'mongoose';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { deleteInBatches } from '../../src/platform/mongo/batches.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, connectUnprofiled, profileStatements } from '../support/profile.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, timing: { maintenanceEveryMs: 200 } });
const owner = useOpened(() => anOperator(stack));
let mongo: Connection;
beforeAll(async () => {
  mongo = await connectUnprofiled(stack);
});
afterAll(() => mongo.close());

const collection = (name: string) => mongo.collection<{ _id: string }>(name);
/** How many questions a command deletes. */
const AT_ONCE = 100;
/** For how many holders a process deletes at the same time. */
const DELETIONS_AT_ONCE = 2;
/** As a set may have that was imported again and again. */
const MANY = 1_200;

/** A set whose earlier versions had this many questions. Its version is 30. */
const aSet = async (earlier: number) => {
  const { assistantId } = await anAssistant(stack);
  const sets = `/assistants/${assistantId}/question-sets`;
  const { setId } = (await owner.post<{ setId: string }>(sets, { name: 'Some' })).body;
  const question = { setId, assistantId, question: 'Where?', language: 'en', expected: { kind: 'none' } };
  const rows = Array.from({ length: earlier }, (_, place) => {
    const caseId = randomUUID();
    return { ...question, _id: caseId, caseId, conversationIds: [], since: 1, until: 9, place };
  });
  await collection('questionCases').insertMany(rows);
  await collection('questionSets').updateOne({ _id: setId }, { $set: { version: 30 } });
  return {
    path: `${sets}/${setId}`,
    setId,
    listed: async () => (await owner.get<{ sets: unknown[] }>(sets)).body.sets,
    questions: () => collection('questionCases').countDocuments({ setId }),
    stored: () => collection('questionSets').findOne({ _id: setId }),
  };
};

/** How many questions each of the commands has deleted. */
const deletionsBy = async (work: () => Promise<unknown>): Promise<number[]> => {
  const sent = await profileStatements(stack, work);
  const deleting = sent.filter((one) => collectionIn(one) === 'questionCases');
  return deleting.flatMap(({ ndeleted = 0 }) => (ndeleted > 0 ? ndeleted : []));
};
const sumOf = (counts: number[]): number => counts.reduce((sum, count) => sum + count, 0);

test('a removed set is gone at once, and its questions are deleted some at a time', async () => {
  const { path, listed, questions, stored } = await aSet(MANY);

  const counts = await deletionsBy(async () => {
    expect((await owner.call('DELETE', path)).status).toBe(204);
    expect([problemOf(await owner.get(path)), await listed()]).toEqual(['404 not_found', []]);
    expect(problemOf(await owner.call('DELETE', path))).toBe('404 not_found');
    await eventually(async () => expect([await questions(), await stored()]).toEqual([0, null]));
  });

  expect(sumOf(counts)).toBe(MANY);
  expect(Math.max(...counts)).toBeLessThanOrEqual(AT_ONCE);
});

test('questions of versions that cannot be read any more are deleted after the change, some at a time', async () => {
  const { path, questions } = await aSet(250);

  const counts = await deletionsBy(async () => {
    const question = { question: 'When?', expected: { kind: 'none' } };
    expect((await owner.post(`${path}/cases`, question)).status).toBe(201);
  });

  expect([sumOf(counts), await questions()]).toEqual([250, 1]);
  expect(Math.max(...counts)).toBeLessThanOrEqual(AT_ONCE);
});

/** Takes all places in which a process deletes, until the returned function is called. */
const holdDeletions = async (): Promise<() => Promise<unknown>> => {
  const held = Promise.withResolvers<void>();
  const rows = mongo.collection<{ _id: string }>('rowsToDelete');
  const deletions = await Promise.all(
    Array.from({ length: DELETIONS_AT_ONCE }, async () => {
      const _id = randomUUID();
      await rows.insertOne({ _id });
      const reached = Promise.withResolvers<void>();
      const onDeleted = (): Promise<void> => {
        reached.resolve();
        return held.promise;
      };
      const done = deleteInBatches({ collection: rows, filter: { _id }, holder: _id, onDeleted });
      await reached.promise;
      return { done };
    }),
  );
  const release = (): Promise<unknown> => {
    held.resolve();
    return Promise.all(deletions.map(({ done }) => done));
  };
  onTestFinished(async () => void (await release()));
  return release;
};

test('changes wait only for some time until old questions are deleted, and these are deleted later', async () => {
  const { path, setId, questions } = await aSet(250);
  // The first change makes the others old, and the second one this one.
  await collection('questionCases').updateOne({ setId, place: 0 }, { $set: { until: 12 } });
  const release = await holdDeletions();
  const add = () => owner.post(`${path}/cases`, { question: 'When?', expected: { kind: 'none' } });

  const added = await Promise.all([add(), add()]);

  expect([...added.map(({ status }) => status), await questions()]).toEqual([201, 201, 252]);
  const counts = await deletionsBy(async () => {
    await release();
    await eventually(async () => expect(await questions()).toBe(2));
  });
  expect(sumOf(counts)).toBe(250);
}, 60_000);

test('a set whose questions could not all be deleted is gone at once, and a worker deletes them later', async () => {
  const { path, setId, listed, questions, stored } = await aSet(2.5 * AT_ONCE);
  // The deletion waits for this transaction, after the first questions.
  const session = await mongo.startSession();
  session.startTransaction();
  await collection('questionCases').updateOne(
    { setId, place: 1.5 * AT_ONCE },
    { $set: { language: 'de' } },
    { session },
  );

  expect((await owner.call('DELETE', path)).status).toBe(204);

  expect([problemOf(await owner.get(path)), await listed()]).toEqual(['404 not_found', []]);
  const admin = mongo.getClient().db('admin');
  const deleting = { ns: `${mongo.name}.questionCases`, op: 'remove' };
  const running = async () => (await admin.command({ currentOp: true, ...deleting }))['inprog'] as { opid: number }[];
  for (const { opid } of await running()) await admin.command({ killOp: 1, op: opid });
  await eventually(async () => expect(await running()).toEqual([]));
  await session.abortTransaction();
  await session.endSession();
  const left = await questions();
  expect([left > 0, left <= 1.5 * AT_ONCE]).toEqual([true, true]);
  expect(await stored()).not.toBeNull();

  // As if some minutes had passed.
  await collection('questionSets').updateOne({ _id: setId }, { $set: { changedAt: new Date(0) } });
  const worker = await stack.startReplyWorker();

  await eventually(async () => expect([await questions(), await stored()]).toEqual([0, null]));
  await worker.close();
});
