import { expect, test } from 'vitest';
import { newToken } from '../../src/platform/process/ids.ts';
import type { PageEnd } from '../../src/sources/run-pages.ts';
import { NO_COUNTS, PAGES_OF_SITE_MAX, type StoredSourcePage } from '../../src/sources/source.ts';
import { eventually } from '../support/eventually.ts';
import { collectionIn, examinedBy, profileStatements } from '../support/profile.ts';
import { aReader, pagesChangedBy } from '../support/source-reading.ts';
import { addProposals, setSource } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

// Sites whose pages all link to each other. A page may have 400 KB of links and hashes, so many are never read whole, and
// never changed in one transaction.

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
/** Each may have 400 KB, so a transaction changes at most so many. */
const CHANGED_AT_ONCE = 16;
const PAGES = 450;
const FOUND = Array.from({ length: PAGES }, (_, nth) => ({ url: `http://a.example/${nth}`, depth: 1 }));
const READ: Extract<PageEnd, { state: 'read' }> = {
  state: 'read',
  title: 'Umbrellas',
  language: 'en',
  note: { code: 'not_whole', message: 'A part is missing' },
  etag: null,
  lastModified: null,
  hash: 'hash',
  passages: [],
  proposals: [],
  links: FOUND,
};
const UNCHANGED: PageEnd = { state: 'unchanged', etag: null, lastModified: null, keeps: () => true };

/** The second run of a site. The first has found all pages, and read one. `idAt`: the ids in the order of the pages. */
const aSecondRun = async () => {
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite('http://127.0.0.1:9/');
  const { sourceRuns: runs, mongo } = stack.service;
  const claimed = await runs.claim(sourceId, newToken());
  if (!claimed) throw new Error('the source is not due');
  const { lease } = claimed;
  await runs.start(lease);
  await runs.seed(lease, FOUND);
  const stored = mongo.collection<StoredSourcePage>('sourcePages');
  const byUrl = new Map((await stored.find({ sourceId }).toArray()).map(({ url, _id }) => [url, _id]));
  const ids = FOUND.map(({ url }) => byUrl.get(url) ?? '');
  const [first = '', second = ''] = ids;
  await runs.endPage(lease, first, READ);
  await runs.publish(lease);
  await reader.refresh(sourceId);
  // The clock of MongoDB may be some milliseconds ahead.
  await eventually(async () => expect(await runs.start(lease)).toMatchObject({ run: 2 }));
  const readAll = () => stored.updateMany({ sourceId }, { $set: { state: 'read', run: 2 } });
  return { ...reader, runs, lease, sourceId, stored, ids, first, second, readAll };
};

test('what is asked of many pages is read without the pages', async () => {
  const { assistantId, runs, lease, sourceId, first, second } = await aSecondRun();
  const list = (more: object) => stack.service.sources.listPages({ assistantId, sourceId, limit: 300, ...more });
  let known: string[] = [];
  let lists: Awaited<ReturnType<typeof list>>[] = [];

  const sent = await profileStatements(stack, async () => {
    known = await runs.listKnown({ sourceId, run: 2 }, PAGES);
    await runs.seed(lease, FOUND);
    for (const [id, end] of [
      [first, UNCHANGED],
      [second, READ],
    ] as const) {
      expect(await runs.listOpen({ sourceId, run: 2 }, 5)).toHaveLength(5);
      await runs.endPage(lease, id, end);
    }
    const whole = await list({});
    lists = [whole, await list({ after: whole.next }), await list({ state: 'found' }), await list({ state: 'read' })];
  });

  const urls = FOUND.map(({ url }) => url).toSorted();
  expect(known.toSorted()).toEqual(urls);
  expect(lists.map(({ pages, next }) => [pages.length, next !== null])).toEqual([
    [300, true],
    [PAGES - 300, false],
    [300, true],
    [1, false],
  ]);
  expect(lists.slice(0, 2).flatMap(({ pages }) => pages.map(({ url }) => url))).toEqual(urls);

  const shown = { pageId: second, url: FOUND[1]?.url, state: 'read', title: 'Umbrellas', error: READ.note };
  expect(lists[3]?.pages).toEqual([shown]);
  const reads = sent.filter((one) => collectionIn(one) === 'sourcePages' && ['query', 'getmore'].includes(one.op));
  expect(reads.reduce((sum, { nreturned = 0 }) => sum + nreturned, 0)).toBeGreaterThan(5 * PAGES);
  expect(Math.max(...reads.map(({ docsExamined = 0 }) => docsExamined))).toBe(1);
});

test('pages are found, reopened, closed and forgotten in small transactions', async () => {
  const { runs, lease, sourceId, stored, ids, first, second, readAll } = await aSecondRun();

  const seeded = await pagesChangedBy(stack, () => runs.seed(lease, FOUND.slice(0, -1)));
  await stored.updateMany({ sourceId, _id: { $ne: first } }, { $set: { run: 1 } });
  const linked = await pagesChangedBy(stack, () => runs.endPage(lease, first, UNCHANGED));
  await stored.updateMany({ sourceId, _id: { $ne: second } }, { $set: { run: 1 } });
  const found = await pagesChangedBy(stack, () => runs.endPage(lease, second, READ));
  await readAll();
  const reopened = await pagesChangedBy(stack, () => runs.reopenPages(lease, ids));
  const open = await runs.listOpen({ sourceId, run: 2 }, 2 * PAGES);
  await stored.updateMany({ sourceId }, { $set: { state: 'read', run: 1 } });
  const closed = await pagesChangedBy(stack, () => runs.closePages(lease));
  await readAll();
  const forgotten = await pagesChangedBy(stack, () => runs.fail(lease, { code: 'nothing_read', message: 'Nothing' }));

  const sumOf = (counts: number[]): number => counts.reduce((sum, count) => sum + count, 0);
  const all = { seeded, linked, found, reopened, closed, forgotten };
  expect(Object.fromEntries(Object.entries(all).map(([name, counts]) => [name, sumOf(counts)]))).toEqual({
    seeded: PAGES - 1,
    linked: PAGES,
    found: PAGES,
    reopened: PAGES,
    closed: PAGES,
    forgotten: PAGES,
  });
  for (const counts of Object.values(all)) expect(Math.max(...counts)).toBeLessThanOrEqual(CHANGED_AT_ONCE);
  expect(open).toHaveLength(PAGES);
  expect(await stored.countDocuments({ sourceId, hash: 'again' })).toBe(PAGES);
  expect(await stack.service.sources.findAny(sourceId)).toMatchObject({ source: { state: 'failed', live: 1, run: 2 } });
});

test('links to pages that are found already, or that the site has no room for, take hardly any transactions', async () => {
  const { runs, lease, sourceId, stored, first, second } = await aSecondRun();
  const countWrites = async (work: () => Promise<unknown>): Promise<number> => {
    const sent = await profileStatements(stack, work);
    return sent.filter((one) => one.op === 'update' && collectionIn(one) === 'sources').length;
  };
  await runs.seed(lease, FOUND);

  const found = await countWrites(() => runs.endPage(lease, first, READ));
  await stored.updateMany({ sourceId, _id: { $ne: second } }, { $set: { run: 1 } });
  await setSource(stack, { sourceId }, { counts: { ...NO_COUNTS, found: PAGES_OF_SITE_MAX } });
  const full = await countWrites(() => runs.endPage(lease, second, READ));

  expect(found).toBe(1);
  expect(full).toBeLessThan(6);
  const { source } = (await stack.service.sources.findAny(sourceId)) ?? {};
  expect(source).toMatchObject({ error: { code: 'too_many_pages' }, counts: { read: 1 } });
});

test('the links of a large page are stored before it waits for its turn', async () => {
  const { runs, lease, sourceId, stored, second } = await aSecondRun();
  await runs.seed(lease, FOUND.slice(1, 2));
  const foundBefore: number[] = [];

  const isStored = await runs.endPage(lease, second, READ, {
    inLine: async (write) => {
      foundBefore.push(await stored.countDocuments({ sourceId, run: 2 }));
      return write();
    },
  });

  expect(isStored).toBe(true);
  expect(foundBefore).toEqual([PAGES]);
});

test('a run that must stop finds and reopens no more pages', async () => {
  const { findSource, runs, lease, sourceId, stored, ids, second } = await aSecondRun();
  const signal = AbortSignal.abort(new Error('the worker stops'));
  const site = { run: 2, origin: 'http://a.example', path: '/', follow: false, typed: null };
  const cut = [() => runs.seed(lease, FOUND, site, signal)];
  cut.push(async () => {
    await runs.seed(lease, FOUND.slice(1, 2));
    await runs.endPage(lease, second, READ, { signal });
  });
  cut.push(async () => {
    await stored.updateMany({ sourceId, _id: { $ne: second } }, { $set: { state: 'read', run: 2 } });
    await runs.reopenPages(lease, ids, signal);
  });

  const found: number[] = [];
  for (const work of cut) {
    await expect(work()).rejects.toThrow('the worker stops');
    found.push((await runs.listOpen({ sourceId, run: 2 }, 2 * PAGES)).length);
  }

  expect(found).toEqual([0, 1, 1]); // the page that was to end is still open
  expect((await findSource(sourceId)).site).toBeNull();
});

test('the proposed entries of a page that leaves are found without those of other pages', async () => {
  const { assistantId, runs, lease, sourceId, stored } = await aSecondRun();
  await stored.updateMany({ sourceId }, { $set: { missed: 1 } });
  await addProposals(stack, { assistantId, sourceId }, [
    ...FOUND.map(({ url }) => ({ url })),
    ...Array.from({ length: PAGES }, () => ({ url: 'http://a.example/kept' })),
  ]);

  const sent = await profileStatements(stack, () => runs.closePages(lease));

  const deletions = sent.filter((one) => one.op === 'remove' && collectionIn(one) === 'proposedEntries');
  expect(deletions).toHaveLength(PAGES);
  expect(Math.max(...deletions.map(examinedBy))).toBeLessThan(10);
  const left = await stack.service.mongo.collection('proposedEntries').distinct('url', { sourceId });
  expect(left).toEqual(['http://a.example/kept']);
});

test('the pages of a removed site are deleted a few at a time', async () => {
  const { runs, sourceId, stored } = await aSecondRun();
  await setSource(stack, { sourceId }, { removedAt: new Date(0) });

  const sent = await profileStatements(stack, () => runs.remove(sourceId, newToken()));

  const deleted = sent.filter((one) => collectionIn(one) === 'sourcePages').map(({ ndeleted }) => ndeleted ?? 0);
  expect(Math.max(...deleted)).toBeLessThan(20);
  expect(deleted.reduce((sum, count) => sum + count, 0)).toBe(PAGES);
  expect(await stored.countDocuments({ sourceId })).toBe(0);
});
