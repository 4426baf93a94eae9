import { randomBytes, randomUUID } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { expect, test } from 'vitest';
import { FILE_CHUNK_BYTES, FILE_MAX_BYTES, SOURCES_MAX } from '../../src/sources/source.ts';
import { anAssistant, aTurn, type ErrorBody } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { addPages, addPassages, addProposals, setSource } from '../support/sources.ts';
import { openStack, useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const owner = useOpened(() => anOperator(stack));
const other = useOpened(() => anOperator(stack));

type Source = { sourceId: string; name: string; state: string; url: string | null; nextAt: string | null };
type Sources = { sources: Source[]; proposed: number };
type Pages = { pages: { url: string; state: string }[]; nextCursor: string | null };
type Proposals = {
  proposals: { proposalId: string; question: string; url: string | null }[];
  nextCursor: string | null;
};

const SITE = { kind: 'site', url: 'http://127.0.0.1:9/help/' };
const COLLECTIONS = ['sources', 'sourceFiles', 'sourcePages', 'passages', 'passageTokens', 'proposedEntries'];

/** An assistant of this test, with its paths. */
const anOwn = async () => {
  const assistant = await anAssistant(stack);
  const own = `/assistants/${assistant.assistantId}`;
  const add = async (body: object = SITE): Promise<Source> => (await owner.post<Source>(`${own}/sources`, body)).body;
  const upload = (name: string, bytes: Uint8Array, more: Record<string, string> = {}) =>
    owner.call<Source & ErrorBody>('POST', `${own}/source-files?name=${encodeURIComponent(name)}`, bytes, {
      'Content-Type': 'application/octet-stream',
      ...more,
    });
  const list = async (): Promise<Sources> => (await owner.get<Sources>(`${own}/sources`)).body;
  const ids = ({ sourceId }: Source) => ({ assistantId: assistant.assistantId, sourceId });
  return { ...assistant, own, add, upload, list, ids };
};

const storedBytes = async (sourceId: string): Promise<Buffer> => {
  const chunks = stack.service.mongo.collection<{ n: number; bytes: { buffer: Buffer } }>('sourceFiles');
  const rows = await chunks
    .find({ sourceId } as never)
    .sort({ n: 1 })
    .toArray();
  return Buffer.concat(rows.map(({ bytes }) => bytes.buffer));
};

/** The sources that a worker has been told about. */
const wokenIn = async (): Promise<string[]> => {
  const jobs = await Promise.all(stack.service.queues.sources.queues.map((one) => one.getJobs(['waiting'])));
  return jobs.flat().map(({ data }) => data.sourceId);
};

test('an added website waits to be read, and the worker is told', async () => {
  const { add, list, own, assistantId } = await anOwn();

  const added = await owner.post<Source>(`${own}/sources`, { ...SITE, url: `${SITE.url}#top`, schedule: 'daily' });

  const { sourceId } = added.body;
  expect(added.status).toBe(201);
  expect(added.body).toMatchObject({
    assistantId,
    kind: 'site',
    name: '127.0.0.1:9/help',
    url: SITE.url,
    schedule: 'daily',
    state: 'waiting',
    error: null,
    run: 0,
    live: 0,
    counts: { found: 0, read: 0, passages: 0, embedded: 0 },
    nextAt: expect.any(String),
  });
  await add({ kind: 'page', url: 'http://127.0.0.1:9/', name: 'Home' });
  expect((await list()).sources.map(({ name }) => name)).toEqual(['127.0.0.1:9/help', 'Home']);
  expect((await owner.get(`${own}/sources/${sourceId}`)).body).toEqual(added.body);
  await eventually(async () => expect(await wokenIn()).toContain(sourceId));
  const trail = await owner.get(`/audit?target=${assistantId}&action=source.add`);
  expect(trail.body).toMatchObject({
    lines: [{ details: { kind: 'page' } }, { details: { sourceId, kind: 'site', host: '127.0.0.1:9' } }],
  });
  expect(JSON.stringify(trail.body)).not.toContain('/help');
});

test.each([
  ['no kind', { url: SITE.url }, 'kind must be one of: page, site'],
  ['no URL', { kind: 'site' }, 'url is required'],
  ['a URL that is none', { kind: 'site', url: 'help' }, 'url must be an absolute URL'],
  ['another protocol', { kind: 'page', url: 'ftp://127.0.0.1/' }, 'url must be an http or https address'],
  ['a password in it', { kind: 'page', url: 'http://a:b@127.0.0.1/' }, 'url must not carry a user name or password'],
  ['a file by its URL', { kind: 'file', url: SITE.url }, 'kind must be one of: page, site'],
  ['a path without its slash', { ...SITE, include: ['docs'] }, 'include.0 must begin with a slash and have no spaces'],
  ['another schedule', { ...SITE, schedule: 'hourly' }, 'schedule must be one of: off, daily, weekly'],
  ['paths of a page', { kind: 'page', url: SITE.url, exclude: ['/a'] }, 'exclude is only for a website'],
])('a source with %s is refused with a reason', async (_name, body, message) => {
  const { own, list } = await anOwn();

  const refused = await owner.post<ErrorBody>(`${own}/sources`, body);

  expect([refused.status, refused.body.error.message]).toEqual([422, message]);
  expect((await list()).sources).toEqual([]);
});

test.each([
  ['example.com/help', 'https://example.com/help'],
  [' münchen.example:8443 ', 'https://xn--mnchen-3ya.example:8443/'],
  ['http://example.com/', 'http://example.com/'],
])('the address %j is completed to %s', async (url, whole) => {
  const { add } = await anOwn();

  expect(await add({ kind: 'site', url })).toMatchObject({ url: whole, state: 'waiting' });
});

test('in production a private address is refused, and a public one may be http', async () => {
  const strict = await openStack({ env: { WEBHOOK_ALLOW_PRIVATE: 'false' }, replyWorkers: 0, deliveryWorkers: 0 });
  try {
    const person = await anOperator(strict);
    const { assistantId } = await strict.service.assistants.createAssistant({ name: 'A' });
    const add = (url: string) => person.post<ErrorBody>(`/assistants/${assistantId}/sources`, { kind: 'page', url });

    const told: string[] = [];
    for (const url of ['http://127.0.0.1/', 'http://[::1]/', 'http://169.254.169.254/latest', 'https://localhost/'])
      told.push((await add(url)).body.error.message);
    const open = await add('http://93.184.215.14/help');

    expect(told).toEqual(Array(4).fill('url must not lead to a private or reserved address'));
    expect(open.status).toBe(201);
  } finally {
    await strict.close();
  }
});

test('a file is stored whole, in chunks, and read later', async () => {
  const { upload, list, ids } = await anOwn();
  const bytes = randomBytes(5_000_001);

  const { status, body } = await upload('Hand book (2026).PDF', bytes);

  expect([status, body.name, body.url, body.state]).toEqual([201, 'Hand book (2026).PDF', null, 'waiting']);
  expect(await storedBytes(body.sourceId)).toEqual(bytes);
  const chunks = await stack.service.mongo.collection('sourceFiles').countDocuments({ sourceId: body.sourceId });
  expect(chunks).toBe(3);
  expect((await list()).sources).toHaveLength(1);
  const schedule = await owner.call('PATCH', `/assistants/${ids(body).assistantId}/sources/${body.sourceId}`, {
    schedule: 'daily',
  });
  expect(problemOf(schedule)).toBe('422 validation_failed schedule');
});

test('a file of 20 MB is stored, and one byte more is refused and leaves nothing', async () => {
  const { upload, list, assistantId } = await anOwn();
  const bytes = Buffer.alloc(FILE_MAX_BYTES + 1, 'a');

  const largest = await upload('largest.txt', bytes.subarray(1));
  const larger = await upload('larger.txt', bytes);

  expect([largest.status, (await storedBytes(largest.body.sourceId)).length]).toEqual([201, FILE_MAX_BYTES]);
  expect([problemOf(larger), larger.body.error.message]).toEqual([
    '413 payload_too_large',
    'The file is larger than 20 MB.',
  ]);
  expect((await list()).sources.map(({ name }) => name)).toEqual(['largest.txt']);
  const left = await stack.service.mongo.collection('sources').find({ assistantId, name: 'larger.txt' }).toArray();
  for (const { _id, removedAt } of left) {
    expect(removedAt.getTime()).toBeLessThanOrEqual(Date.now());
    expect((await storedBytes(String(_id))).length).toBe(0);
  }
});

test('a file of unknown length is cut off when it is too large', async () => {
  const { own, list } = await anOwn();
  const piece = Buffer.alloc(1_000_000, 'a');
  const answered = Promise.withResolvers<number>();
  const sending = httpRequest(`${stack.url}/operator/v1${own}/source-files?name=a.txt`, {
    method: 'POST',
    headers: { Origin: stack.url, Cookie: owner.cookie() ?? '', 'Transfer-Encoding': 'chunked' },
  });
  sending.on('response', ({ statusCode = 0 }) => answered.resolve(statusCode)).on('error', () => undefined);

  let ended = false;
  void answered.promise.then(() => (ended = true));
  for (let sent = 0; sent < 40 && !ended; sent += 1)
    await new Promise<void>((resolve) => sending.write(piece, () => setImmediate(resolve)));

  expect(await answered.promise).toBe(413);
  sending.destroy();
  expect((await list()).sources).toEqual([]);
});

test('a file is replaced at once and whole, and an upload that fails changes nothing', async () => {
  const { own, add, upload, list } = await anOwn();
  const { body } = await upload('old.pdf', randomBytes(2_500_000));
  const site = await add();
  const replace = (sourceId: string, name: string, bytes: Uint8Array) =>
    owner.call<Source & ErrorBody>('PUT', `${own}/sources/${sourceId}/file?name=${name}`, bytes, {
      'Content-Type': 'application/octet-stream',
    });
  const bytes = randomBytes(2_100_000);

  const replaced = await replace(body.sourceId, 'new.docx', bytes);
  const refused = await Promise.all([
    replace(body.sourceId, 'new.docx', Buffer.alloc(FILE_MAX_BYTES + 1)),
    replace(body.sourceId, 'new.docx', Buffer.alloc(0)),
    replace(body.sourceId, 'new.exe', bytes),
    replace(site.sourceId, 'new.md', bytes),
    replace(randomUUID(), 'new.md', bytes),
  ]);

  expect([replaced.status, replaced.body.name, replaced.body.state]).toEqual([202, 'new.docx', 'waiting']);
  expect(refused.map((one) => problemOf(one))).toEqual([
    '413 payload_too_large',
    '422 validation_failed file',
    '422 validation_failed name',
    '422 validation_failed file',
    '404 not_found',
  ]);
  expect(await storedBytes(body.sourceId)).toEqual(bytes);
  const renamed = await owner.call<Source>('PATCH', `${own}/sources/${body.sourceId}`, { name: 'Handbook' });
  const again = await replace(body.sourceId, 'newer.md', Buffer.from('# Newer'));
  expect([renamed.body.name, again.body.name, (await list()).sources.length]).toEqual(['Handbook', 'Handbook', 2]);
  expect((await storedBytes(body.sourceId)).toString()).toBe('# Newer');
});

test('an upload that its sender leaves is never seen', async () => {
  const { own, list, assistantId } = await anOwn();
  const sending = httpRequest(`${stack.url}/operator/v1${own}/source-files?name=left.txt`, {
    method: 'POST',
    headers: { Origin: stack.url, Cookie: owner.cookie() ?? '', 'Content-Length': '9000000' },
  });
  sending.on('error', () => undefined);
  const rows = stack.service.mongo.collection('sources');
  const stored = () =>
    stack.service.mongo.collection('sourceFiles').countDocuments({ n: 0, sourceId: { $exists: true } });
  const before = await stored();
  sending.write(Buffer.alloc(4_000_000));
  await eventually(async () => expect(await stored()).toBe(before + 1));
  const seen = (await list()).sources;

  sending.destroy();

  await eventually(async () => {
    const [row] = await rows.find({ assistantId }).toArray();
    expect(row?.['removedAt'].getTime()).toBeLessThanOrEqual(Date.now());
    expect((await storedBytes(String(row?._id))).length).toBe(0);
  });
  expect([seen, (await list()).sources]).toEqual([[], []]);
});

test.each([
  ['no bytes', 'a.txt', {}, '', '422 validation_failed file', 'file is empty'],
  ['another type', 'a.exe', {}, 'a', '422 validation_failed name', /^name must end with one of \.md, /],
  ['a blank name', ' ', {}, 'a', '422 validation_failed name', 'name must not be empty'],
  ['compression', 'a.md', { 'Content-Encoding': 'gzip' }, 'a', '422 validation_failed file', /Content-Encoding/],
])('a file with %s is refused with a reason', async (_what, name, headers, text, problem, message) => {
  const { upload, list } = await anOwn();

  const refused = await upload(name, Buffer.from(text), headers);

  expect([problemOf(refused), refused.body.error.message]).toEqual([problem, expect.stringMatching(message)]);
  expect((await list()).sources).toEqual([]);
});

test('an assistant has at most 100 sources, also if many are added at once', async () => {
  const { add, upload, list, own, assistantId } = await anOwn();
  const first = await add();
  const rows = stack.service.mongo.collection('sources');
  const [row] = await rows.find({ assistantId }).toArray();
  const copies = Array.from({ length: SOURCES_MAX - 3 }, () => ({ ...row, _id: randomUUID() }));
  await rows.insertMany(copies as never);

  const answers = await Promise.all(Array.from({ length: 10 }, () => owner.post(`${own}/sources`, SITE)));
  while ((await list()).sources.length < SOURCES_MAX) await add();
  const beyond = await owner.post<ErrorBody>(`${own}/sources`, SITE);
  const file = await upload('a.md', Buffer.from('# A'));

  expect(answers.every(({ status }) => [201, 422].includes(status))).toBe(true);
  expect([problemOf(beyond), beyond.body.error.message]).toEqual([
    '422 validation_failed url',
    'url an assistant has at most 100 sources: remove one',
  ]);
  expect(problemOf(file)).toBe('422 validation_failed name');
  expect((await list()).sources).toHaveLength(SOURCES_MAX);
  await owner.call('DELETE', `${own}/sources/${first.sourceId}`);
  expect((await owner.post(`${own}/sources`, SITE)).status).toBe(201);
});

test('a change of paths reads the source again, and a change of its schedule does not', async () => {
  const { add, own, ids } = await anOwn();
  const source = await add();
  const path = `${own}/sources/${source.sourceId}`;
  const endedAt = new Date();
  await setSource(stack, ids(source), { state: 'ready', run: 1, live: 1, nextAt: null, endedAt });

  const renamed = await owner.call('PATCH', path, { name: '$name', schedule: 'weekly' });
  const weekly = renamed.body;
  const again = await owner.call('PATCH', path, { include: ['/help/**', '/faq'], exclude: ['/help/old/**'] });
  await setSource(stack, ids(source), { state: 'running', nextAt: null });
  const running = await owner.call('PATCH', path, { include: [] });

  expect(weekly).toMatchObject({
    name: '$name',
    state: 'ready',
    nextAt: new Date(endedAt.getTime() + 7 * 86_400_000).toISOString(),
  });
  expect(again.body).toMatchObject({ state: 'waiting', include: ['/help/**', '/faq'], exclude: ['/help/old/**'] });
  // The run that is on its way still has the old paths, so another one follows.
  expect(running.body).toMatchObject({ state: 'running', include: [], nextAt: expect.any(String) });
});

test('a refresh reads a source again, and leaves one alone that is being read', async () => {
  const { add, own, ids } = await anOwn();
  const source = await add();
  const path = `${own}/sources/${source.sourceId}/refresh`;
  const error = { code: 'not_found', message: 'The page was not found.' };
  await setSource(stack, ids(source), { state: 'failed', run: 1, nextAt: null, error });

  const failed = await owner.post(path);
  await setSource(stack, ids(source), { state: 'running', nextAt: null });
  const running = await owner.post(path);

  expect([failed.status, failed.body]).toMatchObject([
    202,
    { state: 'waiting', error: null, nextAt: expect.any(String) },
  ]);
  expect(running.body).toMatchObject({ state: 'running', nextAt: null });
});

test('a removed source is hidden at once, with all that belongs to it', async () => {
  const { add, own, ids, list, assistantId } = await anOwn();
  const [source, other] = [await add(), await add({ kind: 'page', url: 'http://127.0.0.1:9/' })];
  await addPages(stack, ids(source), [{}]);
  await addPassages(stack, ids(source), ['We open at nine.']);
  await addProposals(stack, ids(source), [{}, {}]);
  await stack.service.assistants.raisePassages(assistantId, async () => ({ live: 1, drafted: 0 }));

  const removed = await owner.call('DELETE', `${own}/sources/${source.sourceId}`);

  expect([removed.status, (await list()).sources, (await list()).proposed]).toMatchObject([204, [other], 0]);
  for (const [method, path, body] of [
    ['GET', ''],
    ['GET', '/pages'],
    ['POST', '/refresh'],
    ['DELETE', ''],
    ['PATCH', '', { name: 'x' }],
  ] as const)
    expect(problemOf(await owner.call(method, `${own}/sources/${source.sourceId}${path}`, body))).toBe('404 not_found');
  const { passages } = await stack.service.assistants.getAssistant(assistantId);
  expect(passages).toEqual({ version: 2, count: 1 });
  await eventually(async () => expect(await wokenIn()).toContain(source.sourceId));
});

test('an assistant without passages stays as it was', async () => {
  const { add, own, assistantId } = await anOwn();
  const { sourceId } = await add();

  await owner.call('DELETE', `${own}/sources/${sourceId}`);

  const stored = await stack.service.mongo.collection<{ _id: string }>('assistants').findOne({ _id: assistantId });
  expect(stored).not.toHaveProperty('passages');
});

test('pages are listed by URL, all or those of a state, part by part', async () => {
  const { add, own, ids } = await anOwn();
  const [source, other] = [await add(), await add()];
  const states = ['read', 'failed', 'read', 'skipped', 'read'] as const;
  const error = { code: 'status', message: 'The server answered 500.' };
  await addPages(
    stack,
    ids(source),
    states.map((state) => ({ state, error: state === 'failed' ? error : null })),
  );
  const path = `${own}/sources/${source.sourceId}/pages`;
  const read = async (query = ''): Promise<Pages> => (await owner.get<Pages>(`${path}${query}`)).body;
  const numbers = ({ pages }: Pages) => pages.map(({ url }) => url.at(-1)).join('');

  const all = await read();
  const first = await read('?state=read&limit=2');
  const rest = await read(`?state=read&limit=2&cursor=${first.nextCursor}`);

  expect([numbers(all), numbers(first), numbers(rest), rest.nextCursor]).toEqual(['01234', '02', '4', null]);
  expect(all.pages[1]).toMatchObject({ state: 'failed', title: 'Page 1', error });
  const foreign = `${own}/sources/${other.sourceId}/pages?cursor=${first.nextCursor}`;
  expect(problemOf(await owner.get(foreign))).toBe('422 validation_failed cursor');
  expect(problemOf(await owner.get(`${path}?state=new`))).toBe('422 validation_failed state');
});

test('accepted proposals become entries that answer, and dismissed ones are gone', async () => {
  const { add, own, ids, list, chat } = await anOwn();
  const source = await add();
  const proposals = [
    { question: 'Do you repair umbrellas?', answer: 'Yes, in a day.' },
    { question: 'Do you sell kites?', answer: 'No.' },
    { url: null, question: 'Is there a cloakroom?', answer: 'In the hall.' },
  ];
  const [umbrellas = '', kites = '', cloakroom = ''] = await addProposals(stack, ids(source), proposals);
  const path = `${own}/proposed-entries`;
  const listed = await owner.get<Proposals>(`${path}?limit=2`);
  const rest = await owner.get<Proposals>(`${path}?limit=2&cursor=${listed.body.nextCursor}`);

  const accepted = await owner.post(`${path}/accept`, { proposalIds: [umbrellas, randomUUID()] });
  const dismissed = await owner.post(`${path}/dismiss`, { proposalIds: [kites] });
  const again = await owner.post(`${path}/accept`, { proposalIds: [umbrellas, kites] });

  expect([...listed.body.proposals, ...rest.body.proposals].map(({ proposalId }) => proposalId)).toEqual([
    cloakroom,
    umbrellas,
    kites,
  ]);
  expect([accepted.body, dismissed.body, again.body]).toEqual([{ entries: 1 }, { entries: 1 }, { entries: 0 }]);
  expect((await list()).proposed).toBe(1);
  await eventually(async () => {
    const { body } = await chat(aTurn({ message: 'Do you repair umbrellas?' }));
    expect(body.reply).toBe('Yes, in a day.');
  });
  const all = await owner.post(`${path}/accept`, { proposalIds: null });
  const knowledge = await owner.get<{ entries: { question: string }[] }>(`${own}/knowledge`);
  expect([all.body, knowledge.body.entries.map(({ question }) => question)]).toEqual([
    { entries: 1 },
    ['What are your opening hours?', 'Do you repair umbrellas?', 'Is there a cloakroom?'],
  ]);
});

test('two owners who accept the same proposals make each entry once', async () => {
  const { add, own, ids, assistantId } = await anOwn();
  await addProposals(
    stack,
    ids(await add()),
    Array.from({ length: 40 }, () => ({})),
  );

  const answers = await Promise.all(
    Array.from({ length: 6 }, () =>
      owner.post<{ entries: number }>(`${own}/proposed-entries/accept`, { proposalIds: null }),
    ),
  );

  expect(answers.map(({ body }) => body.entries).reduce((sum, count) => sum + count)).toBe(40);
  expect(await stack.service.assistants.countKnowledge(assistantId)).toBe(41);
});

test('proposals that do not fit into the knowledge stay', async () => {
  const { add, own, ids, list, assistantId } = await anOwn();
  await addProposals(stack, ids(await add()), [{}, {}]);
  const entries = Array.from({ length: 9_998 }, (_, nth) => ({
    question: `q${nth}`,
    variants: [],
    answer: 'a',
    language: null,
    actions: [],
    tags: [],
  }));
  await stack.service.assistants.addKnowledge(assistantId, entries);

  const refused = await owner.post(`${own}/proposed-entries/accept`, { proposalIds: null });
  const [first] = (await owner.get<Proposals>(`${own}/proposed-entries`)).body.proposals;
  const one = await owner.post(`${own}/proposed-entries/accept`, { proposalIds: [first?.proposalId] });

  expect(problemOf(refused)).toBe('422 validation_failed knowledge');
  expect([one.body, (await list()).proposed]).toEqual([{ entries: 1 }, 1]);
});

test.each([false, true])(
  'proposals that do not fit are refused before they are read, with drafts: %s',
  async (drafts) => {
    const { add, own, ids, assistantId } = await anOwn();
    await addProposals(stack, ids(await add()), [{}, { answer: 'long '.repeat(700) }]);
    const entry = { assistantId, question: 'q', variants: [], answer: 'a', language: null, actions: [], tags: [] };
    const entries = Array.from({ length: 9_998 }, (_, nth) => ({ _id: randomUUID(), position: nth + 2, ...entry }));
    const { mongo } = stack.service;
    await mongo.collection('knowledge').insertMany(entries as never);
    const last = { $set: { 'knowledgePlaces.last': 9_999 } };
    await mongo.collection<{ _id: string }>('assistants').updateOne({ _id: assistantId }, last);
    await owner.call('PATCH', own, { drafts });

    let refused: unknown;
    const statements = await profileStatements(stack, async () => {
      refused = await owner.post(`${own}/proposed-entries/accept`, { proposalIds: null });
    });

    const message = `would have more than 10,000 entries${drafts ? '' : ', the most an assistant may have'}`;
    expect(refused).toMatchObject({ status: 422, body: { error: { details: [{ code: 'too_many', message }] } } });
    const ofProposals = statements.filter((one) => collectionIn(one) === 'proposedEntries');
    const bytes = ofProposals.map(({ responseLength = 0 }) => responseLength);
    expect(Math.max(...bytes)).toBeLessThan(1_000);
  },
);

test.each([
  ['accepts of proposals', 'POST', '/proposed-entries/accept', { proposalIds: null }, 'proposedEntries'],
  ['lists of proposals', 'GET', '/proposed-entries', undefined, 'proposedEntries'],
  ['lists of sources', 'GET', '/sources', undefined, 'sources'],
] as const)('%s of an assistant are made in turn, with rests', async (_what, method, path, body, read) => {
  const { own } = await anOwn();
  const callers = [owner, owner, other, other]; // a session has two calls at once

  const statements = await profileStatements(stack, async () => {
    const answers = await Promise.all(callers.map((one) => one.call(method, `${own}${path}`, body)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });

  const finds = statements.filter((one) => one.op === 'query' && collectionIn(one) === read);
  const readAt = finds.map(({ ts }) => ts.getTime()).toSorted((one, next) => one - next);
  const pauses = readAt.slice(1).map((at, nth) => at - Number(readAt[nth]));
  expect(pauses).toHaveLength(3);
  expect(Math.min(...pauses)).toBeGreaterThan(3); // one alone takes a millisecond or more, and rests four times as long
});

test('a neighbour sees and changes nothing', async () => {
  const [mine, theirs] = [await anOwn(), await anOwn()];
  const source = await theirs.add();
  await addPages(stack, theirs.ids(source), [{}]);
  const [proposal] = await addProposals(stack, theirs.ids(source), [{}]);
  const stateOf = () =>
    Promise.all(
      COLLECTIONS.map((name) =>
        stack.service.mongo.collection(name).find({ assistantId: theirs.assistantId }).toArray(),
      ),
    );
  const before = await stateOf();

  const decided = await Promise.all(
    ['accept', 'dismiss'].flatMap((what) =>
      [[proposal], null].map((proposalIds) => owner.post(`${mine.own}/proposed-entries/${what}`, { proposalIds })),
    ),
  );
  const listed = await owner.get<Proposals>(`${mine.own}/proposed-entries?sourceId=${source.sourceId}`);
  const pages = await owner.get(`${mine.own}/sources/${source.sourceId}/pages`);
  const path = `${mine.own}/sources/${source.sourceId}/file?name=a.md`;
  const octets = { 'Content-Type': 'application/octet-stream' };
  expect(problemOf(await owner.call('PUT', path, Buffer.from('# A'), octets))).toBe('404 not_found');

  expect(decided.map(({ body }) => body)).toEqual(decided.map(() => ({ entries: 0 })));
  expect([listed.body.proposals, problemOf(pages), (await mine.list()).sources]).toEqual([[], '404 not_found', []]);
  expect(await stateOf()).toEqual(before);
});

test('an agent reads no sources, and an unknown assistant has none', async () => {
  const agent = await anOperator(stack, 'agent');
  const { own, upload } = await anOwn();
  const unknown = `/assistants/${randomUUID()}`;

  expect(problemOf(await agent.get(`${own}/sources`))).toBe('403 forbidden');
  for (const path of [`${unknown}/sources`, `${unknown}/proposed-entries`])
    expect(problemOf(await owner.get(path))).toBe('404 not_found');
  expect(problemOf(await owner.post(`${unknown}/sources`, SITE))).toBe('404 not_found');
  expect((await upload('a.md', Buffer.from('# A'))).status).toBe(201);
});

test('the bytes of an assistant’s files are stored in turn, with rests', async () => {
  const { assistantId } = await anAssistant(stack);
  const storedAt: number[] = [];
  async function* bytes() {
    for (let chunk = 0; chunk < 2; chunk += 1) {
      yield Buffer.alloc(FILE_CHUNK_BYTES, 'Hello. ');
      storedAt.push(performance.now());
    }
  }

  await Promise.all(['a.txt', 'b.txt'].map((name) => stack.service.sources.addFile(assistantId, name, bytes())));

  const pauses = storedAt.slice(1).map((at, nth) => at - Number(storedAt[nth]));
  expect(pauses).toHaveLength(3);
  expect(Math.min(...pauses)).toBeGreaterThan(5);
});
