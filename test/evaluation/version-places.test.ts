import type { ClientSession, Connection } from 'mongoose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/platform/process/ids.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, connectUnprofiled, type Profiled, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
let anna: Awaited<ReturnType<typeof anOperator>>;
let ben: typeof anna;
let mongo: Connection;
beforeAll(async () => {
  [anna, ben] = [await anOperator(stack), await anOperator(stack)];
  mongo = await connectUnprofiled(stack);
});
afterAll(() => mongo.close());

const collection = (name: string) => mongo.collection<{ _id: string; assistantId?: string }>(name);

/** An assistant with drafts and these entries. */
const withDrafts = async (...knowledge: ReturnType<typeof anEntry>[]) => {
  const { assistantId } = await anAssistant(stack, { knowledge });
  const own = `/assistants/${assistantId}`;
  expect((await anna.call('PATCH', own, { drafts: true })).body).toMatchObject({ drafts: true });
  type Listed = { entries: { entryId: string }[] };
  return {
    assistantId,
    own,
    publish: (body: object = {}, who = anna) => who.post(`${own}/draft/publish`, body),
    rollBack: (to: number, who = anna) => who.post(`${own}/versions/${to}/roll-back`, {}),
    ids: async () => (await anna.get<Listed>(`${own}/knowledge`)).body.entries.map(({ entryId }) => entryId),
    change: async () => {
      expect((await anna.post(`${own}/knowledge`, anEntry({ question: 'Something new?' }))).status).toBe(201);
    },
  };
};
type Drafting = Awaited<ReturnType<typeof withDrafts>>;

/** 88 KB, about as many as an entry may have. */
const aLargeEntry = () => {
  const wide = (length: number) => '語'.repeat(length);
  return anEntry({ variants: Array.from({ length: 50 }, () => wide(500)), answer: wide(4_000) });
};
/** 1.8 MB, more than a version may have that does not wait for large ones. */
const MUCH = 20;
const makeLarge = ({ assistantId }: Drafting) =>
  collection('knowledge').updateMany({ assistantId }, { $set: aLargeEntry() });

/** Adds this many large entries to a draft that has one change. Its revision is then 2. */
const enlarge = async ({ assistantId }: Drafting, count: number, session?: ClientSession): Promise<void> => {
  const options = session ? { session } : {};
  const edit = await collection('draftEntries').findOne({ assistantId });
  const rows = Array.from({ length: count }, (_, nth) => {
    return { ...edit, _id: newId(), position: 2 ** 40 + 100 + nth, entry: aLargeEntry(), revision: 2 };
  });
  await collection('draftEntries').insertMany(rows, options);
  const draft = { $set: { revision: 2, bytes: count * 88_000 } };
  await collection('drafts').updateOne({ _id: assistantId }, draft, options);
  await collection('assistants').updateOne({ _id: assistantId }, { $set: { draftRevision: 2 } }, options);
};

/** Lets something of the service meet a transaction of another process, which it then waits for. */
const whileAnotherWrites = async <Result>(
  { assistantId }: Drafting,
  write: (session: ClientSession) => Promise<unknown>,
  begin: () => Promise<Result>,
): Promise<Result> => {
  const session = await mongo.startSession();
  session.startTransaction();
  await collection('assistants').updateOne({ _id: assistantId }, { $inc: { version: 1 } }, { session });
  await write(session);
  const ts = { $gte: new Date() };
  const begun = begin();
  const conflict = { ns: `${mongo.name}.assistants`, errName: 'WriteConflict', ts };
  await eventually(async () => expect(await mongo.collection('system.profile').findOne(conflict)).not.toBeNull());
  await session.commitTransaction();
  await session.endSession();
  return begun;
};

const transactionOf = ({ command }: Profiled) => JSON.stringify([command['lsid'], command['txnNumber']]);

/**
 * Makes a version while large ones of others are written. Returns how many transactions have made versions, and how often
 * another one of them went on.
 */
const besideLargeOnes = async (make: () => Promise<{ status: number }>) => {
  const others = [await withDrafts(), await withDrafts()];
  for (const other of others) {
    await other.change();
    await enlarge(other, 100);
  }
  const people = [ben, await anOperator(stack)]; // a session waits for its own requests
  const statements = await profileStatements(stack, async () => {
    const profile = mongo.collection('system.profile');
    const published = others.map(({ publish }, nth) => publish({}, people[nth]));
    const written = { ns: `${mongo.name}.knowledge`, op: 'insert' };
    await eventually(async () => expect(await profile.findOne(written)).not.toBeNull());
    for (const { status } of await Promise.all([make(), ...published])) expect(status).toBe(200);
  });
  const stored = statements.filter((one) => collectionIn(one) === 'versions' && one.op === 'insert');
  const made = new Set(stored.map(transactionOf));
  const order = statements.map(transactionOf).filter((one) => made.has(one));
  return { made: made.size, turns: order.filter((one, nth) => one !== order[nth - 1]).length };
};
const ONE_AFTER_THE_OTHER = { made: 3, turns: 3 };

test('a roll back that has become large while it waited is written after other large versions', async () => {
  const one = await withDrafts(anEntry());
  for (let made = 0; made < 2; made += 1) {
    await one.change();
    expect((await one.publish()).status).toBe(200);
  }
  const { assistantId } = one;
  const rows = Array.from({ length: MUCH }, (_, nth) => {
    return { ...aLargeEntry(), _id: newId(), assistantId, position: 1_000 + nth, since: 4 };
  });

  const result = await besideLargeOnes(() =>
    whileAnotherWrites(
      one,
      async (session) => {
        // Version 4 of another process.
        const [_id, before] = [`${assistantId}:000000004`, `${assistantId}:000000003`];
        const third = await collection('versions').findOne({ _id: before });
        const changes = { added: MUCH, changed: 0, removed: 0, isReplaced: false, settings: [] };
        const fourth = { ...third, _id, version: 4, changes };
        await collection('versions').insertOne(fourth, { session });
        await collection('knowledge').insertMany(rows, { session });
        const live = { publishedVersion: 4, 'knowledgePlaces.last': 2_000 };
        await collection('assistants').updateOne({ _id: assistantId }, { $set: live }, { session });
      },
      () => one.rollBack(2),
    ),
  );

  expect(result).toEqual(ONE_AFTER_THE_OTHER);
  expect(await one.ids()).toHaveLength(2);
});

test('a draft that has become large while its publishing waited is published after other large versions', async () => {
  const one = await withDrafts(anEntry());
  await one.change();

  const result = await besideLargeOnes(() =>
    whileAnotherWrites(
      one,
      (session) => enlarge(one, MUCH, session),
      () => one.publish({ seen: 2 }),
    ),
  );

  expect(result).toEqual(ONE_AFTER_THE_OTHER);
  expect(await one.ids()).toHaveLength(2 + MUCH);
});

test('a small draft that removes what has become large is published after other large versions', async () => {
  const one = await withDrafts(...Array.from({ length: MUCH }, () => anEntry()));
  for (const entryId of await one.ids())
    expect((await anna.call('DELETE', `${one.own}/knowledge/${entryId}`)).status).toBe(204);
  await makeLarge(one); // as a roll back may

  expect(await besideLargeOnes(() => one.publish())).toEqual(ONE_AFTER_THE_OTHER);

  expect(await one.ids()).toEqual([]);
});

test('a roll back of a few entries that are large is written after other large versions', async () => {
  const one = await withDrafts(...Array.from({ length: MUCH }, () => anEntry()));
  for (const entryId of await one.ids())
    expect((await anna.call('PUT', `${one.own}/knowledge/${entryId}`, anEntry({ answer: 'New.' }))).status).toBe(200);
  expect((await one.publish()).status).toBe(200);
  await makeLarge(one);

  expect(await besideLargeOnes(() => one.rollBack(1))).toEqual(ONE_AFTER_THE_OTHER);
});

test('a roll back to what is live is refused at once, also while another version is being made', async () => {
  const one = await withDrafts(anEntry());
  await one.change();
  expect((await one.publish()).status).toBe(200);
  const session = await mongo.startSession();
  session.startTransaction();
  await collection('assistants').updateOne({ _id: one.assistantId }, { $inc: { version: 1 } }, { session });

  const refused = await one.rollBack(2);

  await session.abortTransaction();
  await session.endSession();
  expect(problemOf(refused)).toBe('409 conflict');
});
