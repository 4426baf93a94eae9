import mongoose from 'mongoose';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Service, startMongod } from '../../scripts/services.ts';
import { createInboxStore } from '../../src/conversations/inbox.ts';
import { initialState } from '../../src/conversations/state.ts';
import type { Assignees } from '../../src/inbox/assignees.ts';
import { FEED_SILENT_AFTER_MS } from '../../src/live/change-feed.ts';
import { createHub } from '../../src/live/hub.ts';
import { createReadRows } from '../../src/live/live.ts';
import { type LiveAccess, createSubscriber } from '../../src/live/subscriber.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { createFeed } from '../kit/feed.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const OWNER: LiveAccess = { operatorId: 'owner', role: 'owner', assistantIds: null };
const NOBODY: Assignees = { find: () => null, of: () => [] };

const BROWSERS = 3_000;
const UNREAD_TOTAL_BYTES = 67_108_864;

/** Longer than any other command may take. */
const SLOW_LOG_MS = 3_700;

type Found = { cursor?: { ns?: string; firstBatch?: { _id: string }[]; nextBatch?: { _id: string; id?: string }[] } };

type HubOptions = {
  url?: string;
  readWithinMs?: number;
  lingerMs?: number;
  catchUpMs?: number;
  /** Called before rows of these assistants are read. */
  beforeRows?: (assistantIds: string[] | null) => Promise<unknown> | undefined;
};

/** A hub with a connection of its own, which shows what the hub has read. */
const aHub = async ({
  url = stack.env['MONGODB_URL'] ?? '',
  readWithinMs,
  lingerMs,
  catchUpMs,
  beforeRows,
}: HubOptions = {}) => {
  const connection = mongoose.createConnection(url, { monitorCommands: true, socketTimeoutMS: FEED_SILENT_AFTER_MS });
  await connection.asPromise();
  const changed = new Set<string>();
  const read: string[] = [];
  let rounds = 0;
  const client = connection.getClient();
  client.on('commandStarted', ({ commandName }) => (rounds += commandName === 'getMore' ? 1 : 0));
  client.on('commandSucceeded', ({ commandName, reply }) => {
    const { ns = '', firstBatch = [], nextBatch = [] } = (reply as Found).cursor ?? {};
    if (commandName === 'getMore') for (const { id } of nextBatch) if (id) changed.add(id);
    if (ns.endsWith('.conversations')) read.push(...[...firstBatch, ...nextBatch].map(({ _id }) => _id));
  });
  const readRows = createReadRows(createInboxStore(connection), async () => NOBODY);
  const hub = createHub({
    connect: async () => connection,
    readRows: async (keys, assistantIds) => {
      await beforeRows?.(assistantIds);
      return readRows(keys, assistantIds);
    },
    ...(readWithinMs !== undefined && { readWithinMs }),
    ...(lingerMs !== undefined && { lingerMs }),
    ...(catchUpMs !== undefined && { catchUpMs }),
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  onTestFinished(async () => {
    await hub.close();
    await connection.close();
  });

  const unread = { bytes: 0, most: 0 };
  /** Joins with a browser that reads nothing. */
  const joinUnread = (access: LiveAccess) => {
    const { promise: never } = Promise.withResolvers<void>();
    const sink = {
      write: (text: string): void => {
        sink.writableLength += text.length;
        unread.bytes += text.length;
        unread.most = Math.max(unread.most, unread.bytes);
      },
      end: () => undefined,
      destroy: (): void => void (unread.bytes -= sink.writableLength),
      writableLength: 0,
      drained: () => never,
      left: new AbortController().signal,
    };
    return hub.add(createSubscriber({ access, sink }), null);
  };
  const join = async (
    access: LiveAccess,
    from: string | null = null,
    drained = async (): Promise<void> => undefined,
  ) => {
    let written = '';
    const write = (text: string): void => void (written += text);
    const left = new AbortController();
    const sink = {
      write,
      end: () => undefined,
      destroy: () => undefined,
      writableLength: 0,
      drained,
      left: left.signal,
    };
    const remove = await hub.add(createSubscriber({ access, sink }), from);
    const leave = (): void => {
      left.abort();
      remove();
    };
    return { leave, written: () => written, position: () => written.match(/^id: (\w+)$/m)?.[1] ?? null };
  };
  /** Waits until the round of these changes is over. */
  const roundOf = async (keys: string[]): Promise<void> => {
    await eventually(() => expect([...changed]).toEqual(expect.arrayContaining(keys)));
    const after = rounds;
    await eventually(() => expect(rounds).toBeGreaterThan(after));
  };
  return { join, joinUnread, unread, roundOf, read, connection };
};

const conversationsOf = (assistantId: string, count: number) =>
  createFeed(stack.service).openConversations(assistantId, count);

/** The ids of these conversations, which their rows contain. */
const idsOf = async (keys: string[]): Promise<string[]> => {
  const conversations = stack.service.mongo.collection<{ _id: string; conversationId: string }>('conversations');
  return (await conversations.find({ _id: { $in: keys } }).toArray()).map(({ conversationId }) => conversationId);
};

const anAgentOf = (assistantId: string): LiveAccess => ({
  operatorId: assistantId,
  role: 'agent',
  assistantIds: [assistantId],
});

test('no row is read while no browser is connected, and a browser that comes back gets what it missed', async () => {
  const { assistantId } = await anAssistant(stack);
  const { join, roundOf, read } = await aHub();
  const before = await join(OWNER);
  const from = before.position();
  before.leave();

  const keys = await conversationsOf(assistantId, 20);
  await roundOf(keys);
  const readAlone = [...read];
  const back = await join(OWNER, from);

  expect(from).not.toBeNull();
  expect(readAlone).toEqual([]);
  expect(read.toSorted()).toEqual(keys.toSorted());
  for (const id of await idsOf(keys)) expect(back.written()).toContain(id);
  expect(back.written()).not.toContain('event: reset');
});

test('the change stream is open only while a browser follows, and some browsers share it', async () => {
  const { join } = await aHub({ lingerMs: 100 });
  const { mongo } = stack.service;
  const operations = [{ $currentOp: { idleCursors: true, localOps: true } }];
  const countStreams = async (): Promise<number> => {
    const running = await mongo
      .getClient()
      .db('admin')
      .aggregate(operations, { readConcern: { level: 'local' } })
      .toArray();
    const own = running.filter(({ ns }) => String(ns).startsWith(`${mongo.name}.`));
    return own.filter((one) => JSON.stringify(one).includes('$changeStream')).length;
  };
  const hasStreams = (count: number) => eventually(async () => expect(await countStreams()).toBe(count));
  await hasStreams(0); // those of the tests before are closed

  const browsers = await Promise.all([join(OWNER), join(OWNER)]);
  await hasStreams(1);
  for (const { leave } of browsers) leave();

  await hasStreams(0);
});

test('only rows of assistants are read that a connected operator may use', async () => {
  const [mine, others] = [await anAssistant(stack), await anAssistant(stack)];
  const { join, roundOf, read } = await aHub();
  const agent = await join(anAgentOf(mine.assistantId));

  const theirs = await conversationsOf(others.assistantId, 5);
  const own = await conversationsOf(mine.assistantId, 5);
  await roundOf([...theirs, ...own]);
  const readForAgent = [...read];
  await join(OWNER);
  const later = await conversationsOf(others.assistantId, 5);
  await roundOf(later);

  expect(readForAgent.toSorted()).toEqual(own.toSorted());
  expect(read).toEqual(expect.arrayContaining(later));
  for (const id of await idsOf([...theirs, ...later])) expect(agent.written()).not.toContain(id);
});

test('a browser that catches up slowly does not delay the rows of others', async () => {
  const [slow, quick] = [await anAssistant(stack), await anAssistant(stack)];
  const gate = Promise.withResolvers<void>();
  let waits = false;
  const beforeRows = (assistantIds: string[] | null) => {
    const isSlow = assistantIds?.join() === slow.assistantId;
    waits ||= isSlow;
    return isSlow ? gate.promise : undefined;
  };
  const { join, roundOf } = await aHub({ beforeRows });
  const before = await join(anAgentOf(slow.assistantId));
  const from = before.position();
  before.leave();
  const other = await join(anAgentOf(quick.assistantId));
  const keys = await conversationsOf(slow.assistantId, 20);
  await roundOf(keys);
  const missed = await idsOf(keys);

  const joining = join(anAgentOf(slow.assistantId), from);
  await eventually(() => expect(waits).toBe(true));
  const [later = ''] = await idsOf(await conversationsOf(quick.assistantId, 1));
  await eventually(() => expect(other.written()).toContain(later));
  gate.resolve();
  const back = await joining;

  for (const id of missed) expect(back.written()).toContain(id);
  expect(back.written()).not.toContain('event: reset');
});

test('browsers that read nothing leave little more than their bound, also while a round is sent to them', async () => {
  const { assistantId } = await anAssistant(stack);
  const { join, joinUnread, unread, roundOf } = await aHub();
  const keys = await conversationsOf(assistantId, 100);
  await Promise.all(Array.from({ length: BROWSERS }, () => joinUnread(OWNER)));
  const { written } = await join(OWNER);

  const { mongo } = stack.service;
  const change = { $set: { updatedAt: new Date() } };
  await mongo.transaction((session) =>
    mongo.collection('conversations').updateMany({ assistantId }, change, { session }),
  );
  await roundOf(keys);

  await eventually(() => expect(written().length * BROWSERS).toBeGreaterThan(2 * UNREAD_TOTAL_BYTES));
  expect(unread.most).toBeGreaterThan(UNREAD_TOTAL_BYTES);
  expect(unread.most).toBeLessThan(1.4 * UNREAD_TOTAL_BYTES);
});

test('people of one assistant who catch up slowly do not keep others from it', async () => {
  const [slow, quick] = [await anAssistant(stack), await anAssistant(stack)];
  const gate = Promise.withResolvers<void>();
  let reading = 0;
  const { join, roundOf } = await aHub({
    beforeRows: (assistantIds) => {
      if (assistantIds?.join() !== slow.assistantId) return undefined;
      reading += 1;
      return gate.promise;
    },
  });
  const follower = await join(anAgentOf(quick.assistantId));
  const from = follower.position();
  const keys = await conversationsOf(quick.assistantId, 5);
  await roundOf([...(await conversationsOf(slow.assistantId, 5)), ...keys]);

  const people = ['one', 'two', 'three', 'four'].map((operatorId) =>
    join({ ...anAgentOf(slow.assistantId), operatorId }, from),
  );
  await eventually(() => expect(reading).toBe(2));
  const back = await join({ ...anAgentOf(quick.assistantId), operatorId: 'back' }, from);

  for (const id of await idsOf(keys)) expect(back.written()).toContain(id);
  gate.resolve();
  await Promise.all(people);
});

test('browsers that do not read what they missed hold up others for seconds only, and load everything again', async () => {
  const teams = [await anAssistant(stack), await anAssistant(stack), await anAssistant(stack)];
  const { join, roundOf } = await aHub({ catchUpMs: 4_000 });
  const from = (await join(OWNER)).position();
  const keys = await Promise.all(teams.map(({ assistantId }) => conversationsOf(assistantId, 1)));
  await roundOf(keys.flat());
  const [one, two, third] = teams.map(({ assistantId }) => anAgentOf(assistantId));
  const hanging = Promise.withResolvers<void>();
  let waits = 0;
  const hang = (): Promise<void> => {
    waits += 1;
    return hanging.promise;
  };

  const slow = [one!, two!].flatMap((access) =>
    ['a', 'b'].map((name) => join({ ...access, operatorId: `${name} of ${access.operatorId}` }, from, hang)),
  );
  await eventually(() => expect(waits).toBe(4));
  const fifth = await join(third!, from);

  expect(fifth.written()).toContain('event: reset');
  for (const browser of await Promise.all(slow)) expect(browser.written()).toContain('event: reset');
  // The places are free again, and those who held them rest.
  const again = await Promise.all([join(third!, from), join({ ...one!, operatorId: `a of ${one!.operatorId}` }, from)]);
  expect(again.map((browser) => browser.written().includes('event: reset'))).toEqual([false, true]);
});

describe('a long log', () => {
  let mongod: Service;
  beforeAll(async () => {
    mongod = await startMongod({ failPoints: true });
  });
  afterAll(() => mongod.dispose());

  /** MongoDB reads a long log before it answers: here every answer to a change stream takes this long. */
  const withSlowLog = (failCommands: string[], during: () => Promise<void>) =>
    withFailPoint(
      mongod.url,
      { failCommands, blockConnection: true, blockTimeMS: SLOW_LOG_MS, appName: 'hub' },
      during,
    );
  const slowHub = async (options: HubOptions = {}) => {
    const url = new URL(mongod.url);
    url.searchParams.set('appName', 'hub');
    const hub = await aHub({ ...options, url: url.href });
    const conversations = hub.connection.collection<{ _id: string }>('conversations');
    const talk = async (): Promise<string> => {
      const _id = randomUUID();
      const now = new Date();
      const row = { ...initialState(), conversationId: _id, assistantId: 'a', channel: 'api', createdAt: now };
      await conversations.insertOne({ _id, ...row, updatedAt: now, waiting: [] } as { _id: string });
      return _id;
    };
    return { ...hub, talk };
  };

  test('is read although MongoDB is longer silent than it may be otherwise; what cannot be read in time is left out', async () => {
    const [patient, hasty] = [await slowHub({ lingerMs: 0 }), await slowHub({ readWithinMs: 500 })];
    const [follower, left] = [await patient.join(OWNER), await hasty.join(OWNER)];

    await withSlowLog(sized({ everyday: ['getMore'], long: ['aggregate', 'getMore'] }), async () => {
      const id = await patient.talk();
      await eventually(() => {
        expect(follower.written()).toContain(id);
        expect(left.written()).toContain('event: reset');
      });
      follower.leave(); // no read of this hub holds up the end of the fail point
    });
    const later = await hasty.talk();

    // Browsers that were left out load everything, and follow from there.
    await eventually(() => expect(left.written()).toContain(later));
    expect(follower.written()).not.toContain('event: reset');
  });

  test('of other collections and databases is passed at once', async () => {
    const { join, talk, connection } = await slowHub();
    const before = await join(OWNER);
    const from = before.position();
    before.leave();
    const documents = Array.from({ length: sized({ everyday: 2_000, long: 20_000 }) }, (_, n) => ({ n }));
    for (const name of ['here', 'elsewhere'])
      await connection
        .getClient()
        .db(name === 'here' ? connection.name : name)
        .collection('other')
        .insertMany(documents);
    const id = await talk();

    const second = await slowHub();
    const back = await second.join(OWNER, from);

    expect(back.written()).toContain(id);
    expect(back.written()).not.toContain('event: reset');
  });
});
