import { randomUUID } from 'node:crypto';
import type { ClientSession, Connection } from 'mongoose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, connectUnprofiled, type Profiled, profileStatements } from '../support/profile.ts';
import { addProposals } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
let people: Awaited<ReturnType<typeof anOperator>>[]; // a session waits for its own requests
let mongo: Connection;
beforeAll(async () => {
  people = [await anOperator(stack), await anOperator(stack), await anOperator(stack)];
  mongo = await connectUnprofiled(stack);
});
afterAll(() => mongo.close());

const collection = (name: string) =>
  mongo.collection<{ _id: string; knowledgePlaces?: { unfinished?: object[] } }>(name);

/** As long as an answer that a page proposes may be. 200 of them are more than may be written beside large versions. */
const LONG = '語'.repeat(2_000);
const MANY = 200;
const LARGE = Array.from({ length: MANY }, () => ({ answer: LONG }));

/** An assistant with these proposals. */
const withProposals = async (proposals: { answer?: string; url?: string }[], person = people[0]!) => {
  const { assistantId } = await anAssistant(stack);
  const ids = await addProposals(stack, { assistantId, sourceId: randomUUID() }, proposals);
  return {
    assistantId,
    ids,
    accept: () => person.post(`/assistants/${assistantId}/proposed-entries/accept`, { proposalIds: null }),
    /** How many proposals wait, and how many entries there are, hidden ones included. */
    counts: async () => ({
      waiting: await collection('proposedEntries').countDocuments({ assistantId, state: 'proposed' }),
      entries: await collection('knowledge').countDocuments({ assistantId }),
      unfinished: (await collection('assistants').findOne({ _id: assistantId }))?.knowledgePlaces?.unfinished ?? [],
    }),
  };
};
const NOTHING_ACCEPTED = { entries: 1, unfinished: [] };

/** Dismisses a proposal in a transaction that is not committed yet. What accepts it meets this, and waits. */
const dismissing = async (proposalId: string | undefined): Promise<ClientSession> => {
  const session = await mongo.startSession();
  session.startTransaction();
  const filter = { _id: proposalId ?? '' };
  await collection('proposedEntries').updateOne(filter, { $set: { state: 'dismissed' } }, { session });
  return session;
};
const commit = async (session: ClientSession): Promise<void> => {
  await session.commitTransaction();
  await session.endSession();
};

/** Waits until a transaction of the service has met the one that dismisses this proposal. */
const meeting = (proposalId: string | undefined): Promise<unknown> =>
  eventually(async () => {
    const met = { ns: `${mongo.name}.proposedEntries`, errName: 'WriteConflict', 'command.q._id': proposalId };
    expect(await mongo.collection('system.profile').findOne(met)).not.toBeNull();
  });

const written = (one: Profiled) => one.op === 'update' && collectionIn(one) === 'proposedEntries';

test('many proposals of several assistants are accepted one after the other', async () => {
  const all = await Promise.all(people.map((person) => withProposals(LARGE, person)));

  const statements = await profileStatements(stack, async () => {
    const answers = await Promise.all(all.map(({ accept }) => accept()));
    expect(answers.map(({ body }) => body)).toEqual(all.map(() => ({ entries: MANY })));
  });

  const order = statements.filter(written).map(({ command }) => (command['q'] as { assistantId: string }).assistantId);
  expect(order).toHaveLength(all.length * MANY);
  expect(order.filter((one, nth) => one !== order[nth - 1])).toHaveLength(all.length);
});

test('while many proposals are accepted, few of a neighbour are too, and other many wait until their caller leaves', async () => {
  const large = await withProposals(LARGE);
  const few = await withProposals([{}, { answer: LONG }], people[1]);
  const waiting = await withProposals(LARGE);
  const { accept } = stack.service.sources;

  await profileStatements(stack, async () => {
    const session = await dismissing(large.ids.at(-1));
    let isOver = false;
    const accepted = large.accept().finally(() => (isOver = true));
    await meeting(large.ids.at(-1));
    const caller = new AbortController();
    const other = accept(waiting.assistantId, null, { signal: caller.signal });
    other.catch(() => undefined); // looked at below
    expect((await few.accept()).body).toEqual({ entries: 2 });
    expect(isOver).toBe(false);
    caller.abort();
    await expect(other).rejects.toMatchObject({ status: 503 });
    await commit(session);
    expect((await accepted).body).toEqual({ entries: MANY - 1 });
  });

  expect(await waiting.counts()).toEqual({ waiting: MANY, ...NOTHING_ACCEPTED });
});

test('proposals that others decide again and again are refused after some tries, and leave nothing behind', async () => {
  const urlOf = (nth: number) => `https://example.com/${String(nth).padStart(3, '0')}`; // in their order
  const { accept, ids, counts } = await withProposals(Array.from({ length: 160 }, (_, nth) => ({ url: urlOf(nth) })));
  // Each in a statement behind the one before.
  const [first, second, third] = [ids[0], ids[60], ids[120]];

  const statements = await profileStatements(stack, async () => {
    let dismissal = await dismissing(first);
    const refused = accept();
    await meeting(first);
    for (const next of [second, third]) {
      const before = dismissal;
      dismissal = await dismissing(next);
      await commit(before);
      await meeting(next);
    }
    await commit(dismissal);
    expect(problemOf(await refused)).toBe('409 conflict');
  });

  expect(await counts()).toEqual({ waiting: 157, ...NOTHING_ACCEPTED });
  const removed = statements.filter((one) => one.op === 'remove' && collectionIn(one) === 'knowledge');
  expect(removed.map(({ ndeleted }) => ndeleted)).toEqual([50, 50, 50, 10, 50, 50, 50, 9, 50, 50, 50, 8]);
});

test('entries that are not accepted stay hidden until they are removed', async () => {
  const { accept, ids, assistantId, counts } = await withProposals(Array.from({ length: 60 }, () => ({})));

  const statements = await profileStatements(stack, async () => {
    const session = await dismissing(ids[59]);
    const accepted = accept();
    await meeting(ids[59]);
    await commit(session);
    expect((await accepted).body).toEqual({ entries: 59 });
  });

  const isRemoval = (one: Profiled) => one.op === 'remove' && collectionIn(one) === 'knowledge';
  const isShown = ({ command }: Profiled) =>
    JSON.stringify(command['u'] ?? {}).includes('"$pull":{"knowledgePlaces.unfinished"') &&
    (command['q'] as { _id: string })._id === assistantId;
  expect(statements.findIndex(isShown)).toBeGreaterThan(statements.findLastIndex(isRemoval));
  expect(await counts()).toMatchObject({ entries: 60, unfinished: [] });
});

test('proposals that another write holds for too long are refused, and leave nothing behind', async () => {
  const { accept, ids, counts } = await withProposals([{}, {}]);
  const session = await dismissing(ids[1]);

  const refused = await accept();

  expect(problemOf(refused)).toBe('503 unavailable');
  await session.abortTransaction();
  await session.endSession();
  expect(await counts()).toEqual({ waiting: 2, ...NOTHING_ACCEPTED });
});
