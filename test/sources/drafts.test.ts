import { afterEach, beforeAll, expect, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { evaluateWith } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { QUICK, readingOf } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';
import { aPage, openWebsite, type Website } from '../kit/website.ts';

const stack = useStack({ deliveryWorkers: 0, sourcesWorkers: 1, timing: QUICK });
let anna: Awaited<ReturnType<typeof anOperator>>;
let ben: typeof anna;
beforeAll(async () => {
  [anna, ben] = [await anOperator(stack), await anOperator(stack)];
});
const opened: Website[] = [];
afterEach(() => Promise.all(opened.splice(0).map((site) => site.close())));

type Edit = { kind: string; by: { name: string } } | null;
type Source = { sourceId: string; name: string; state: string; edit: Edit; counts: { passages: number } };
type Draft = {
  revision: number;
  draft: { counts: object; sources: { sourceId: string; kind: string; name: string; by: { name: string } }[] } | null;
};
type Version = { version: number; canRollBack: boolean; note: string | null; changes: { sources: object } };

const QUESTION = 'How long does a refund take?';
const refund = (days: string): string => `A refund takes ${days} working days. The money goes back to your card.`;

/** An assistant with drafts, that answers even if it is hardly sure. */
const withDrafts = async (input: object = {}) => {
  const assistant = await anAssistant(stack, { knowledge: [], input: { threshold: 0.01, drafts: true, ...input } });
  const own = `/assistants/${assistant.assistantId}`;
  await anna.post(`${own}/draft/publish`, {});
  const reading = readingOf(stack);
  const list = async () => (await anna.get<{ sources: Source[] }>(`${own}/sources`)).body.sources;
  return {
    ...assistant,
    ...reading,
    own,
    list,
    editsOf: async () => (await list()).map(({ name, edit }) => [name, edit?.kind ?? null, edit?.by.name ?? null]),
    /** Adds a page that says how long refunds take, and waits until it is read. */
    addPage: async (days: string, who = anna): Promise<string> => {
      const site = await openWebsite({ '/': aPage('Refunds', refund(days)) });
      opened.push(site);
      const page = { kind: 'page', url: `${site.url}/`, name: days };
      const { status, body } = await who.post<Source>(`${own}/sources`, page);
      expect(status).toBe(201);
      await reading.ended(body.sourceId);
      return body.sourceId;
    },
    upload: async (name: string, text: string): Promise<string> => {
      const type = { 'Content-Type': 'application/octet-stream' };
      const path = `${own}/source-files?name=${name}`;
      const { status, body } = await anna.call<Source>('POST', path, Buffer.from(text), type);
      expect(status).toBe(201);
      await reading.ended(body.sourceId);
      return body.sourceId;
    },
    remove: (sourceId: string, who = anna, query = '') => who.call('DELETE', `${own}/sources/${sourceId}${query}`),
    keep: (sourceId: string, who = anna, query = '') => who.post(`${own}/sources/${sourceId}/keep${query}`, {}),
    draft: async () => (await anna.get<Draft>(`${own}/draft`)).body,
    publish: async (body: object = {}) => {
      const { status, body: version } = await anna.post<Version>(`${own}/draft/publish`, body);
      expect([status, version]).toMatchObject([200, { version: expect.any(Number) }]);
      return version;
    },
    rollBack: (to: number) => anna.post<Version>(`${own}/versions/${to}/roll-back`, {}),
    versions: async () => (await anna.get<{ versions: Version[] }>(`${own}/versions`)).body.versions,
    evaluate: evaluateWith(anna, own),
    /** The days that a reply to a visitor names. */
    daysNow: async (): Promise<string[]> => {
      const { body } = await assistant.chat(aTurn({ message: QUESTION }));
      return [...body.reply.matchAll(/takes (\w+) working/g)].map(([, days]) => days ?? '');
    },
  };
};

test('a source that is added in a draft is read at once, and answers visitors once it is published', async () => {
  const { addPage, chat, daysNow, draft, editsOf, evaluate, publish, versions } = await withDrafts();
  await chat(aTurn({ message: QUESTION }));

  const sourceId = await addPage('fourteen');

  expect(await editsOf()).toEqual([['fourteen', 'added', anna.email]]);
  expect(await draft()).toMatchObject({
    draft: {
      counts: { added: 0, changed: 0, removed: 0 },
      sources: [{ sourceId, kind: 'added', name: 'fourteen', by: { name: anna.email } }],
    },
  });
  const compared = await eventually(async () => {
    const run = await evaluate({ real: { limit: 1 }, against: 'draft' });
    expect(run.total).toBe(1);
    return run;
  });
  expect(compared.counts).toMatchObject({ better: 1 });
  expect(compared.results[0]?.reply).toContain('fourteen');
  expect(await daysNow()).toEqual([]);

  await publish();

  await eventually(async () => expect(await daysNow()).toEqual(['fourteen']));
  expect(await editsOf()).toEqual([['fourteen', null, null]]);
  expect((await versions())[0]).toMatchObject({ changes: { sources: { added: 1, removed: 0 } } });
});

test('a source that is removed in a draft answers until it is published, and a roll back brings it back as it was', async () => {
  const { addPage, daysNow, editsOf, evaluate, findSource, keep, list, publish, remove, rollBack, upload, versions } =
    await withDrafts();
  const sourceId = await upload('terms.md', `# Refunds\n\n${refund('seven')}`);
  const { version } = await publish();
  await eventually(async () => expect(await daysNow()).toEqual(['seven']));

  expect((await remove(sourceId)).status).toBe(204);

  expect(await editsOf()).toEqual([['terms.md', 'removed', anna.email]]);
  expect(await daysNow()).toEqual(['seven']);
  expect((await keep(sourceId)).body).toMatchObject({ sourceId, edit: null });
  await remove(sourceId);
  await addPage('nine');
  const { results } = await evaluate({ real: { limit: 1 }, against: 'draft' });
  expect(results[0]).toMatchObject({
    reply: expect.stringContaining('nine'),
    live: { reply: expect.stringContaining('seven') },
  });
  const second = await publish();

  expect(second.changes.sources).toEqual({ added: 1, removed: 1 });
  await eventually(async () => expect(await daysNow()).toEqual(['nine']));
  expect((await list()).map(({ name }) => name)).toEqual(['nine']);
  expect(problemOf(await remove(sourceId))).toBe('404 not_found');

  const back = await rollBack(version);

  expect(back.body).toMatchObject({ changes: { sources: { added: 1, removed: 1 } } });
  await eventually(async () => expect(await daysNow()).toEqual(['seven']));
  expect(await editsOf()).toEqual([['terms.md', null, null]]);
  await eventually(async () => expect(await findSource(sourceId)).toMatchObject({ state: 'ready', run: 2 }));
  expect((await rollBack(second.version)).status).toBe(200);
  await eventually(async () => expect(await daysNow()).toEqual(['nine']));
  expect((await versions()).map(({ canRollBack }) => canRollBack)).toEqual([false, true, true, true, true]);
});

test('a source that roll backs hid and brought back again and again says only of kept versions that they had it', async () => {
  const { addPage, assistantId, findSource, publish, remove } = await withDrafts();
  const sourceId = await addPage('five');
  await publish();
  const { mongo } = stack.service;
  // As after 300 roll backs, of which 50 versions are kept.
  const intervals = Array.from({ length: 150 }, (_, nth) => ({ since: 2 * nth, until: 2 * nth + 1 }));
  const versions = [...intervals, { since: 300, until: null }];
  await mongo.collection<{ _id: string }>('sources').updateOne({ _id: sourceId }, { $set: { versions } });
  await mongo
    .collection<{ _id: string }>('assistants')
    .updateOne({ _id: assistantId }, { $set: { publishedVersion: 300 } });
  const kept = versions.filter(({ until }) => until === null || until > 301 - 50);

  await remove(sourceId);
  const { version } = await publish();

  const ended = kept.map(({ since, until }) => ({ since, until: until ?? version }));
  expect(version).toBe(301);
  expect((await findSource(sourceId))?.versions).toEqual(ended);
});

test('two owners change the sources of one draft, and nobody’s change is lost', async () => {
  const { addPage, draft, editsOf, keep, own, publish, remove } = await withDrafts();
  const [three, four] = await Promise.all([addPage('three'), addPage('four', ben)]);
  const { revision } = await draft();
  expect((await editsOf()).toSorted()).toEqual([
    ['four', 'added', ben.email],
    ['three', 'added', anna.email],
  ]);
  await publish({ seen: revision });
  const { revision: published } = await draft();

  await remove(three, ben);

  expect(problemOf(await keep(three, anna, `?seen=${published}`))).toBe('409 conflict sourceId');
  expect(problemOf(await anna.post(`${own}/draft/publish`, { seen: published }))).toBe('409 conflict revision');
  expect(problemOf(await keep(four))).toBe('409 conflict');
  await Promise.all([remove(four, anna), keep(three, ben)]);
  expect(await editsOf()).toEqual(
    expect.arrayContaining([
      ['three', null, null],
      ['four', 'removed', anna.email],
    ]),
  );
});

test('what only a draft has is deleted with it', async () => {
  const { addPage, countLeft, draft, list, own, publish, remove } = await withDrafts();
  const [discarded, removed, kept] = [await addPage('one'), await addPage('two'), await addPage('three')];

  await remove(removed);

  expect((await draft()).draft?.sources).toHaveLength(2);
  expect((await anna.call('DELETE', `${own}/draft`)).status).toBe(204);
  for (const sourceId of [discarded, removed, kept])
    await eventually(async () => expect(Object.values(await countLeft(sourceId)).some(Boolean)).toBe(false));
  expect([await list(), (await draft()).draft]).toEqual([[], null]);
  expect(problemOf(await anna.post(`${own}/draft/publish`, {}))).toBe('409 conflict');
  await addPage('four');
  await publish();
});

test('a removed source is deleted with the last version that has it, or when drafts are switched off', async () => {
  const { assistantId, addPage, countLeft, daysNow, findSource, own, publish, remove, versions } = await withDrafts();
  const countOf = async (sourceId: string) => (await countLeft(sourceId))['passages'];
  const [first, second] = [await addPage('one'), await addPage('two')];
  await publish();
  await remove(first);
  await publish();
  expect(await countOf(first)).toBe(1);

  // What was removed counts as much as many large sources, so that the versions before cannot come back.
  const counts = { 'counts.passages': 49_000 };
  const sources = stack.service.mongo.collection<{ _id: string }>('sources');
  await sources.updateOne({ _id: second }, { $set: counts });
  await remove(second);
  await addPage('three');
  await publish();
  await sources.updateOne({ _id: (await findSource(second))._id }, { $set: { 'counts.passages': 1 } });
  const third = await addPage('four');
  await sources.updateOne({ _id: third }, { $set: counts });
  await publish();
  await remove(third);
  await publish();

  await eventually(async () => expect(await countOf(first)).toBe(0));
  const listed = await versions();
  expect(listed.map(({ canRollBack }) => canRollBack).filter(Boolean).length).toBeLessThan(listed.length - 1);
  expect(await countOf(third)).toBe(1);

  expect((await anna.call('PATCH', own, { drafts: false })).status).toBe(200);

  await eventually(async () => expect(await countOf(third)).toBe(0));
  await eventually(async () => expect(await daysNow()).toEqual(['three']));
  expect(await sources.countDocuments({ assistantId, versions: { $exists: true }, removedAt: null })).toBe(0);
});

test('without drafts a source answers once it is read, and no longer once it is removed', async () => {
  const { addPage, countLeft, daysNow, draft, editsOf, own, remove } = await withDrafts();
  await anna.call('PATCH', own, { drafts: false });
  const { revision } = await draft();

  const sourceId = await addPage('five');

  await eventually(async () => expect(await daysNow()).toEqual(['five']));
  expect([await editsOf(), await draft()]).toMatchObject([[['five', null, null]], { revision, draft: null }]);
  await remove(sourceId);
  expect(await editsOf()).toEqual([]);
  await eventually(async () => expect(await daysNow()).toEqual([]));
  await eventually(async () => expect((await countLeft(sourceId))['sources']).toBe(0));
  expect(problemOf(await anna.post(`${own}/sources/${sourceId}/keep`, {}))).toBe('404 not_found');
});

test('no turn is answered from a source that its version does not have', async () => {
  const { addPage, chat, own, publish, remove, rollBack } = await withDrafts();
  /** The days that each version answers with. */
  const days: string[] = [];
  const [first, second] = [await addPage('six'), await addPage('eight')];
  await remove(second);
  days[(await publish()).version] = 'six';
  const reading = await addPage('eight');
  await remove(first);
  days[(await publish()).version] = 'eight';
  const answered: { days: string | undefined; version: number }[] = [];
  const ask = async (): Promise<void> => {
    const { body } = await chat(aTurn({ message: QUESTION }));
    type Told = { messages: { role: string; why: { version: number } }[] };
    const { messages } = (await anna.get<Told>(`/conversations/${body.conversationId}`)).body;
    const { version = 0 } = messages.find(({ role }) => role === 'assistant')?.why ?? {};
    answered.push({ days: /takes (\w+) working/.exec(body.reply)?.[1], version });
  };
  let isOver = false;
  const asking = Array.from({ length: 4 }, async () => {
    while (!isOver) await ask();
  });

  for (let round = 0; round < 3; round += 1) {
    for (const wanted of ['six', 'eight']) {
      const { body } = await rollBack(days.indexOf(wanted));
      days[body.version] = wanted;
      const from = answered.length;
      await eventually(() => expect(answered.slice(from).map((one) => one.days)).toContain(wanted));
    }
  }
  isOver = true;
  await Promise.all(asking);

  expect(answered.length).toBeGreaterThan(6);
  for (const one of answered)
    expect([one.version, [days[one.version], undefined]]).toEqual([one.version, expect.arrayContaining([one.days])]);
  expect(reading).not.toBe(second);
  expect((await anna.get(`${own}/versions`)).status).toBe(200);
});
