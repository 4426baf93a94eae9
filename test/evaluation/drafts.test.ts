import { beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/platform/process/ids.ts';
import { anAssistant, anEntry, aTurn, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, type Profiled, profileStatements } from '../support/profile.ts';
import { longTest, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
let anna: Awaited<ReturnType<typeof anOperator>>;
let ben: typeof anna;

beforeAll(async () => {
  [anna, ben] = [await anOperator(stack), await anOperator(stack)];
});

type Entry = {
  entryId: string;
  question: string;
  answer: string;
  edit?: { kind: string; by: { name: string } } | null;
};
type DraftBody = {
  drafts: boolean;
  version: number | null;
  revision: number;
  draft: {
    counts: Record<string, number | boolean>;
    settings: { field: string }[];
    entries: { kind: string; question: string; by: { name: string } }[];
  } | null;
};
type Version = { version: number; name: string | null; by: { name: string }; at: string };
type Listed = { versions: (Version & { note: string | null; changes: object; canRollBack: boolean })[] };

const HOURS = 'What are your opening hours?';

const withDrafts = async (...knowledge: ReturnType<typeof anEntry>[]) => {
  const assistant = await anAssistant(stack, knowledge.length > 0 ? { knowledge } : {});
  const own = `/assistants/${assistant.assistantId}`;
  expect((await anna.call('PATCH', own, { drafts: true })).body).toMatchObject({ drafts: true });
  const entries = async (draft = true) =>
    (await anna.get<{ entries: Entry[] }>(`${own}/knowledge?draft=${draft}`)).body.entries;
  return {
    ...assistant,
    anna,
    ben,
    own,
    entries,
    draft: async () => (await anna.get<DraftBody>(`${own}/draft`)).body,
    publish: (body: object = {}, who = anna) => who.post<Version>(`${own}/draft/publish`, body),
    rollBack: (to: number | string, body: object = {}, who = anna) =>
      who.post<Version>(`${own}/versions/${to}/roll-back`, body),
    versions: async () => (await anna.get<Listed>(`${own}/versions`)).body.versions,
    replaceAll: (...entries: (string | ReturnType<typeof anEntry>)[]) => {
      const text = JSON.stringify(entries.map((one) => (typeof one === 'string' ? anEntry({ question: one }) : one)));
      return anna.post(`${own}/knowledge-import`, { format: 'json', text, replace: true });
    },
    put: (who: typeof anna, entryId: string, answer: string, query = '') =>
      who.call('PUT', `${own}/knowledge/${entryId}${query}`, anEntry({ question: HOURS, answer })),
  };
};

/** Stores live entries of an assistant, as earlier versions have left them. */
const addLive = async (assistantId: string, entries: ReturnType<typeof anEntry>[], more: { since?: number } = {}) => {
  const rows = entries.map((entry, nth) => ({ ...entry, ...more, _id: newId(), position: 1_000 + nth, assistantId }));
  const { mongo } = stack.service;
  await mongo.collection<{ _id: string }>('knowledge').insertMany(rows);
  const places = { 'knowledgePlaces.last': 1_000 + rows.length };
  await mongo.collection<{ _id: string }>('assistants').updateOne({ _id: assistantId }, { $set: places });
  return rows;
};

/** What was written of the entries that are or were live. */
const writesIn = (statements: Profiled[]) =>
  statements.filter(
    (one) =>
      ['knowledge', 'pastEntries'].includes(collectionIn(one)) && ['insert', 'update', 'remove'].includes(one.op),
  );

/** What a visitor gets, and what decided it. */
const ask = async ({ chat }: TestAssistant, message = HOURS) => {
  const { body } = await chat(aTurn({ message }));
  return eventually(async () => {
    const line = stack.logs.find(
      ({ msg, conversationId }) => msg === 'turn ended' && conversationId === body.conversationId,
    );
    if (!line) throw new Error('the turn has not ended');
    return { reply: body.reply, why: line['why'] as Record<string, unknown> };
  });
};

test('without drafts a change is live at once, and nothing names a version', async () => {
  const owner = await anOperator(stack);
  const assistant = await anAssistant(stack);
  const own = `/assistants/${assistant.assistantId}`;
  const { entries } = (await owner.get<{ entries: Entry[] }>(`${own}/knowledge`)).body;

  await owner.call('PUT', `${own}/knowledge/${entries[0]?.entryId}`, anEntry({ answer: 'From 10 to 6.' }));

  const { reply, why } = await eventually(async () => {
    const asked = await ask(assistant);
    expect(asked.reply).toBe('From 10 to 6.');
    return asked;
  });
  expect([reply, 'version' in why]).toEqual(['From 10 to 6.', false]);
  expect((await owner.get(`${own}/draft`)).body).toEqual({ drafts: false, version: null, revision: 0, draft: null });
  expect(problemOf(await owner.post(`${own}/draft/publish`, {}))).toBe('409 conflict');
});

test('changes of two people lie in one draft, which visitors see once it is published, as one version', async () => {
  const { anna, ben, own, entries, draft, publish, put, ...assistant } = await withDrafts();
  const [hours] = await entries();
  expect(await draft()).toEqual({ drafts: true, version: 1, revision: 0, draft: null });

  await put(anna, hours?.entryId ?? '', 'From 10 to 6.');
  await ben.post(`${own}/knowledge`, anEntry({ question: 'Where can I park?', answer: 'Behind the house.' }));
  const patched = await ben.call('PATCH', own, { instructions: 'Be short.', name: 'Renamed' });

  expect(patched.body).toMatchObject({ instructions: 'Be short.', name: 'Renamed' });
  expect((await anna.get(own)).body).toMatchObject({ instructions: '', name: 'Renamed' });
  expect((await anna.get(`${own}?draft=true`)).body).toMatchObject({ instructions: 'Be short.' });
  expect(await entries(false)).toMatchObject([{ answer: 'We are open from 9 to 5.' }]);
  expect(await entries()).toMatchObject([
    { answer: 'From 10 to 6.', edit: { kind: 'changed', by: { name: anna.email } } },
    { answer: 'Behind the house.', edit: { kind: 'added', by: { name: ben.email } } },
  ]);
  expect(await draft()).toMatchObject({
    revision: 3,
    draft: {
      counts: { added: 1, changed: 1, removed: 0, isReplaced: false },
      settings: [{ field: 'instructions' }],
      entries: [{ kind: 'added' }, { kind: 'changed', question: HOURS }],
    },
  });
  expect(await ask(assistant)).toMatchObject({ reply: 'We are open from 9 to 5.', why: { version: 1 } });

  const published = await publish({ name: 'Winter', note: 'Later', seen: 3 });

  expect(published.body).toMatchObject({ version: 2, name: 'Winter', by: { name: anna.email } });
  await eventually(async () =>
    expect(await ask(assistant)).toMatchObject({ reply: 'From 10 to 6.', why: { version: 2 } }),
  );
  expect((await ask(assistant, 'Where can I park?')).reply).toBe('Behind the house.');
  expect((await anna.get(own)).body).toMatchObject({ instructions: 'Be short.' });
  expect(await draft()).toEqual({ drafts: true, version: 2, revision: 4, draft: null });
  expect((await anna.get(`${own}/versions`)).body).toMatchObject({
    versions: [
      { version: 2, changes: { added: 1, changed: 1, settings: ['instructions'] } },
      { version: 1, name: 'Drafts switched on' },
    ],
  });
  expect(problemOf(await publish())).toBe('409 conflict');
});

test('who has not seen the change of somebody else does not overwrite, publish or discard it', async () => {
  const { anna, ben, own, entries, draft, put } = await withDrafts();
  const [hours] = await entries();
  const entryId = hours?.entryId ?? '';
  await put(anna, entryId, 'From 10 to 6.');
  await ben.call('PATCH', own, { instructions: 'Be short.' });

  expect(problemOf(await put(ben, entryId, 'From 8.', '?seen=0'))).toBe('409 conflict entryId');
  expect(problemOf(await ben.call('DELETE', `${own}/knowledge/${entryId}?seen=0`))).toBe('409 conflict entryId');
  expect(problemOf(await anna.call('PATCH', `${own}?seen=1`, { instructions: 'Be long.' }))).toBe(
    '409 conflict instructions',
  );
  expect(problemOf(await anna.post(`${own}/draft/publish`, { seen: 1 }))).toBe('409 conflict revision');
  expect(problemOf(await anna.call('DELETE', `${own}/draft?seen=1`))).toBe('409 conflict revision');
  expect((await put(anna, entryId, 'From 11.', '?seen=0')).status).toBe(200);
  expect((await put(ben, entryId, 'From 8.', `?seen=${(await draft()).revision}`)).status).toBe(200);
  expect(problemOf(await anna.call('PATCH', own, { drafts: false }))).toBe('409 conflict');

  expect((await anna.call('DELETE', `${own}/draft`)).status).toBe(204);
  expect(await entries()).toMatchObject([{ answer: 'We are open from 9 to 5.', edit: null }]);
  expect((await anna.call('PATCH', own, { drafts: false })).body).toMatchObject({ drafts: false });
  await put(anna, entryId, 'From 7.');
  expect(await entries(false)).toMatchObject([{ answer: 'From 7.' }]);
});

test('an import that replaces, a removal and an entry added and removed again are published as they are shown', async () => {
  const { anna, own, entries, publish, replaceAll } = await withDrafts(
    ...['One?', 'Two?', 'Three?'].map((question) => anEntry({ question })),
  );
  const [one, two] = await entries();
  const questions = async (draft = true) => (await entries(draft)).map(({ question }) => question);
  const add = async (question: string) =>
    (await anna.post<Entry>(`${own}/knowledge`, anEntry({ question }))).body.entryId;
  await anna.call('DELETE', `${own}/knowledge/${two?.entryId}`);
  expect(problemOf(await anna.call('DELETE', `${own}/knowledge/${two?.entryId}`))).toBe('404 not_found');
  await anna.call('DELETE', `${own}/knowledge/${await add('Five?')}`);
  await add('Four?');
  expect(await questions()).toEqual(['One?', 'Three?', 'Four?']);
  await publish();
  expect(await questions(false)).toEqual(['One?', 'Three?', 'Four?']);

  await replaceAll('New?', 'Next?');
  await add('Last?');

  expect(await questions()).toEqual(['New?', 'Next?', 'Last?']);
  expect(problemOf(await anna.call('PUT', `${own}/knowledge/${one?.entryId}`, anEntry()))).toBe('404 not_found');
  expect(await questions(false)).toEqual(['One?', 'Three?', 'Four?']);
  await publish();
  expect(await questions(false)).toEqual(['New?', 'Next?', 'Last?']);
  expect(await questions()).toEqual(['New?', 'Next?', 'Last?']);
});

test('each of the versions comes back with its entries, in their order, and its settings', async () => {
  const { anna, own, entries, publish, put, rollBack, versions, replaceAll, ...assistant } = await withDrafts(
    ...[HOURS, 'Two?', 'Three?'].map((question) => anEntry({ question })),
  );
  const add = async (question: string) =>
    (await anna.post<Entry>(`${own}/knowledge`, anEntry({ question }))).body.entryId;
  const remove = (entryId: string) => anna.call('DELETE', `${own}/knowledge/${entryId}`);
  const instruct = (instructions: string) => anna.call('PATCH', own, { instructions });
  const live = async () => [
    (await entries(false)).map(({ entryId, question, answer }) => ({ entryId, question, answer })),
    (await anna.get<{ instructions: string }>(own)).body.instructions,
  ];
  const [hours = '', two = ''] = (await entries()).map(({ entryId }) => entryId);
  const wasLive = [[], await live()];
  let late = '';
  const steps = [
    () => put(anna, hours, 'From 10.'),
    async () => {
      late = await add('Late?');
      await Promise.all([remove(two), instruct('Be short.')]);
    },
    async () => Promise.all([put(anna, hours, 'From 11.'), anna.call('PUT', `${own}/knowledge/${late}`, anEntry())]),
    () => rollBack(2),
    () => Promise.all([remove(hours), add('More?')]),
    () => rollBack(4, { note: 'It was better.' }),
    async () => [await replaceAll('New?'), await instruct('Be long.')],
    () => put(anna, '', ''), // nothing
    () => rollBack(7),
  ];
  for (const step of steps) {
    await step();
    await publish();
    if ((await versions())[0]?.version === wasLive.length) wasLive.push(await live());
  }
  expect(wasLive).toHaveLength(10);
  for (const [version, back] of [2, 4, 7].entries()) expect(wasLive[[5, 7, 9][version] ?? 0]).toEqual(wasLive[back]);

  for (const version of [8, 1, 6, 3, 9, 5]) {
    const made = await rollBack(version);
    expect([version, made.status, await live()]).toEqual([version, 200, wasLive[version]]);
  }

  expect((await versions())[8]).toMatchObject({
    version: 7,
    note: 'Back to version 4. It was better.',
    changes: { added: 2, changed: 0, removed: 2, isReplaced: false, settings: ['instructions'] },
  });
  expect(problemOf(await rollBack(15))).toBe('409 conflict');
  expect(problemOf(await rollBack(2, { live: 14 }))).toBe('409 conflict live');
  expect(problemOf(await rollBack(99))).toBe('404 not_found');
  expect(problemOf(await rollBack('x'))).toBe('404 not_found');
  expect((await rollBack(2, { live: 15 })).status).toBe(200);
  await eventually(async () => expect(await ask(assistant)).toMatchObject({ reply: 'From 10.', why: { version: 16 } }));
});

longTest('each of the last 50 versions comes back, and no older one', async () => {
  const { anna, entries, publish, put, rollBack, versions } = await withDrafts();
  const [hours] = await entries();
  for (let version = 2; version <= 52; version += 1) {
    await put(anna, hours?.entryId ?? '', `Answer ${version}.`);
    expect((await publish()).status).toBe(200);
  }

  const listed = await versions();

  expect(listed.map(({ version }) => version)).toEqual(Array.from({ length: 50 }, (_, nth) => 52 - nth));
  expect(listed.filter(({ canRollBack }) => !canRollBack).map(({ version }) => version)).toEqual([52]);
  expect(problemOf(await rollBack(2))).toBe('404 not_found');
  expect((await rollBack(3)).status).toBe(200);
  expect(await entries(false)).toMatchObject([{ answer: 'Answer 3.' }]);
});

test('a roll back leaves the draft of others as it is, and what they changed is published at its place', async () => {
  const { anna, ben, own, entries, draft, publish, put, rollBack } = await withDrafts();
  const [hours] = await entries();
  const add = async (question: string) =>
    (await anna.post<Entry>(`${own}/knowledge`, anEntry({ question }))).body.entryId;
  const [gone, removed] = [await add('Gone?'), await add('Removed?')];
  await publish();
  await put(ben, gone, 'Kept.');
  await ben.call('DELETE', `${own}/knowledge/${removed}`);
  await ben.call('PATCH', own, { instructions: 'Be short.' });
  await ben.post(`${own}/knowledge`, anEntry({ question: 'New?' }));
  const { revision, draft: before } = await draft();

  expect((await rollBack(1)).status).toBe(200);

  expect(await draft()).toEqual({ drafts: true, version: 3, revision: revision + 1, draft: before });
  expect((await entries(false)).map(({ entryId }) => entryId)).toEqual([hours?.entryId]);
  const drafted = [{ entryId: hours?.entryId }, { entryId: gone, answer: 'Kept.' }, { question: 'New?' }];
  expect(await entries()).toMatchObject(drafted);
  expect(problemOf(await publish({ seen: revision }))).toBe('409 conflict revision');
  expect((await publish()).status).toBe(200);
  expect(await entries(false)).toMatchObject(drafted);
  await rollBack(2);
  expect((await entries(false)).map(({ entryId }) => entryId)).toEqual([hours?.entryId, gone, removed]);
});

test('a roll back brings back a provider with its key, unless another key was set for it since', async () => {
  const { anna, own, publish, rollBack } = await withDrafts();
  const stored = async () => {
    const { engine } = await stack.service.assistants.getAssistant(own.split('/')[2] ?? '');
    return engine.kind === 'retrieval' ? 'retrieval' : [engine.model, engine.apiKeySealed];
  };
  const set = async (engine: object) => {
    await anna.call('PUT', `${own}/engine`, engine);
    await publish();
    return stored();
  };
  const provider = { kind: 'openai', baseUrl: 'https://models.example/v1' };
  const [, first] = await set({ ...provider, model: 'first', apiKey: 'sk-first' });
  const [, second] = await set({ ...provider, model: 'second', apiKey: 'sk-second' });
  expect(second).not.toBe(first);

  await rollBack(2);
  expect(await stored()).toEqual(['first', second]);
  await rollBack(1);
  expect(await stored()).toBe('retrieval');
  await rollBack(2);
  expect(await stored()).toEqual(['first', first]);
});

test('replaced entries are kept within bounds, and end with drafts', async () => {
  const { anna, own, entries, publish, put, rollBack, versions, replaceAll, assistantId } = await withDrafts();
  const [hours] = await entries();
  const past = stack.service.mongo.collection('pastEntries');
  const kept = async () => (await past.find({ assistantId }).toArray()).map(({ until }) => until as number);
  const back = async () => (await versions()).flatMap(({ version, canRollBack }) => (canRollBack ? version : []));
  for (const version of [2, 3, 4]) {
    await put(anna, hours?.entryId ?? '', `Answer ${version}.`);
    await publish();
  }
  expect([await back(), await kept()]).toEqual([
    [3, 2, 1],
    [2, 3, 4],
  ]);
  const stored = stack.service.mongo.collection<{ _id: string; version: number }>('versions');
  await stored.updateOne({ assistantId, version: 3 }, { $set: { pastBytes: 128_000_000 } });
  await replaceAll('New?');
  await publish();

  expect([await back(), await kept()]).toEqual([
    [4, 3],
    [4, 5],
  ]);
  expect(problemOf(await rollBack(2))).toBe('409 conflict');

  for (const drafts of [false, true]) await anna.call('PATCH', own, { drafts });
  expect([await back(), await kept()]).toEqual([[], []]);
  expect(problemOf(await rollBack(5))).toBe('409 conflict');
});

test('a draft that would make too many entries is refused before anything is written', async () => {
  const { anna, own, publish, rollBack, assistantId } = await withDrafts();
  const [first, second] = await addLive(
    assistantId,
    Array.from({ length: 9_999 }, () => anEntry()),
  );
  const add = async () => (await anna.post<Entry>(`${own}/knowledge`, anEntry())).body.entryId;
  const remove = (entryId = '') => anna.call('DELETE', `${own}/knowledge/${entryId}`);
  await remove(first?._id);
  const added = await add();
  await publish();
  await remove(added);
  await add();
  await rollBack(1); // so the draft removes an entry that is no longer live

  const statements = await profileStatements(stack, async () =>
    expect(problemOf(await publish())).toBe('409 conflict'),
  );

  expect(writesIn(statements)).toEqual([]);
  expect(await stack.service.mongo.collection('knowledge').countDocuments({ assistantId })).toBe(10_000);
  await remove(second?._id);
  expect((await publish()).body).toMatchObject({ version: 4 });
});

/** 88 KB, about as many as an entry may have. */
const aLargeEntry = () => {
  const wide = (length: number) => '語'.repeat(length);
  return anEntry({ variants: Array.from({ length: 50 }, () => wide(500)), answer: wide(4_000) });
};

test('what a draft changes or removes counts as a part of it', async () => {
  const { anna, own, entries, draft, put } = await withDrafts(aLargeEntry(), aLargeEntry(), anEntry());
  const [large = '', another = '', small = ''] = (await entries()).map(({ entryId }) => entryId);
  const drafts = stack.service.mongo.collection<{ _id: string; bytes: number }>('drafts');
  const filter = { _id: own.split('/')[2] ?? '' };
  const bytes = async () => (await drafts.findOne(filter))?.bytes ?? 0;
  const remove = (entryId: string) => anna.call('DELETE', `${own}/knowledge/${entryId}`);
  const counted: number[] = [];
  for (const step of [() => put(anna, large, 'Short.'), () => put(anna, large, 'Short!'), () => remove(large)]) {
    expect((await step()).status).toBeLessThan(300);
    counted.push(await bytes());
  }
  expect(Math.min(...counted)).toBeGreaterThan(88_000);
  expect(counted[1]).toBe(counted[0]);
  expect(counted[0]! - counted[2]!).toBeLessThan(1_000);
  await drafts.updateOne(filter, { $set: { bytes: 31_950_000 } });

  expect(problemOf(await remove(another))).toBe('422 validation_failed knowledge');
  expect(problemOf(await put(anna, another, 'Short.'))).toBe('422 validation_failed knowledge');
  expect((await remove(small)).status).toBe(204);
  expect((await draft()).draft?.counts).toMatchObject({ changed: 0, removed: 2 });
});

test('a version writes within bounds, however much is live', async () => {
  const { anna, own, entries, draft, publish, rollBack, replaceAll, versions, assistantId } = await withDrafts();
  await anna.call('PATCH', own, { instructions: 'Be short.' });
  await publish();
  const rows = await addLive(assistantId, Array.from({ length: 380 }, aLargeEntry), { since: 2 });
  const { mongo } = stack.service;
  const [knowledge, vectors] = ['knowledge', 'knowledgeVectors'].map((name) => mongo.collection<{ _id: string }>(name));

  // Drafts of a time when removals were not counted.
  await anna.call('DELETE', `${own}/knowledge/${rows[0]?._id}`);
  const edits = mongo.collection<{ _id: string }>('draftEntries');
  const edit = await edits.findOne({ assistantId });
  await edits.insertMany(rows.slice(1).map(({ _id, position }) => ({ ...edit, _id, position })));
  const refused = await profileStatements(stack, async () => {
    expect(problemOf(await rollBack(1))).toBe('409 conflict');
    expect(problemOf(await publish())).toBe('409 conflict');
  });
  expect(writesIn(refused)).toEqual([]);
  await anna.call('DELETE', `${own}/draft`);

  await replaceAll('New?');
  const statements = await profileStatements(stack, async () =>
    expect((await publish()).body).toMatchObject({ version: 3, changes: { added: 1, isReplaced: true } }),
  );

  const inOrder = statements.map((one) => `${collectionIn(one)} ${one.op}`);
  expect(inOrder.indexOf('knowledge remove')).toBeGreaterThan(inOrder.indexOf('versions insert'));
  expect(await entries(false)).toMatchObject([{ question: 'New?' }]);
  expect(await knowledge?.countDocuments({ assistantId })).toBe(1);
  expect((await versions()).filter(({ canRollBack }) => canRollBack)).toEqual([]);
  expect(problemOf(await rollBack(2))).toBe('409 conflict');

  // A kill after the transaction leaves hidden entries, which the next version removes.
  await knowledge?.insertMany(rows.slice(0, 2));
  await vectors?.insertMany(
    rows.slice(0, 2).map(({ _id }) => ({ _id, assistantId, live: true, model: 'm', hash: '' })),
  );
  await anna.post(`${own}/knowledge`, anEntry());
  expect(await entries(false)).toMatchObject([{ question: 'New?' }]);
  expect((await draft()).draft?.counts).toMatchObject({ added: 1 });
  await publish();
  expect(await knowledge?.countDocuments({ assistantId })).toBe(2);
  expect(await vectors?.countDocuments({ assistantId, live: true })).toBe(0);
  expect((await rollBack(3)).status).toBe(200);
  expect(await entries(false)).toMatchObject([{ question: 'New?' }]);
});

test('while versions are published and rolled back, each turn is answered by the entries and the settings of one of them', async () => {
  const { anna, ben, own, entries, publish, put, rollBack, ...assistant } = await withDrafts();
  const [hours] = await entries();
  await put(anna, hours?.entryId ?? '', 'Answer 2.');
  await anna.call('PATCH', own, { threshold: 0.002 });
  await publish();
  const published = sized({ everyday: [3], long: [3, 4, 5] });
  const [last, back] = sized({ everyday: [3, 2], long: [5, 3] });
  let isOver = false;
  const seen = new Set<number>();
  const visitor = async (): Promise<void> => {
    while (!isOver) {
      const { reply, why } = await ask(assistant);
      if (why['version'] === 1) continue;
      const version = Number(why['version']);
      const content = version > last ? back : version;
      expect([reply, why['threshold']]).toEqual([`Answer ${content}.`, content / 1_000]);
      seen.add(version);
    }
  };
  const visitors = Array.from({ length: sized({ everyday: 1, long: 3 }) }, visitor);

  for (const version of published) {
    await put(anna, hours?.entryId ?? '', `Answer ${version}.`);
    await anna.call('PATCH', own, { threshold: version / 1_000 });
    const both = await Promise.all([publish(), publish()]);
    expect(both.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    await eventually(() => expect(seen).toContain(version));
  }
  const both = await Promise.all([rollBack(back, { live: last }), rollBack(back, { live: last }, ben)]);
  expect(both.map(({ status }) => status).toSorted()).toEqual([200, 409]);
  await eventually(() => expect(seen).toContain(last + 1));

  isOver = true;
  await Promise.all(visitors);
});

/** An assistant in the middle of a publishing, which ends with `commit`. */
const aLongPublishing = async () => {
  const { anna, own, assistantId } = await withDrafts();
  const session = await stack.service.mongo.startSession();
  session.startTransaction();
  const assistants = stack.service.mongo.collection<{ _id: string }>('assistants');
  await assistants.updateOne({ _id: assistantId }, { $inc: { version: 1 } }, { session });
  const commit = async (): Promise<void> => {
    await session.commitTransaction();
    await session.endSession();
  };
  return { anna, own, commit };
};

longTest('a change that meets a long publishing is 503 after a while', async () => {
  const { anna, own, commit } = await aLongPublishing();

  expect(problemOf(await anna.call('PATCH', own, { name: 'Late' }))).toBe('503 unavailable');

  await commit();
});

test('a change that meets a long publishing waits for it', async () => {
  const { anna, own, commit } = await aLongPublishing();
  const database = stack.service.mongo.db!;
  await database.command({ profile: 2 });

  const changed = anna.call('PATCH', own, { name: 'In time' });
  const conflict = { ns: `${database.databaseName}.assistants`, errName: 'WriteConflict' };
  await eventually(async () => expect(await database.collection('system.profile').findOne(conflict)).not.toBeNull());
  await database.command({ profile: 0 });
  await commit();

  expect((await changed).body).toMatchObject({ name: 'In time' });
});

test('the changes of a draft are counted without reading them', async () => {
  const { own, anna, draft, replaceAll } = await withDrafts();
  await replaceAll(...Array.from({ length: 300 }, (_, nth) => `What is offer ${nth}?`));

  const statements = await profileStatements(stack, async () => {
    expect((await draft()).draft?.counts).toMatchObject({ added: 300 });
    expect((await anna.post(`${own}/knowledge`, anEntry({ question: 'One more?' }))).status).toBe(201);
  });

  const read = statements.filter((one) => collectionIn(one) === 'draftEntries');
  // The draft shows the newest 100.
  expect(read.reduce((sum, { docsExamined = 0 }) => sum + docsExamined, 0)).toBe(100);
});

test('a draft is read once at a time, with rests, however many read it', async () => {
  const { own, draft, replaceAll } = await withDrafts();
  await replaceAll(...Array.from({ length: 900 }, (_, nth) => `What is offer ${nth}?`));
  const ends: number[] = [];

  const readers = [anna, ben, await anOperator(stack), await anOperator(stack)];
  await Promise.all(readers.map((one) => one.get(`${own}/draft`).finally(() => ends.push(performance.now()))));

  expect((await draft()).draft?.counts).toMatchObject({ added: 900 });
  const pauses = ends.slice(1).map((end, nth) => end - Number(ends[nth]));
  expect(Math.min(...pauses)).toBeGreaterThan(12);
});

test('comparisons read a draft once at a time, with rests, however many begin', async () => {
  const { own, replaceAll } = await withDrafts();
  await replaceAll(...Array.from({ length: 900 }, (_, nth) => `What is offer ${nth}?`));
  const ends: number[] = [];
  const body = { real: { limit: 2 }, against: 'draft', tokens: 10 };

  const people = [anna, ben, await anOperator(stack), await anOperator(stack)];
  const begin = async (one: typeof anna): Promise<void> => {
    expect(problemOf(await one.post(`${own}/evaluations`, body))).toBe('422 validation_failed tokens');
    ends.push(performance.now());
  };
  await Promise.all(people.map(begin));

  const pauses = ends.slice(1).map((end, nth) => end - Number(ends[nth]));
  expect(Math.min(...pauses)).toBeGreaterThan(12);
});

test('drafts that are published at the same time are written one after the other', async () => {
  const owners = [await withDrafts(), await withDrafts(), await withDrafts()];
  const questions = Array.from({ length: sized({ everyday: 100, long: 500 }) }, (_, nth) => `What is offer ${nth}?`);
  for (const { replaceAll } of owners) expect((await replaceAll(...questions)).status).toBe(200);

  const statements = await profileStatements(stack, () =>
    Promise.all(owners.map(async ({ publish }) => expect((await publish()).body).toMatchObject({ version: 2 }))),
  );

  const transactionOf = ({ command }: Profiled) => JSON.stringify([command['lsid'], command['txnNumber']]);
  const made = new Set(
    statements.filter((one) => collectionIn(one) === 'versions' && one.op === 'insert').map(transactionOf),
  );
  const order = statements.map(transactionOf).filter((one) => made.has(one));
  expect(made.size).toBe(3);
  expect(order.filter((one, nth) => one !== order[nth - 1])).toHaveLength(3);
});

/** Begins something, and waits until its transaction writes entries. */
const untilItWrites = async <Begun>(begin: () => Begun): Promise<{ begun: Begun }> => {
  const database = stack.service.mongo.db!;
  const places = ['knowledge', 'pastEntries'].map((name) => `${database.databaseName}.${name}`);
  const written = { ns: { $in: places }, op: { $in: ['insert', 'remove'] } };
  const ts = { $gte: new Date() };
  await database.command({ profile: 2 });
  const begun = begin();
  await eventually(async () =>
    expect(await database.collection('system.profile').findOne({ ...written, ts })).not.toBeNull(),
  );
  await database.command({ profile: 0 });
  return { begun };
};
const questionsOf = (word: string, count: number) =>
  Array.from({ length: count }, (_, nth) => `What is ${word} ${nth}?`);

test('a roll back of a few entries does not wait for large versions of others', async () => {
  const neighbour = await withDrafts();
  const [hours] = await neighbour.entries();
  await neighbour.put(anna, hours?.entryId ?? '', 'From 10 to 6.');
  await neighbour.publish();
  const owners = [await withDrafts(), await withDrafts(), await withDrafts()];
  for (const { replaceAll } of owners) await replaceAll(...questionsOf('offer', 1_000));
  const people = [anna, ben, await anOperator(stack)]; // a session waits for its own requests
  let made = 0;

  const { begun } = await untilItWrites(() =>
    owners.map(({ publish }, nth) => publish({}, people[nth]).finally(() => (made += 1))),
  );
  const back = await neighbour.rollBack(1, {}, ben);
  const madeBefore = made;

  expect(back.body).toMatchObject({ version: 3 });
  expect(madeBefore).toBeLessThan(3);
  for (const { status } of await Promise.all(begun)) expect(status).toBe(200);
});

test('a version of a hundred entries does not wait for much larger ones of others', async () => {
  const neighbour = await withDrafts();
  await neighbour.replaceAll(...questionsOf('room', 100));
  const owners = [await withDrafts(), await withDrafts()];
  const long = questionsOf('offer', 300).map((question) => anEntry({ question, answer: 'x'.repeat(4_000) }));
  for (const { replaceAll } of owners) await replaceAll(...long);
  const people = [anna, await anOperator(stack)]; // a session waits for its own requests
  let made = 0;

  const { begun } = await untilItWrites(() =>
    owners.map(({ publish }, nth) => publish({}, people[nth]).finally(() => (made += 1))),
  );
  const published = await neighbour.publish({}, ben);
  const madeBefore = made;

  expect(published.body).toMatchObject({ version: 2 });
  expect(madeBefore).toBeLessThan(2);
  const all = await Promise.all(begun);
  expect(all.map(({ status }) => status)).toEqual([200, 200]);
});

test('after a large version its assistant rests for as long as that took before it makes the next one', async () => {
  const { replaceAll, publish, rollBack, versions } = await withDrafts();
  for (const word of ['offer', 'room']) {
    await replaceAll(...questionsOf(word, 1_000));
    await publish();
  }

  const statements = await profileStatements(stack, async () => {
    for (const to of [1, 2]) expect((await rollBack(to)).status).toBe(200);
  });

  const [stored] = statements.filter((one) => collectionIn(one) === 'versions' && one.op === 'insert');
  const [second, first] = (await versions()).map(({ at }) => Date.parse(at));
  const end = stored!.ts.getTime(); // a version is stored last
  expect(second! - end).toBeGreaterThan(Math.min(4_000, 0.9 * (end - first!)));
});
