import type { ClientSession, Connection } from 'mongoose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/platform/process/ids.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { collectionIn, connectUnprofiled, type Profiled, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
let people: Awaited<ReturnType<typeof anOperator>>[]; // a session waits for its own requests
let mongo: Connection;
beforeAll(async () => {
  people = [await anOperator(stack), await anOperator(stack), await anOperator(stack)];
  mongo = await connectUnprofiled(stack);
});
afterAll(() => mongo.close());

const collection = (name: string) => mongo.collection<{ _id: string; assistantId?: string }>(name);

/** 88 KB, about as many as an entry may have. */
const wide = (length: number) => '語'.repeat(length);
const aLargeEntry = () => anEntry({ variants: Array.from({ length: 50 }, () => wide(500)), answer: wide(4_000) });

/** Adds this many large entries to the draft. */
const enlarge = async (assistantId: string, count: number, session?: ClientSession): Promise<void> => {
  const options = session ? { session } : {};
  const edit = await collection('draftEntries').findOne({ assistantId });
  const rows = Array.from({ length: count }, (_, nth) => {
    return { ...edit, _id: newId(), position: 2 ** 40 + 100 + nth, entry: aLargeEntry() };
  });
  await collection('draftEntries').insertMany(rows, options);
  await collection('drafts').updateOne({ _id: assistantId }, { $set: { bytes: count * 88_000 } }, options);
};

/** The draft of an assistant, with one new entry. */
const aDraft = async (person = people[0]!) => {
  const { assistantId } = await anAssistant(stack);
  const own = `/assistants/${assistantId}`;
  expect((await person.call('PATCH', own, { drafts: true })).status).toBe(200);
  expect((await person.post(`${own}/knowledge`, anEntry({ question: 'Something new?' }))).status).toBe(201);
  type Listed = { entries: { question: string }[] };
  return {
    assistantId,
    discard: () => person.call('DELETE', `${own}/draft`),
    publish: () => person.post(`${own}/draft/publish`, {}),
    replace: () => {
      const text = JSON.stringify([anEntry({ question: 'The only one?' })]);
      return person.post(`${own}/knowledge-import`, { format: 'json', text, replace: true });
    },
    entries: async () => {
      const { entries } = (await person.get<Listed>(`${own}/knowledge?draft=true`)).body;
      return entries.map(({ question }) => question);
    },
  };
};
/** 1.8 MB, more than may be written beside large versions. */
const MUCH = 20;

const transactionOf = ({ command }: Profiled) => JSON.stringify([command['lsid'], command['txnNumber']]);

/**
 * Changes the draft of an assistant while large versions of others are written. Returns how often another one of these
 * transactions went on.
 */
const turnsBesideLargeVersions = async (assistantId: string, change: () => Promise<{ status: number }>) => {
  const others = [await aDraft(people[1]), await aDraft(people[2])];
  for (const { assistantId } of others) await enlarge(assistantId, 100);
  const statements = await profileStatements(stack, async () => {
    const profile = mongo.collection('system.profile');
    const published = others.map(({ publish }) => publish());
    const written = { ns: `${mongo.name}.knowledge`, op: 'insert' };
    await eventually(async () => expect(await profile.findOne(written)).not.toBeNull());
    const answers = await Promise.all([change(), ...published]);
    expect(answers.filter(({ status }) => status >= 300)).toEqual([]);
  });
  const stored = statements.filter((one) => collectionIn(one) === 'versions' && one.op === 'insert');
  // Earlier transactions of the change have ended without writing anything.
  const changing = statements.findLast(
    ({ command }) =>
      command['findAndModify'] === 'assistants' && (command['query'] as { _id: string })._id === assistantId,
  );
  const made = new Set([...stored, changing!].map(transactionOf));
  expect(made.size).toBe(3);
  const order = statements.map(transactionOf).filter((one) => made.has(one));
  return order.filter((one, nth) => one !== order[nth - 1]).length;
};
const ONE_AFTER_THE_OTHER = 3;

test('a large draft is discarded after large versions of others are written', async () => {
  const { assistantId, discard, entries } = await aDraft();
  await enlarge(assistantId, MUCH);

  expect(await turnsBesideLargeVersions(assistantId, discard)).toBe(ONE_AFTER_THE_OTHER);

  expect(await entries()).toEqual(['What are your opening hours?']);
  expect(await collection('draftEntries').countDocuments({ assistantId })).toBe(0);
});

test('an import that replaces a large draft is stored after large versions of others are written', async () => {
  const { assistantId, replace, entries } = await aDraft();
  await enlarge(assistantId, MUCH);

  expect(await turnsBesideLargeVersions(assistantId, replace)).toBe(ONE_AFTER_THE_OTHER);

  expect(await entries()).toEqual(['The only one?']);
});

test('a draft that has become large while its removal waited is discarded after other large versions', async () => {
  const { assistantId, discard, entries } = await aDraft();

  const turns = await turnsBesideLargeVersions(assistantId, async () => {
    const session = await mongo.startSession();
    session.startTransaction();
    await collection('assistants').updateOne({ _id: assistantId }, { $inc: { version: 1 } }, { session });
    await enlarge(assistantId, MUCH, session);
    const ts = { $gte: new Date() };
    const discarded = discard();
    const conflict = { ns: `${mongo.name}.assistants`, errName: 'WriteConflict', ts };
    await eventually(async () => expect(await mongo.collection('system.profile').findOne(conflict)).not.toBeNull());
    await session.commitTransaction();
    await session.endSession();
    return discarded;
  });

  expect(turns).toBe(ONE_AFTER_THE_OTHER);
  expect(await entries()).toEqual(['What are your opening hours?']);
});

test('a small draft is discarded while large versions of others are written', async () => {
  const { assistantId, discard } = await aDraft();

  expect(await turnsBesideLargeVersions(assistantId, discard)).toBeGreaterThan(ONE_AFTER_THE_OTHER);
});

test('an import that would make the draft too large writes no entry', async () => {
  const [{ assistantId, entries }, person] = [await aDraft(), people[0]!];
  const before = await entries();
  await collection('drafts').updateOne({ _id: assistantId }, { $set: { bytes: 31_999_000 } });

  const statements = await profileStatements(stack, async () => {
    const text = JSON.stringify([anEntry(), aLargeEntry()]);
    const answer = await person.post(`/assistants/${assistantId}/knowledge-import`, { format: 'json', text });
    expect([answer.status, answer.body]).toMatchObject([422, { error: { details: [{ code: 'too_large' }] } }]);
  });

  expect(statements.filter(({ op }) => op === 'insert').map(collectionIn)).toEqual([]);
  expect(await entries()).toEqual(before);
});
