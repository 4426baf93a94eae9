import { randomUUID } from 'node:crypto';
import mongoose from 'mongoose';
import { expect, test } from 'vitest';
import { type Service, startReplicaSet } from '../../scripts/services.ts';
import { anAssistant, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { longTest } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const set = useOpened(
  // The election timeout is long, so that a primary without secondaries stays primary until the test kills it.
  () => startReplicaSet(3, { electionTimeoutMs: 600_000 }),
  (opened) => opened.dispose(),
);
const stack = useStack(() => ({ env: { MONGODB_URL: set.url }, deliveryWorkers: 0, dropsItsData: false }));

/**
 * While `during` runs, the primary applies writes that no secondary copies. Then the primary is killed, and the
 * secondaries continue without those writes.
 */
const loseWhatIsApplied = async (during: (primary: Service) => Promise<void>): Promise<void> => {
  const primary = await eventually(async () => {
    const found = await set.findPrimary();
    if (!found) throw new Error('there is no primary');
    return found;
  });
  const others = set.members.filter((member) => member !== primary);
  await Promise.all(others.map((member) => member.kill()));
  await during(primary);
  await primary.kill();
  await Promise.all(others.map((member) => member.restart()));
  await eventually(async () => {
    await set.elect(others[0] as Service);
    expect(await set.findPrimary()).toBe(others[0]);
  });
  await primary.restart();
};

/** Connects to the primary directly, because its latest writes and its profile are not replicated. */
const lookAt = async ({ port }: Service) => {
  const client = new mongoose.mongo.MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`);
  const db = client.db(stack.service.mongo.name);
  await db.command({ profile: 2 });
  return {
    /** A write that no majority confirms. */
    writeAlone: () => db.collection('alone').insertOne({}, { writeConcern: { w: 1 } }),
    claims: () => db.collection('deliveries').countDocuments({}, { readConcern: 'local' }),
    /** Ends the claim's wait for a majority: the claim is applied, but no majority has confirmed it. */
    breakOffClaim: async () => {
      const ns = `${db.databaseName}.deliveries`;
      const { inprog } = await client.db('admin').command({ currentOp: 1, op: 'insert', ns });
      const op = (inprog as { opid: number }[])[0]?.opid;
      if (op === undefined) throw new Error('no claim is being written');
      await client.db('admin').command({ killOp: 1, op });
    },
    /** Counts the queries that read a claim by its id. The worker sends them if its write is unclear. */
    claimsReadBack: () =>
      db.collection('system.profile').countDocuments({
        op: 'query',
        ns: `${db.databaseName}.deliveries`,
        'command.filter._id': { $exists: true },
        'command.projection': { $exists: false },
      }),
    close: async () => {
      await db.command({ profile: 0 });
      await client.close();
    },
  };
};

test('a claim that was applied and rolled back does not allow sending: the event is sent once', async () => {
  const { assistantId } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  await feed.say(assistantId, key, ['one'], { silent: true });

  await loseWhatIsApplied(async (primary) => {
    const inside = await lookAt(primary);
    // From here on, whatever waits for a majority waits for ever. A start does not.
    await inside.writeAlone();
    await stack.startDeliveryWorker();
    await eventually(() => inside.breakOffClaim());
    expect(await inside.claims()).toBe(1);
    await eventually(async () => expect(await inside.claimsReadBack()).toBeGreaterThan(0));
    // When the worker sends its second query, it has already acted on the result of its first query.
    await eventually(async () => expect(await inside.claimsReadBack()).toBeGreaterThan(1));
    await inside.close();
  });

  await feed.say(assistantId, key, ['two']);
  await eventually(() => expect(receiver.received.map(contentOf)).toContain('two'));
  expect(receiver.received.map(contentOf)).toEqual(['one', 'two']);
  await receiver.close();
});

longTest('a message that was applied and rolled back was never reported to the caller', async () => {
  const { apiKey, chat, history } = await anAssistant(stack);
  const session_id = randomUUID();
  const first = await chat({ session_id, message: 'first' });
  const { conversationId } = first.body;
  const send = (message: string) =>
    request(`${stack.url}/api/v1/chat`, { body: { session_id, message }, bearer: apiKey });

  await loseWhatIsApplied(async () => {
    const [one, another] = await Promise.all([send('second'), send('second')]);
    expect([one.status, another.status]).toEqual([500, 500]);
    const { messages } = (await history(conversationId)).body;
    expect(messages.map(({ content }) => content)).not.toContain('second');
  });

  const again = await eventually(async () => {
    const answer = await send('second');
    expect(answer.status).toBe(200);
    return answer;
  });
  const { messages } = (await history(conversationId)).body;
  expect(messages.filter(({ content }) => content === 'second')).toHaveLength(1);
  expect(messages.map(({ messageId }) => messageId)).toContain(again.body.messageId);
});
