import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { createChangedConversations } from '../../src/insights/changed-conversations.ts';
import { createGroupMisses } from '../../src/insights/group-misses.ts';
import { createProject } from '../../src/insights/project.ts';
import { newId } from '../../src/platform/ids.ts';
import { createLogger } from '../../src/platform/logger.ts';
import { anAssistant, anEntry, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openStack, type Stack, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

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
  eventually(async () => expect(await find(on, assistant, text)).toContain(id), 20_000);

const withStack = async (run: (own: Stack) => Promise<void>, replyWorkers = 1): Promise<void> => {
  const own = await openStack({ deliveryWorkers: 0, replyWorkers });
  try {
    await run(own);
  } finally {
    await own.close();
  }
};

test('conversations are found by words of any message, the last one as a beginning, by id and by session id', async () => {
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

test('figures tell how turns ended, and count each message once', async () => {
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
  await eventually(async () => expect(await sumsOf(stack, assistant.assistantId)).toEqual(expected), 20_000);
  await say(assistant, ['And the basement light?']);
  await eventually(async () => expect((await sumsOf(stack, assistant.assistantId))['turns']).toBe(6), 20_000);

  const sums = await sumsOf(stack, assistant.assistantId);
  expect(sums).toEqual({ ...expected, turns: 6, notAnswered: 2 });
});

test('a resolution that release 0.1 stored counts once', async () => {
  const assistant = await anAssistant(stack);
  const owner = await anOperator(stack);
  const { conversationId } = await say(assistant, ['Hello!']);
  await stack.service.mongo
    .collection('conversations')
    .updateOne({ conversationId }, { $set: { status: 'resolved', resolvedAt: new Date(), updatedAt: new Date() } });
  const resolved = async () => (await sumsOf(stack, assistant.assistantId))['resolved'];
  await eventually(async () => expect(await resolved()).toBe(1), 20_000);

  for (const change of ['reopen', 'resolve']) await owner.post(`/conversations/${conversationId}/${change}`, {});

  await eventually(async () => expect(await resolved()).toBe(2), 20_000);
});

test('an erased conversation is not found any more, and is not projected again', async () => {
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

test('a conversation that is erased while it is projected leaves nothing', async () => {
  const assistant = await anAssistant(stack);
  const { conversationId } = await say(assistant, ['A submarine, please']);
  const { mongo, insights } = stack.service;
  const stored = await mongo.collection('conversations').findOne({ conversationId });
  const changed = createChangedConversations(mongo);
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
    groupMisses: createGroupMisses(mongo, NO_MODEL),
    erase: insights.eraseConversations,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });

  await project([String(stored?._id)]);

  expect(stored).not.toBeNull();
  expect(await mongo.collection('search').findOne({ _id: conversationId as never })).toBeNull();
});

test('a step learns at most 50 lessons, and the others in later steps', () =>
  withStack(async (own) => {
    const assistant = await anAssistant(own);
    const { mongo, insights } = own.service;
    const worker = await own.startReplyWorker();
    const owner = await anOperator(own);
    for (const replies of [60, 30]) {
      const { conversationId } = await say(assistant, ['Does the moon have a basement?']);
      for (let nth = 0; nth < replies; nth += 1)
        expect((await owner.post(`/conversations/${conversationId}/replies`, { content: `reply ${nth}` })).status).toBe(
          201,
        );
    }
    await worker.close();
    for (const name of ['search', 'figures', 'misses', 'projection']) await mongo.collection(name).deleteMany({});
    const stored = await mongo.collection<{ _id: string }>('conversations').find().toArray();
    const steps: number[] = [];
    const groupMisses = createGroupMisses(mongo, NO_MODEL);
    const project = createProject({
      connection: mongo,
      changed: createChangedConversations(mongo),
      figures: insights.figures,
      groupMisses: (learners) => {
        steps.push(learners.flatMap(({ lessons }) => lessons).length);
        return groupMisses(learners);
      },
      erase: insights.eraseConversations,
      logger: createLogger({ name: 'test', level: 'silent' }),
    });

    let keys = stored.map(({ _id }) => _id);
    while (keys.length > 0) keys = (await project(keys)).behind;

    expect(Math.max(...steps)).toBe(50);
    expect(steps.reduce((sum, lessons) => sum + lessons, 0)).toBe(92);
    expect(await sumsOf(own, assistant.assistantId)).toMatchObject({ turns: 2, operatorReplies: 90 });
  }, 0));

test('lists over many assistants are read from an index in order', () =>
  withStack(async ({ service: { mongo, insights } }) => {
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
    const changed = await createChangedConversations(mongo).listAfter(assistantIds, start, 3);

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
  }, 0));

test('conversations from before an upgrade are projected in the background, also long ones', () =>
  withStack(async (own) => {
    const assistant = await anAssistant(own, { knowledge: [anEntry({ question: 'Where is it?' })] });
    const worker = await own.startReplyWorker();
    const long = await say(
      assistant,
      Array.from({ length: 30 }, (_, nth) => `message number n${nth}`),
    );
    const short = await say(assistant, ['an early bird']);
    await worker.close();
    const { mongo } = own.service;
    // As if no release before had a projection.
    for (const name of ['search', 'figures', 'projection']) await mongo.collection(name).deleteMany({});
    const hourAgo = new Date(Date.now() - 3_600_000);
    await mongo.collection('conversations').updateMany({}, { $set: { updatedAt: hourAgo } });

    await own.startReplyWorker();

    await isFound(own, assistant, 'n0 n29', long.conversationId);
    await isFound(own, assistant, 'early bird', short.conversationId);
    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(31);
    await eventually(async () => {
      expect(await mongo.collection('projection').findOne({})).toMatchObject({ back: null });
    });
  }, 0));

test('two workers count each message once, and a worker that stops hands over', () =>
  withStack(async (own) => {
    const assistant = await anAssistant(own);
    const [first, second] = [await own.startReplyWorker(), await own.startReplyWorker()];
    for (let nth = 0; nth < 20; nth += 1) await say(assistant, [`parcel p${nth}`, 'thanks']);
    await eventually(async () => expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(40), 20_000);
    await first.close();
    const { conversationId } = await say(assistant, ['after the first worker']);
    await isFound(own, assistant, 'after first', conversationId);
    await own.startReplyWorker();
    await second.close();
    const late = await say(assistant, ['after the second worker']);
    await isFound(own, assistant, 'after second', late.conversationId);

    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(42);
  }, 0));

test('two leaders at the same moment count each message once', () =>
  withStack(async (own) => {
    const assistant = await anAssistant(own);
    const { insights, assistants, mongo } = own.service;
    const draining = new AbortController().signal;
    const worker = await own.startReplyWorker();
    for (let nth = 0; nth < 30; nth += 1) await say(assistant, [`race r${nth}`]);
    await worker.close();
    for (const name of ['search', 'figures', 'projection']) await mongo.collection(name).deleteMany({});
    await mongo.collection('conversations').updateMany({}, { $set: { updatedAt: new Date(Date.now() - 60_000) } });
    const logger = createLogger({ name: 'test', level: 'silent' });
    const open = (token: string) =>
      insights.openProjection({
        token,
        embedding: NO_MODEL,
        listAssistantIds: assistants.listAssistantIds,
        draining,
        logger,
      });
    const [one, other] = [open('one'), open('other')];
    await one.round();
    for (const name of ['search', 'figures']) await mongo.collection(name).deleteMany({});
    const start = { back: { assistantId: '', at: new Date(), id: '~' } };

    // Both believe that they are the leader: the lease of each is expired while it works.
    for (let nth = 0; nth < 6; nth += 1) {
      await mongo.collection('projection').updateOne({}, { $set: start, $unset: { lease: '' } });
      const rounds = [one.round()];
      await eventually(async () => expect((await mongo.collection('projection').findOne({}))?.['lease']).toBeDefined());
      await mongo.collection('projection').updateOne({}, { $unset: { lease: '' } });
      rounds.push(other.round());
      await Promise.allSettled(rounds);
    }

    await eventually(async () => {
      await one.round();
      expect(await find(own, assistant, 'race')).toHaveLength(30);
    });
    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(30);
  }, 0));

test('one bad document does not stop the others', () =>
  withStack(async (own) => {
    const assistant = await anAssistant(own);
    const bad = await say(assistant, ['a poisoned one']);
    const { mongo } = own.service;
    await mongo
      .collection('conversations')
      .updateOne({ conversationId: bad.conversationId }, { $set: { texts: { 1: 'not a list' } } });

    const good = await say(assistant, ['a healthy one']);

    await isFound(own, assistant, 'healthy', good.conversationId);
    await eventually(() =>
      expect(own.logs).toContainEqual(
        expect.objectContaining({ msg: 'a conversation was not projected', conversationId: bad.conversationId }),
      ),
    );
    expect((await sumsOf(own, assistant.assistantId))['turns']).toBe(1);
  }));

test('a hostile conversation has a bounded number of words, and harms no other', async () => {
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
