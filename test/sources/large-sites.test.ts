import { afterEach, expect, test } from 'vitest';
import type { StoredSourcePage } from '../../src/sources/source.ts';
import { aPage, aSentence, openWebsite, type Website } from '../kit/website.ts';
import { anEmbedder } from '../support/embedder.ts';
import { aReader, pagesChangedBy, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';

// A site of large pages that is read again and again. MongoDB keeps in its cache what a transaction changes, and up to
// eight runs may write at once.

const PAGES = 40;
const PAGE_BYTES = 400_000;
const TRANSACTION_BYTES = 8_000_000;
const embedder = anEmbedder();
embedder.set({ available: false });
const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  sourcesWorkers: 1,
  // The lease is hardly ever renewed between the statements of a transaction.
  timing: { ...QUICK, sourceLeaseMs: 15_000, sourceRenewMs: 4_000 },
  embedder: () => embedder,
});
let site: Website | null = null;
afterEach(() => site?.close());

test('runs change few large pages in a transaction, if they are found again and if they are not', async () => {
  const paths = Array.from({ length: PAGES }, (_, nth) => `/${nth}`);
  const pages = paths.map((path) => [path, aPage(`Page ${path}`, aSentence(`page ${path}`))] as const);
  site = await openWebsite(Object.fromEntries(pages));
  site.pages.set('/', { headers: { ETag: '"1"' }, body: aPage('Start', aSentence('the start'), paths) });
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(`${site.url}/`);
  const first = await reader.ended(sourceId);
  const repeated = Array.from({ length: PAGE_BYTES / 40 }, (_, nth) => `${nth}`.padStart(24, 'h'));
  const stored = stack.service.mongo.collection<StoredSourcePage>('sourcePages');
  await stored.updateMany({ sourceId, depth: { $gt: 0 } }, { $set: { repeated } });

  site.pages.set('/', { status: 304 });
  for (const path of paths) site.pages.set(path, { status: 500 });
  const found = await pagesChangedBy(stack, () => reader.readAgain(sourceId, 2));
  const second = await reader.findSource(sourceId);
  site.pages.set('/', aPage('Start', aSentence('the start without links')));
  const closed = await pagesChangedBy(stack, () => reader.readAgain(sourceId, 3));

  expect(first).toMatchObject({ state: 'ready', counts: { read: PAGES + 1 } });
  expect(second.counts).toMatchObject({ unchanged: 1 });
  for (const counts of [found, closed]) {
    expect(counts.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(PAGES);
    expect(Math.max(...counts) * PAGE_BYTES).toBeLessThan(TRANSACTION_BYTES);
  }
});
