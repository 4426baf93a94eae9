import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { openReader, type ReadInput } from '@parley/reading';
import { afterEach, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createMakeVectors, createStoreIndexes } from '../../src/sources/make-vectors.ts';
import { openReaders } from '../../src/sources/reading.ts';
import type { StoredSource } from '../../src/sources/source.ts';
import { anAssistant } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { collectionIn, examinedBy, profileStatements } from '../support/profile.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { addPages, addPassages, addSources } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';
import { aPage, aSentence, openWebsite, type SitePage, type Website } from '../kit/website.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  timing: { ...QUICK, sourceFetchMs: 3_000, sourceSilentMs: 2_000, sourceSliceMs: 2_000, sourceSitemapsMs: 2_500 },
});
/** How long a neighbour's site may take beside hostile ones, of which each takes 147 s: 49 sitemaps of three seconds. */
const SOON_MS = 120_000;
const opened: { close: () => Promise<unknown> }[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.close()));
  await stack.service.mongo.collection('sources').deleteMany({}); // what a worker of another test would read
});

const openSite = async (pages: Record<string, SitePage>): Promise<Website> => {
  const site = await openWebsite(pages);
  opened.push(site);
  return site;
};

/** A sitemap that comes byte by byte and never ends. */
const drip = (_: IncomingMessage, response: ServerResponse): void => {
  response.writeHead(200, { 'Content-Type': 'application/xml' });
  const timer = setInterval(() => response.write(' '), 20);
  response.on('close', () => clearInterval(timer));
};
const fifty = Array.from({ length: 49 }, (_, nth) => `<sitemap><loc>/${nth}.xml</loc></sitemap>`).join('');
const WITH_SLOW_SITEMAPS: Record<string, SitePage> = {
  '/': aPage('Start', aSentence('the start'), ['/linked']),
  '/linked': aPage('Linked', aSentence('the linked page')),
  '/robots.txt': { status: 404 },
  '/sitemap.xml': { headers: { 'Content-Type': 'application/xml' }, body: `<sitemapindex>${fifty}</sitemapindex>` },
  '*': drip,
};

/** An assistant with sources that lack vectors and an index. */
const withSources = async (count: number, passages: number): Promise<string> => {
  const { assistantId } = await anAssistant(stack);
  await addSources(stack, assistantId, { count, passages });
  return assistantId;
};

test('an assistant whose short sources change all the time leaves turns to the sources of others', async () => {
  const { passageVectors } = stack.service;
  const busy = await withSources(20, 10);
  const others = [await withSources(1, 500), await withSources(3, 200)];
  const kind = { model: 'test', kind: null, made: 'test' };

  // Each source lacks its vectors and its index again at once.
  const [vectors, indexes]: [string[], string[]] = [[], []];
  for (let nth = 0; nth < 12; nth += 1) {
    const token = randomUUID();
    const { sourceId, assistantId } = (await passageVectors.claimVectors(token, kind, []))!;
    vectors.push(assistantId);
    await passageVectors.endVectors(sourceId, token, null);
    const claim = (await passageVectors.claimIndex(randomUUID(), 'test'))!;
    indexes.push(claim.assistantId);
    await passageVectors.endIndex(claim, null, false);
  }

  const count = (ids: string[]) => [busy, ...others].map((one) => ids.filter((id) => id === one).length);
  expect([count(vectors), count(indexes)]).toEqual([
    [4, 4, 4],
    [4, 4, 4],
  ]);
});

test('assistants whose passages take the model long leave it to others after each step', async () => {
  const { passageVectors: vectors, mongo } = stack.service;
  for (const name of ['long', 'other']) {
    const assistantId = await withSources(1, 96);
    const source = await mongo.collection<StoredSource>('sources').findOne({ assistantId });
    const texts = Array.from({ length: 96 }, (_, nth) => `${name} ${nth}`);
    await addPassages(stack, { assistantId, sourceId: source!._id }, texts);
  }
  const embedder = anEmbedder();
  const makeVectors = createMakeVectors({
    vectors,
    runs: { announce: async () => undefined },
    embedder,
    listOthers: async () => [],
    timing: readConfig(stack.env).timing,
    draining: new AbortController().signal,
    logger: createLogger({ name: 'test', level: 'silent' }),
    turnMs: 0,
  });

  await makeVectors();

  const first = embedder.texts.filter((text) => /long|other/.test(text)).slice(0, 64);
  expect(first.some((text) => text.includes('long'))).toBe(true);
  expect(first.some((text) => text.includes('other'))).toBe(true);
});

test('the lease of an index is renewed while the index is made', async () => {
  const { passages, passageVectors: vectors, mongo } = stack.service;
  const assistantId = await withSources(1, 10);
  const go = Promise.withResolvers<string>();
  const storeIndexes = createStoreIndexes({
    vectors,
    passages,
    embedder: { model: () => null },
    languageOf: async (id) => (id === assistantId ? go.promise : 'en'),
    timing: { sourceRenewMs: 50 },
    draining: new AbortController().signal,
  });
  const findLease = (): Promise<number> =>
    eventually(async () => {
      const source = await mongo.collection<StoredSource>('sources').findOne({ assistantId });
      return source!.indexed!.lease!.until.getTime();
    });

  const stored = storeIndexes();
  const first = await findLease();
  await eventually(async () => expect(await findLease()).toBeGreaterThan(first));
  go.resolve('en');
  await stored;
});

test('a stored index has at most the memory of one, however many words its passages have', async () => {
  const { passages, passageVectors: vectors, mongo } = stack.service;
  const assistantId = await withSources(1, 400);
  const sourceId = (await mongo.collection<StoredSource>('sources').findOne({ assistantId }))!._id;
  const words = (nth: number) => Array.from({ length: 200 }, (_, at) => `w${nth}x${at}`).join(' ');
  await addPassages(
    stack,
    { assistantId, sourceId },
    Array.from({ length: 400 }, (_, nth) => words(nth)),
  );
  const storeIndexes = createStoreIndexes({
    vectors,
    passages,
    embedder: { model: () => null },
    languageOf: async () => 'en',
    timing: { sourceRenewMs: 1_000 },
    draining: new AbortController().signal,
    maxBytes: 1_000_000,
  });

  await storeIndexes();

  const pieces = await mongo.collection('passageIndexes').find({ sourceId }).toArray();
  const bytes = pieces.reduce((sum, piece) => sum + piece['bytes'].length(), 0);
  expect(bytes).toBeGreaterThan(50_000);
  expect(bytes).toBeLessThan(400_000); // those of all would be a MB
});

test('assistants whose documents take long leave a reader to the others', async () => {
  const readers = openReaders(() => openReader({ timeoutMs: 2_000 }), { slowMs: 400, hangsMs: 60_000 });
  opened.push(readers);
  const aDocument = (text: string): ReadInput => ({
    bytes: Buffer.from(text),
    contentType: 'text/html',
    name: 'a.html',
    url: null,
  });
  const slow = aDocument(`<html>${'<i>'.repeat(9_000)}${'</x>'.repeat(4_000_000)}`);
  const neighbour = aDocument(`<main><p>${aSentence('the neighbour')}</p></main>`);
  // The start of a reader, which takes longer, is not the neighbour's work.
  await readers.read('a neighbour', neighbour);
  let ended = 0;
  const readSlow = (assistantId: string) =>
    readers
      .read(assistantId, slow)
      .catch(() => undefined) // the readers are closed
      .finally(() => {
        ended += 1;
      });
  await Promise.all(['one', 'other'].map(readSlow));

  const again = Promise.all(['one', 'other'].map(readSlow));
  ended = 0;
  const read = await readers.read('a neighbour', neighbour);

  expect(read).toMatchObject({ passages: [expect.any(Object)] });
  expect(ended).toBe(0);
  await readers.close();
  await again;
});

/** So many assistants with four sites of slow sitemaps each, of which some have begun. */
const openHostile = async (count: number) => {
  const sites: Website[] = [];
  const ends: (() => Promise<StoredSource>)[] = [];
  const readers = await Promise.all(Array.from({ length: count }, () => aReader(stack)));
  for (const reader of [...readers, ...readers, ...readers, ...readers]) {
    const site = await openSite(WITH_SLOW_SITEMAPS);
    const { sourceId } = await reader.addSite(`${site.url}/`);
    sites.push(site);
    ends.push(() => reader.ended(sourceId));
  }
  opened.push(await stack.startSourcesWorker());
  const countBegun = () => sites.filter(({ asked }) => asked.includes('/0.xml')).length;
  await eventually(() => expect(countBegun()).toBeGreaterThanOrEqual(6));
  return { ends, assistantIds: readers.map(({ assistantId }) => assistantId) };
};

/** Waits until a small site of another assistant is read. Calls `onAsked` while the site is first asked for something. */
const readNeighbour = async (onAsked = async (): Promise<void> => undefined): Promise<void> => {
  const neighbour = await aReader(stack);
  const { url } = await openSite({
    '/': aPage('Start', aSentence('the start')),
    '/robots.txt': async (_, response) => {
      await onAsked();
      response.writeHead(404).end();
    },
  });
  const { sourceId } = await neighbour.addSite(`${url}/`);
  await eventually(async () => expect((await neighbour.findSource(sourceId)).state).toBe('ready'), SOON_MS);
};

test('two assistants with slow sites leave places to another one', async () => {
  await openHostile(2);

  await expect(readNeighbour()).resolves.toBeUndefined();
});

test('while others wait, a run stops to read slow sitemaps, and goes on with what was found and what it links to', async () => {
  const { ends } = await openHostile(5);

  await readNeighbour();

  expect((await ends[0]?.())?.counts.read).toBe(2);
});

test('a run that has not begun goes before those that go on, unless they have waited for ten minutes', async () => {
  const { assistantId } = await anAssistant(stack);
  const minutesAgo = (count: number): Date => new Date(Date.now() - count * 60_000);
  const aRow = (_id: string, more: object) => ({ _id, assistantId, removedAt: null, state: 'running', ...more });
  const goesOn = (minutes: number) => ({ nextAt: null, lease: { token: '', until: minutesAgo(minutes) } });
  const rows = [
    aRow('waits for 9 minutes', goesOn(9)),
    aRow('waits for 12 minutes', goesOn(12)),
    aRow('new', { state: 'waiting', nextAt: minutesAgo(1) }),
  ];
  await stack.service.mongo.collection<(typeof rows)[number]>('sources').insertMany(rows);

  const due = await stack.service.sourceRuns.findDue({ limit: 100, except: [] });

  expect(due.flatMap(({ sourceId, assistantId: id }) => (id === assistantId ? [sourceId] : []))).toEqual([
    'waits for 12 minutes',
    'new',
    'waits for 9 minutes',
  ]);
});

test('while the sites of nine assistants wait, one of another assistant is among the next', async () => {
  const { assistantIds } = await openHostile(9);
  const notBegun = { assistantId: { $in: assistantIds }, state: 'waiting' };
  const waiting: number[] = [];

  await readNeighbour(async () => {
    waiting.push(await stack.service.mongo.collection('sources').countDocuments(notBegun));
  });

  expect(waiting).toHaveLength(1);
  expect(waiting[0]).toBeGreaterThan(0);
});

/** So many sources of a new assistant that are due since then. */
const addDue = async (count: number, minutesAgo: number, more: object = {}): Promise<string> => {
  const { assistantId } = await anAssistant(stack);
  const at = new Date(Date.now() - minutesAgo * 60_000);
  const due = { assistantId, removedAt: null, state: 'waiting', nextAt: at, ...more };
  const rows = Array.from({ length: count }, () => ({ _id: randomUUID() as string, ...due }));
  await stack.service.mongo.collection<(typeof rows)[number]>('sources').insertMany(rows);
  return assistantId;
};

test('of each assistant one source gets a place before the second one of any, however many are due', async () => {
  const sources = stack.service.mongo.collection('sources');
  const { sourceRuns } = stack.service;
  const left = { nextAt: null, state: 'running', lease: { token: '', until: new Date(0) } };
  for (const more of [{}, left, { removedAt: new Date(0) }]) {
    const busy = [await addDue(150, 60, more), await addDue(150, 50, more)];
    const neighbours = [await addDue(1, 1, more), await addDue(1, 2, more)];
    const find = () => sourceRuns.findDue({ limit: 5, except: [] });
    let due: Awaited<ReturnType<typeof find>> = [];

    const sent = await profileStatements(stack, async () => {
      due = await find();
    });

    const ids = due.map(({ assistantId }) => assistantId);
    expect(new Set(ids.slice(0, 4))).toEqual(new Set([...busy, ...neighbours]));
    expect(busy).toContain(ids[4]);
    // It does not read all that is due.
    const read = sent.filter((one) => collectionIn(one) === 'sources').reduce((sum, one) => sum + examinedBy(one), 0);
    expect(read).toBeLessThan(200);
    await sources.deleteMany({});
  }
});

test('the assistant that has waited longest for a place gets it, if all have as many', async () => {
  const now = Date.now();
  const minutesAgo = (count: number): number => now - count * 60_000;
  const goesOn = { nextAt: null, state: 'running', lease: { token: '', until: new Date(minutesAgo(60)) } };
  const turns = new Map([
    [await addDue(1, 60), { places: 1, servedAt: 0 }],
    [await addDue(1, 60), { places: 0, servedAt: minutesAgo(1) }],
    [await addDue(1, 60, goesOn), { places: 0, servedAt: minutesAgo(8) }],
    [await addDue(1, 2), { places: 0, servedAt: 0 }],
    [await addDue(1, 60, goesOn), { places: 0, servedAt: minutesAgo(15) }],
  ]);

  const turnOf = (assistantId: string) => turns.get(assistantId) ?? { places: 9, servedAt: 0 };
  const due = await stack.service.sourceRuns.findDue({ limit: 5, except: [], turnOf });

  expect(due.map(({ assistantId }) => assistantId)).toEqual([...turns.keys()].toReversed());
});

test('pages of sitemaps that are no longer read in time stay', async () => {
  const xml = (body: string): SitePage => ({ headers: { 'Content-Type': 'application/xml' }, body });
  const listing = (path: string): SitePage => xml(`<urlset><url><loc>${path}</loc></url></urlset>`);
  const site = await openSite({
    '/': aPage('Start', aSentence('the start')),
    '/one': aPage('One', aSentence('the first page')),
    '/two': aPage('Two', aSentence('the second page')),
    '/sitemap.xml': xml(
      '<sitemapindex><sitemap><loc>/1.xml</loc></sitemap><sitemap><loc>/2.xml</loc></sitemap></sitemapindex>',
    ),
    '/1.xml': listing('/one'),
    '/2.xml': listing('/two'),
  });
  const worker = await stack.startSourcesWorker();
  opened.push(worker);
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(site.url);
  await reader.ended(sourceId);
  const before = await reader.visibleTexts(sourceId);
  site.pages.set('/1.xml', drip);

  for (const run of [2, 3]) {
    await reader.readAgain(sourceId, run);
  }

  expect(before).toHaveLength(3);
  expect(await reader.visibleTexts(sourceId)).toEqual(before);
  expect(site.asked.filter((path) => path === '/2.xml')).toHaveLength(1);
});

test('slow globs against the long addresses of a site do not hold up the worker', async () => {
  const site = await openSite({ ...WITH_SLOW_SITEMAPS, '/': aPage('Start', aSentence('the start')) });
  const worker = await stack.startSourcesWorker();
  opened.push(worker);
  const reader = await aReader(stack);
  const exclude = [...Array.from({ length: 19 }, (_, nth) => `/${'**a*a'.repeat(39)}${nth}`), '/a**'];
  const { sourceId } = await reader.addSite(site.url, { exclude });
  await reader.ended(sourceId);
  const ids = { assistantId: reader.assistantId, sourceId };
  const long = (nth: number) => ({ url: `${site.url}/${'a'.repeat(950)}${nth}` });
  await addPages(
    stack,
    ids,
    Array.from({ length: 40 }, (_, nth) => long(nth)),
  );
  const stop = watchLoop();

  await reader.readAgain(sourceId, 2);

  const { ms, name } = stop();
  expect(ms, name).toBeLessThan(atPace(100));
});
