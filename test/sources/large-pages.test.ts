import { afterEach, expect, test } from 'vitest';
import type { StoredSourcePage } from '../../src/sources/source.ts';
import { aPage, aSentence, openWebsite, type Website } from '../kit/website.ts';
import { anEmbedder } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { collectionIn, type Profiled, profileStatements } from '../support/profile.ts';
import { sized } from '../support/size.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';

// Pages whose storing takes longer than the time in which the lease is renewed, or vectors report their progress.

const PASSAGES = sized({ everyday: 1_200, long: 9_900 });
const ASSISTANTS = sized({ everyday: 4, long: 8 });
const embedder = anEmbedder({ msEach: 2 });
const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  sourcesWorkers: 1,
  timing: { ...QUICK, sourceFetchMs: 60_000, sourceRenewMs: 50 },
  embedder: () => embedder,
});
const opened: Website[] = [];
afterEach(() => Promise.all(opened.splice(0).map((site) => site.close())));

const aLargePage = (subject: string, links: string[] = [], count = PASSAGES): string => {
  const sections = Array.from({ length: count }, (_, nth) => {
    const name = `${subject} ${nth}`;
    return `<h2>The ${name}</h2><p>${aSentence(name)}</p>`;
  });
  return aPage('Large', aSentence(subject), links).replace('</main>', `${sections.join('')}</main>`);
};

const aSource = async (pages: Record<string, string>) => {
  const site = await openWebsite(pages);
  opened.push(site);
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(`${site.url}/`);
  return { site, reader, sourceId };
};
type Source = Awaited<ReturnType<typeof aSource>>;

/** How many passages the source has, and how often each of its pages was tried, by path. */
const readingOf = async ({ reader, sourceId }: Source, run = 1) => {
  const { error, counts } = await reader.ended(sourceId, run);
  const pages = await stack.service.mongo.collection<StoredSourcePage>('sourcePages').find({ sourceId }).toArray();
  const tries = Object.fromEntries(pages.map(({ url, tries: count }) => [new URL(url).pathname, count]));
  return { error, passages: counts.passages, tries };
};

/** From when to when the passages of a page of these sources were written, however often that was tried, in order. */
const spansOf = (statements: Profiled[], sourceIds: string[]): { from: number; to: number }[] =>
  sourceIds
    .flatMap((id) => {
      const reads = statements.filter((one) => {
        const { sourceId, pageId } = (one.command['filter'] ?? {}) as Record<string, unknown>;
        return collectionIn(one) === 'passages' && sourceId === id && typeof pageId === 'string';
      });
      const ends = statements.filter((one) => {
        const { q, u } = one.command as { q?: { _id?: string }; u?: unknown };
        const isOfSource = collectionIn(one) === 'sources' && q?._id === id && one.nMatched === 1;
        return isOfSource && JSON.stringify(u).includes('counts.read');
      });
      return ends.map(({ ts }, nth) => {
        const own = reads.filter((read) => read.ts <= ts && read.ts > (ends[nth - 1]?.ts ?? new Date(0)));
        return { from: Math.min(...own.map((read) => read.ts.getTime() - read.millis)), to: ts.getTime() };
      });
    })
    .toSorted((one, other) => one.from - other.from);

test('a large page is stored at the first try while vectors of its source are made', async () => {
  const source = await aSource({ '/': aLargePage('first shop', ['/other'], 400), '/other': aLargePage('other shop') });

  expect(await readingOf(source)).toEqual({ error: null, passages: 402 + PASSAGES, tries: { '/': 1, '/other': 1 } });
  const { embedded } = (await source.reader.findSource(source.sourceId)).counts;
  await eventually(async () => {
    const { counts } = await source.reader.findSource(source.sourceId);
    expect(counts.embedded).toBeGreaterThan(embedded);
  });
});

test('large pages of several assistants are each stored and removed at the first try, one after the other', async () => {
  embedder.set({ available: false });
  let [read, again]: [unknown[], unknown[]] = [[], []];
  let ids: string[] = [];

  const statements = await profileStatements(stack, async () => {
    const names = Array.from({ length: ASSISTANTS }, (_, nth) => `shop ${nth}`);
    const large = await Promise.all(names.map((name) => aSource({ '/': aLargePage(name) })));
    ids = large.map(({ sourceId }) => sourceId);
    const small = await aSource({ '/': aPage('Small', aSentence('the small shop')) });
    read = await Promise.all([...large, small].map((one) => readingOf(one)));
    for (const { site } of large) site.pages.set('/', aPage('Small now', aSentence('a shop')));
    await Promise.all(large.map(({ reader, sourceId }) => reader.refresh(sourceId)));
    again = await Promise.all(large.map((one) => readingOf(one, 2)));
  });

  const whole = { error: null, passages: PASSAGES + 1, tries: { '/': 1 } };
  const few = { ...whole, passages: 1 };
  expect(read).toEqual([...Array.from({ length: ASSISTANTS }, () => whole), few]);
  expect(again).toEqual(Array.from({ length: ASSISTANTS }, () => few));
  const spans = spansOf(statements, ids);
  expect(spans).toHaveLength(2 * ASSISTANTS);
  for (const [nth, { from }] of spans.slice(1).entries()) expect(from).toBeGreaterThanOrEqual(spans[nth]?.to ?? 0);
});
