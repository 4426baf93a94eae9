import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createProject } from '../../src/insights/project.ts';
import type { StoredPage } from '../../src/conversations/conversation.ts';
import { createGroupMisses } from '../../src/insights/group-misses.ts';
import { lastEndedHour } from '../../src/insights/figures.ts';
import { newId } from '../../src/platform/process/ids.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { aLongConversation, anAssistant, anEntry, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { useProjection, projectOn } from '../support/projection.ts';
import { isLong, sized } from '../support/size.ts';
import { openStack, type Stack, useStack } from '../support/stack.ts';

// Its projection needs no worker's rounds. `alone` has workers that project.
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
useProjection(stack);

const NO_MODEL = { embed: async () => null, model: () => null };

type Sums = Record<string, number>;
type StoredHour = Record<string, unknown> & { escalated?: Sums };

/** All figures of an assistant, over all hours. Reply times are left out. */
const sumsOf = async ({ service }: Stack, assistantId: string): Promise<Sums> => {
  const hours = await service.mongo.collection<StoredHour>('figures').find({ assistantId }).toArray();
  const sums: Sums = {};
  const add = (name: string, value: unknown): void => {
    if (typeof value === 'number') sums[name] = (sums[name] ?? 0) + value;
  };
  for (const { escalated = {}, ...hour } of hours) {
    for (const [name, value] of Object.entries(hour)) add(name, value);
    for (const [reason, value] of Object.entries(escalated)) add(`escalated.${reason}`, value);
  }
  return sums;
};

const find = async ({ service }: Stack, { assistantId }: TestAssistant, text: string): Promise<string[]> =>
  (await service.insights.findByWords([assistantId], text, { limit: 50 })).map(({ conversationId }) => conversationId);

const say = async (assistant: TestAssistant, messages: string[], session_id = `visitor-${randomUUID()}`) => {
  let conversationId = '';
  for (const message of messages) conversationId = (await assistant.chat({ session_id, message })).body.conversationId;
  return { conversationId, session_id };
};

const isFound = (on: Stack, assistant: TestAssistant, text: string, id: string): Promise<void> =>
  eventually(async () => expect(await find(on, assistant, text)).toContain(id));

/** A stack without workers. */
let alone: Stack;
beforeAll(async () => {
  alone = await openStack({ deliveryWorkers: 0, replyWorkers: 0 });
});
afterAll(() => alone.close());

/** Deletes what was projected, as if no release before had a projection. */
const forget = async ({ service: { mongo } }: Stack): Promise<void> => {
  for (const name of ['search', 'figures', 'misses', 'pendingMisses', 'projection'])
    await mongo.collection(name).deleteMany({});
};

/** As if nothing had changed for a while in any conversation: a conversation is projected once it is quiet. */
const quieten = async ({ service: { mongo } }: Stack): Promise<void> => {
  await mongo
    .collection('conversations')
    .updateMany({ updatedAt: { $gt: new Date(Date.now() - 3_000) } }, [
      { $set: { updatedAt: { $subtract: ['$updatedAt', 4_000] } } },
    ]);
};

/** The conversations whose words are stored, in the order in which they were stored. */
const projectedOn = async ({ service: { mongo } }: Stack): Promise<string[]> => {
  const rows = await mongo.collection<{ _id: string }>('search').find().sort({ $natural: 1 }).toArray();
  return rows.map(({ _id }) => _id);
};

/** A projection as a worker has it, whose rounds the test makes. */
const openRounds = ({ service }: Stack, token = 'one') =>
  service.insights.openProjection({
    token,
    changed: service.conversations.changed,
    embedding: NO_MODEL,
    listAssistantIds: service.assistants.listAssistantIds,
    draining: new AbortController().signal,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });

/** Runs with no conversation of another test, and with no worker but those that `run` starts. */
const withOwnWorkers = async (run: (own: Stack) => Promise<void>): Promise<void> => {
  await forget(alone);
  await alone.service.mongo.collection('conversations').deleteMany({});
  const workers: { close: () => Promise<void> }[] = [];
  const startReplyWorker: Stack['startReplyWorker'] = async (...given) => {
    const worker = await alone.startReplyWorker(...given);
    workers.push(worker);
    return worker;
  };
  try {
    await run({ ...alone, startReplyWorker });
  } finally {
    for (const worker of workers) await worker.close();
  }
};

// These wait until they are projected, so they wait together.
test.concurrent('conversations are found by words of any message, the last one as a beginning, by id and by session id', async ({
  expect,
}) => {
  const assistant = await anAssistant(stack);
  const { conversationId, session_id } = await say(assistant, ['Bringt ihr Möbel nach Straßburg?', 'Straße 12']);
  const other = await say(assistant, ['我要退货，怎么办', 'ฉันต้องการคืนสินค้า', 'Où est l’hôtel ?']);
  const owner = await anOperator(stack);
  await owner.post(`/conversations/${conversationId}/replies`, { content: 'We ship there, Madeleine.' });

  await isFound(stack, assistant, 'madel', conversationId);
  await isFound(stack, assistant, '退货', other.conversationId);

  for (const text of ['mobel', 'MÖBEL strass', 'strassburg bringt', session_id.slice(3, 20)]) {
    expect({ text, found: await find(stack, assistant, text) }).toEqual({ text, found: [conversationId] });
  }
  expect(await find(stack, assistant, conversationId)).toEqual([conversationId]);
  for (const text of ['要退', '货', 'สินค้า', 'hotel', 'l’hôt', 'hôtel 怎么']) {
    expect({ text, found: await find(stack, assistant, text) }).toEqual({ text, found: [other.conversationId] });
  }
  for (const text of ['möbel hotel', 'öbel', '货退', '$where', '(', '   ', '.*', 'möbel straßb x']) {
    expect({ text, found: await find(stack, assistant, text) }).toEqual({ text, found: [] });
  }
  for (const path of ['/inbox', `/assistants/${assistant.assistantId}/conversations`]) {
    const list = (query: string) => owner.get<{ conversations: { conversationId: string }[] }>(`${path}?${query}`);
    const idsOf = async (query: string) => (await list(query)).body.conversations.map((row) => row.conversationId);
    expect(await idsOf('search=m%C3%B6bel')).toEqual([conversationId]);
    expect(await idsOf('search=m%C3%B6bel&status=resolved')).toEqual([]);
    expect(await idsOf(`search=${session_id.slice(3, 20)}&limit=1`)).toEqual([conversationId]);
  }
  const stranger = await anAssistant(stack);
  expect(await find(stack, stranger, 'möbel')).toEqual([]);
});

test.concurrent('figures tell how turns ended, and count each message once', async ({ expect }) => {
  const assistant = await anAssistant(stack);
  const owner = await anOperator(stack);
  const { conversationId } = await say(assistant, [
    'What are your opening hours?',
    'Hello!',
    'Does the moon have a basement?',
    'I want to talk to a human',
    'Anybody?',
  ]);
  await owner.post(`/conversations/${conversationId}/replies`, { content: 'It is me.' });
  await owner.post(`/conversations/${conversationId}/hand-back`);
  await owner.post(`/conversations/${conversationId}/escalate`, { reason: 'a reason of our own' });
  for (let nth = 0; nth < 3; nth += 1) {
    await owner.post(`/conversations/${conversationId}/resolve`, {});
    await owner.post(`/conversations/${conversationId}/reopen`);
  }

  const expected = {
    turns: 5,
    answered: 1,
    other: 2,
    notAnswered: 1,
    held: 1,
    operatorReplies: 1,
    handedBack: 1,
    'escalated.user_requested': 1,
    'escalated.other': 1,
    resolved: 3,
  };
  await eventually(async () => expect(await sumsOf(stack, assistant.assistantId)).toEqual(expected));
  await say(assistant, ['And the basement light?']);
  await eventually(async () => expect((await sumsOf(stack, assistant.assistantId))['turns']).toBe(6));

  const sums = await sumsOf(stack, assistant.assistantId);
  expect(sums).toEqual({ ...expected, turns: 6, notAnswered: 2 });
});

test.concurrent('an erased conversation is not found any more, and is not projected again', async ({ expect }) => {
  const assistant = await anAssistant(stack);
  const { conversationId, session_id } = await say(assistant, ['A zeppelin, please']);
  await isFound(stack, assistant, 'zeppelin', conversationId);

  const erased = await assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });

  expect(erased.status).toBe(204);
  expect(await find(stack, assistant, 'zeppelin')).toEqual([]);
  const again = await say(assistant, ['A balloon, please'], session_id);
  await isFound(stack, assistant, 'balloon', again.conversationId);
  expect(await find(stack, assistant, 'zeppelin')).toEqual([]);
});

test.concurrent('a hostile conversation has a bounded number of words, and harms no other', async ({ expect }) => {
  const assistant = await anAssistant(stack);
  const flood = (from: number) => Array.from({ length: 900 }, (_, nth) => `x${from + nth}`).join(' ');
  const hostile = await say(
    assistant,
    Array.from({ length: 8 }, (_, nth) => flood(nth * 900)),
  );
  const good = await say(assistant, ['$set {"$gt": ""} plain']);

  await isFound(stack, assistant, 'plain', good.conversationId);
  await isFound(stack, assistant, 'x17', hostile.conversationId);
  const row = await stack.service.mongo.collection('search').findOne({ _id: hostile.conversationId as never });
  expect(row?.['terms'].length).toBeLessThanOrEqual(5_000);
});

test('a conversation that is erased while it is projected leaves nothing', () =>
  // Nobody else projects: another projection could store it again until it knows of the erasure.
  withOwnWorkers(async (own) => {
    const assistant = await anAssistant(own);
    const worker = await own.startReplyWorker();
    const { conversationId } = await say(assistant, ['A submarine, please']);
    await worker.close();
    const { mongo, conversations, insights } = own.service;
    const stored = await mongo.collection('conversations').findOne({ conversationId });
    const { changed } = conversations;
    const project = createProject({
      connection: mongo,
      changed: {
        ...changed,
        readEntries: async (...read) => {
          const entries = await changed.readEntries(...read);
          await assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });
          return entries;
        },
      },
      figures: insights.figures,
      usage: insights.usage,
      pendingMisses: insights.pendingMisses,
      erase: insights.eraseConversations,
      logger: createLogger({ name: 'test', level: 'silent' }),
    });

    await project([String(stored?._id)]);

    expect(stored).not.toBeNull();
    expect(await mongo.collection('search').findOne({ _id: conversationId as never })).toBeNull();
  }));

test('conversations are read in the order of their keys, so that low ids do not always come first', async () => {
  const assistant = await anAssistant(stack);
  for (let nth = 0; nth < 5; nth += 1) await say(assistant, ['hello']);
  const { assistantId } = assistant;
  const stored = await stack.service.mongo.collection<{ _id: string }>('conversations').find({ assistantId }).toArray();
  const keys = stored
    .map(({ _id }) => _id)
    .toSorted()
    .toReversed();

  const read = await stack.service.conversations.changed.read(keys);

  expect(read.map(({ _id }) => _id)).toEqual(keys);
});

test('a step learns at most 50 lessons, and the others in later steps', () =>
  withOwnWorkers(async (own) => {
    const assistant = await anAssistant(own);
    const { mongo, insights } = own.service;
    const worker = await own.startReplyWorker();
    const counts = sized({ everyday: [51, 2], long: [60, 30] });
    const replies = counts.reduce((sum, count) => sum + count, 0);
    for (const count of counts) {
      const { conversationId } = await say(assistant, ['Does the moon have a basement?']);
      for (let nth = 0; nth < count; nth += 1)
        await own.service.conversations.transitions.replyAsOperator({ conversationId }, `reply ${nth}`);
    }
    await worker.close();
    await forget(own);
    const stored = await mongo.collection<{ _id: string }>('conversations').find().toArray();
    const project = projectOn(own);

    let keys = stored.map(({ _id }) => _id);
    while (keys.length > 0) keys = (await project(keys)).behind;
    const pending = await mongo.collection<{ lessons: unknown[] }>('pendingMisses').find().toArray();
    const steps = pending.map(({ lessons }) => lessons.length);
    const grouped: number[] = [];
    const groupMisses = createGroupMisses(mongo, NO_MODEL);
    const spied: typeof groupMisses = (learners, options) => {
      grouped.push(learners.flatMap(({ lessons }) => lessons).length);
      return groupMisses(learners, options);
    };
    const logger = createLogger({ name: 'test', level: 'silent' });
    await insights.pendingMisses.group(spied, { draining: new AbortController().signal, logger });

    expect(Math.max(...grouped)).toBeLessThanOrEqual(50);
    expect(grouped.reduce((sum, lessons) => sum + lessons, 0)).toBe(replies + 2);
    expect(await mongo.collection('pendingMisses').countDocuments()).toBe(0);
    expect(await mongo.collection('misses').findOne({})).toMatchObject({ count: 2 });
    expect(Math.max(...steps)).toBe(50);
    expect(steps.reduce((sum, lessons) => sum + lessons, 0)).toBe(replies + 2);
    expect(await sumsOf(own, assistant.assistantId)).toMatchObject({ turns: 2, operatorReplies: replies });
  }));

test('assistants whose questions take all the time are grouped after those that waited', () =>
  withOwnWorkers(async ({ service: { mongo, insights } }) => {
    const assistantIds = Array.from({ length: 5 }, newId);
    const waiting = assistantIds.map((assistantId) => ({ _id: newId(), assistantId, at: new Date(0), lessons: [] }));
    await mongo.collection('pendingMisses').insertMany(waiting as never);
    const groupUntilTimeIsUp = async (): Promise<string[]> => {
      const draining = new AbortController();
      const begun: string[] = [];
      const groupMisses: ReturnType<typeof createGroupMisses> = async (learners) => {
        begun.push(...learners.map(({ assistantId }) => assistantId));
        draining.abort();
        throw new Error('these stay pending');
      };
      const logger = createLogger({ name: 'test', level: 'silent' });
      await insights.pendingMisses.group(groupMisses, { draining: draining.signal, logger });
      return begun;
    };

    const begun = [...(await groupUntilTimeIsUp()), ...(await groupUntilTimeIsUp())];

    expect(new Set(begun)).toEqual(new Set(assistantIds));
  }));

test('lists over many assistants are read from an index in order', () =>
  withOwnWorkers(async ({ service: { mongo, conversations: stored, insights } }) => {
    const assistantIds = Array.from({ length: 250 }, newId);
    const updatedAt = (nth: number) => new Date(Date.now() - 3_600_000 + nth);
    const known = Array.from({ length: 2_100 }, (_, nth) => ({
      _id: `search-${nth}`,
      key: `key-${nth}`,
      assistantId: assistantIds[(nth % 3) * 110],
      updatedAt: updatedAt(nth),
      session: 'visitor',
      terms: ['frequent'],
    }));
    const conversations = known.map(({ key: _id, session: sessionId, ...rest }) => ({
      ...rest,
      _id,
      conversationId: _id,
      sessionId,
    }));
    await mongo.collection('search').insertMany(known as never);
    await mongo.collection('conversations').insertMany(conversations as never);
    await mongo.db?.command({ profile: 2 });

    const search = async (text: string) =>
      (await insights.findByWords(assistantIds, text, { limit: 3 })).map(({ key }) => key);
    const found = [await search('frequent'), await search('visitor')];
    const start = { at: updatedAt(-60_000), id: '' };
    const changed = await stored.changed.listAfter(assistantIds, start, 3);

    await mongo.db?.command({ profile: 0 });
    expect(found).toEqual([
      ['key-2099', 'key-2098', 'key-2097'],
      ['key-2099', 'key-2098', 'key-2097'],
    ]);
    expect(changed.map(({ _id }) => _id)).toEqual(['key-0', 'key-1', 'key-2']);
    const finds = await mongo
      .collection('system.profile')
      .find({ 'command.sort': { $exists: true } })
      .toArray();
    const sorted = finds.filter(({ hasSortStage, command }) => hasSortStage && command.hint !== 'by_term');
    expect(finds.length).toBeGreaterThan(3);
    expect(sorted.map(({ ns }) => ns)).toEqual([]);
  }));

test('conversations from before an upgrade are projected in the background, also long ones', () =>
  withOwnWorkers(async (own) => {
    const assistant = await anAssistant(own, { knowledge: [anEntry({ question: 'Where is it?' })] });
    const worker = await own.startReplyWorker();
    const long = await say(
      assistant,
      Array.from({ length: 30 }, (_, nth) => `message number n${nth}`),
    );
    const short = await say(assistant, ['an early bird']);
    await worker.close();
    const { mongo } = own.service;
    await forget(own);
    const hourAgo = new Date(Date.now() - 3_600_000);
    await mongo.collection('conversations').updateMany({}, { $set: { updatedAt: hourAgo } });

    const { round } = openRounds(own);
    await eventually(async () => {
      await round();
      expect(await mongo.collection('projection').findOne({})).toMatchObject({ back: null });
    });

    expect(await find(own, assistant, 'n0 n29')).toEqual([long.conversationId]);
    expect(await find(own, assistant, 'early bird')).toEqual([short.conversationId]);
    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(31);
  }));

test('two workers count each message once, and a worker that stops hands over', () =>
  withOwnWorkers(async (own) => {
    const assistant = await anAssistant(own);
    const first = await own.startReplyWorker();
    const early = await say(assistant, ['before the second worker']);
    await quieten(own);
    await isFound(own, assistant, 'before second', early.conversationId); // so the first one leads
    const second = await own.startReplyWorker();
    const count = sized({ everyday: 5, long: 20 });
    for (let nth = 0; nth < count; nth += 1) await say(assistant, [`parcel p${nth}`, 'thanks']);
    await quieten(own);
    await first.close();
    const { conversationId } = await say(assistant, ['after the first worker']);
    await quieten(own);
    await isFound(own, assistant, 'after first', conversationId);
    let turns = 2 * count + 2;
    if (isLong) {
      await own.startReplyWorker();
      await second.close();
      const late = await say(assistant, ['after the second worker']);
      await isFound(own, assistant, 'after second', late.conversationId);
      turns += 1;
    }

    await eventually(async () => expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(turns));
  }));

test('two leaders at the same moment count each message once', () =>
  withOwnWorkers(async (own) => {
    const assistant = await anAssistant(own);
    const { mongo } = own.service;
    const worker = await own.startReplyWorker();
    const count = sized({ everyday: 10, long: 30 });
    for (let nth = 0; nth < count; nth += 1) await say(assistant, [`race r${nth}`]);
    await worker.close();
    await forget(own);
    await mongo.collection('conversations').updateMany({}, { $set: { updatedAt: new Date(Date.now() - 60_000) } });
    const [one, other] = [openRounds(own, 'one'), openRounds(own, 'other')];
    await one.round();
    for (const name of ['search', 'figures']) await mongo.collection(name).deleteMany({});
    const start = { back: { assistantId: '', at: new Date(), id: '~' } };

    // Both believe that they are the leader: the lease of each is expired while it works.
    for (let nth = 0; nth < sized({ everyday: 2, long: 6 }); nth += 1) {
      await mongo.collection('projection').updateOne({}, { $set: start, $unset: { lease: '' } });
      const rounds = [one.round()];
      await eventually(async () => expect((await mongo.collection('projection').findOne({}))?.['lease']).toBeDefined());
      await mongo.collection('projection').updateOne({}, { $unset: { lease: '' } });
      rounds.push(other.round());
      await Promise.allSettled(rounds);
    }

    await eventually(async () => {
      await one.round();
      expect(await find(own, assistant, 'race')).toHaveLength(count);
    });
    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(count);
  }));

/** Stores copies of a conversation, as if that many sessions had said the same at these times. */
const copy = async (
  own: Stack,
  conversationId: string,
  { count, changedAt, ...fields }: { count: number; changedAt: (nth: number) => Date } & Record<string, unknown>,
): Promise<string[]> => {
  const conversations = own.service.mongo.collection('conversations');
  const { _id, ...stored } = (await conversations.findOne({ conversationId })) ?? {};
  const ids = Array.from({ length: count }, () => randomUUID());
  const copies = ids.map((id, nth) => {
    const updatedAt = changedAt(nth);
    return { ...stored, ...fields, _id: id, conversationId: id, sessionId: id, updatedAt };
  });
  await conversations.insertMany(copies as never);
  return ids;
};

test('one bad document does not stop the others', () =>
  withOwnWorkers(async (own) => {
    const assistant = await anAssistant(own);
    await own.startReplyWorker();
    const before = await say(assistant, ['a healthy one']);
    // Bad from its first moment, so that no round has projected it before.
    const changedAt = () => new Date();
    const [bad] = await copy(own, before.conversationId, { count: 1, changedAt, texts: { 1: 'not a list' } });
    const after = await say(assistant, ['a lively one']);
    await quieten(own);

    await isFound(own, assistant, 'healthy', before.conversationId);
    await isFound(own, assistant, 'lively', after.conversationId);
    await eventually(() =>
      expect(own.logs).toContainEqual(
        expect.objectContaining({ msg: 'a conversation was not projected', conversationId: bad }),
      ),
    );
    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(2);
  }));

test('a busy assistant does not delay another one, and is projected completely', () =>
  withOwnWorkers(async (own) => {
    const [busy, neighbour] = [await anAssistant(own), await anAssistant(own)];
    const { mongo } = own.service;
    const first = await own.startReplyWorker();
    const { conversationId } = await say(busy, ['the busy one']);
    const waiting = await say(neighbour, ['the patient one']);
    await first.close();
    await forget(own);
    const begun = Date.now() - 600_000;
    await mongo.collection('projection').insertOne({ _id: 'projection' as never, live: new Date(begun), back: null });
    const count = sized({ everyday: 60, long: 300 });
    await copy(own, conversationId, { count, changedAt: (nth) => new Date(begun + 60_000 + nth) });
    const last = new Date(begun + 60_000 + count);
    await mongo
      .collection('conversations')
      .updateOne({ conversationId: waiting.conversationId }, { $set: { updatedAt: last } });

    const { round } = openRounds(own);
    await eventually(async () => {
      await round();
      expect(await projectedOn(own)).toHaveLength(count + 2);
    });

    expect((await projectedOn(own)).indexOf(waiting.conversationId)).toBeLessThan(count / 2);
    expect((await sumsOf(own, busy.assistantId))['turns']).toBe(count + 1);
  }));

type Talkers = { each: number; messages: number; count: number; write: () => Promise<unknown> };

/**
 * Four assistants with so many conversations each, whose texts `write` sets, and `count` of another assistant. They are
 * listed after those of the others. Returns their ids.
 */
const waitBehindTalkers = async (own: Stack, { each, messages, count, write }: Talkers): Promise<string[]> => {
  const { mongo } = own.service;
  const begun = Date.now() - 600_000;
  const first = await own.startReplyWorker();
  for (let nth = 0; nth < 4; nth += 1) {
    const talker = await anAssistant(own, { knowledge: [] });
    for (let one = 0; one < each; one += 1) await aLongConversation(own, talker, messages);
  }
  await write();
  const { conversationId } = await say(await anAssistant(own), ['the patient one']);
  await first.close();
  await forget(own);
  await mongo.collection('projection').insertOne({ _id: 'projection' as never, live: new Date(begun), back: null });
  const conversations = mongo.collection('conversations');
  const waiting = await copy(own, conversationId, { count, changedAt: (nth) => new Date(begun + 61_000 + nth) });
  await conversations.deleteOne({ conversationId });
  const others = { conversationId: { $nin: waiting } };
  await conversations.updateMany(others, { $set: { updatedAt: new Date(begun + 60_000) } });
  return waiting;
};

test('long conversations of some assistants do not fill every batch before another one', () =>
  withOwnWorkers(async (own) => {
    // Each is read in one step, and four of them fill a batch.
    const texts = { 'entries.$[].messages.$[].content': 'word '.repeat(1_200) };
    const write = () => own.service.mongo.collection('messages').updateMany({}, { $set: texts });
    const waiting = await waitBehindTalkers(own, { each: 8, messages: 16, count: 5, write });

    const { round } = openRounds(own);
    await eventually(async () => {
      await round();
      expect(await projectedOn(own)).toEqual(expect.arrayContaining(waiting));
    });

    const all = await projectedOn(own);
    expect(Math.min(...waiting.map((id) => all.indexOf(id)))).toBeLessThan(10);
  }));

test('conversations with thousands of words of some assistants delay those of another one for two turns at most', () =>
  withOwnWorkers(async (own) => {
    const pages = own.service.mongo.collection<StoredPage>('messages');
    let word = 0;
    const flood = () => Array.from({ length: 320 }, () => `x${(word += 1)}`).join(' ');
    const write = async () => {
      for await (const { _id, entries } of pages.find()) {
        for (const message of entries.flatMap(({ messages }) => messages)) message.content = flood();
        await pages.updateOne({ _id }, { $set: { entries } });
      }
    };
    const waiting = await waitBehindTalkers(own, { each: 3, messages: 8, count: 12, write });

    const { round } = openRounds(own);
    await eventually(async () => {
      await round();
      expect(await projectedOn(own)).toHaveLength(12 + waiting.length);
    });

    const all = await projectedOn(own);
    expect(Math.max(...waiting.map((id) => all.indexOf(id)))).toBeLessThan(waiting.length + 8);
  }));

test('a model that does not answer delays neither search nor figures, and each question is grouped once', () =>
  withOwnWorkers(async (own) => {
    const assistant = await anAssistant(own);
    const { insights, assistants, conversations, mongo } = own.service;
    const worker = await own.startReplyWorker();
    const { conversationId } = await say(assistant, ['Does the moon have a basement?']);
    await worker.close();
    await forget(own);
    await mongo.collection('conversations').updateMany({}, { $set: { updatedAt: new Date(Date.now() - 60_000) } });
    const asked: string[] = [];
    const open = (embed: Promise<null>) =>
      insights.openProjection({
        token: 'one',
        changed: conversations.changed,
        embedding: {
          embed: async (_texts, assistantId) => {
            asked.push(assistantId);
            return embed;
          },
          model: () => 'silent',
        },
        listAssistantIds: assistants.listAssistantIds,
        draining: new AbortController().signal,
        logger: createLogger({ name: 'test', level: 'silent' }),
      });
    const answer = Promise.withResolvers<null>();
    const projection = open(answer.promise);

    await eventually(async () => {
      await projection.round();
      expect(await find(own, assistant, 'basement')).toEqual([conversationId]);
    });
    const grouping = [projection.groupMisses(), projection.groupMisses()];
    await eventually(() => expect(asked).toContain(assistant.assistantId));
    await projection.round();
    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(1);
    answer.resolve(null);
    await Promise.all(grouping);
    await projection.groupMisses();

    const groups = await mongo.collection('misses').find({ assistantId: assistant.assistantId }).toArray();
    expect(groups.map(({ count }) => count)).toEqual([1]);
    expect(await mongo.collection('pendingMisses').countDocuments()).toBe(0);
  }));

test('deliveries that cannot be counted for one assistant are counted for all others', async () => {
  const ids = [newId(), newId(), newId()];
  const [, slow] = ids;
  const { deliveryFigures, figures } = stack.service.insights;
  const hour = new Date(lastEndedHour().getTime() - 3_600_000);
  const draining = new AbortController().signal;
  const logger = createLogger({ name: 'test', level: 'silent' });
  const countHours = async (assistantId: string, { to }: { from: Date; to: Date }) => {
    if (assistantId === slow) throw new Error('operation exceeded time limit');
    return to > hour ? [{ hour, outcomes: { delivered: 1, rejected: 0, not_sent: 0, unknown: 0 } }] : [];
  };

  await eventually(async () => {
    expect(await deliveryFigures.countEnded(ids, countHours, { draining, logger })).toBe(false);
    for (const id of ids.filter((one) => one !== slow)) {
      expect(await figures.listHours(id, { from: hour })).toMatchObject([{ deliveries: { delivered: 1 } }]);
    }
  });

  expect(await deliveryFigures.countedTo(slow ?? '')).toBeNull();
});
