import { readerVersion } from '@parley/reading';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { buildPassageIndex } from '../../src/sources/passage-index.ts';
import { FILE_CHUNK_BYTES, type StoredSource } from '../../src/sources/source.ts';
import { eventually } from '../support/eventually.ts';
import { anEmbedder } from '../support/embedder.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';
import { aPage, aSentence, openWebsite, type SitePage, type Website } from '../kit/website.ts';

const embedder = anEmbedder();
const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  sourcesWorkers: 1,
  timing: QUICK,
  embedder: () => embedder,
});

const opened: Website[] = [];
const aSite = async (pages: Record<string, SitePage>): Promise<Website> => {
  const site = await openWebsite(pages);
  opened.push(site);
  return site;
};
afterEach(async () => {
  await Promise.all(opened.splice(0).map((site) => site.close()));
});

const THREE = {
  '/help/': aPage('Help', aSentence('help'), ['/help/parcels', '/help/refunds', '/about']),
  '/help/parcels': aPage('Parcels', aSentence('parcels'), ['/help/']),
  '/help/refunds': aPage('Refunds', aSentence('refunds'), ['/help/parcels#top']),
  '/about': aPage('About', aSentence('about')),
};

/** A site whose three pages below `/help/` were read. */
const aReadSite = async (page: (body: string) => SitePage = (body) => body) => {
  const site = await aSite(Object.fromEntries(Object.entries(THREE).map(([path, body]) => [path, page(body)])));
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(`${site.url}/help/`);
  return { site, reader, sourceId, read: await reader.ended(sourceId) };
};

test('the pages below a path become passages with vectors, and what lies elsewhere does not', async () => {
  const site = await aSite(THREE);
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(`${site.url}/help/`);

  const source = await reader.ended(sourceId);

  expect(source).toMatchObject({
    state: 'ready',
    error: null,
    run: 1,
    live: 1,
    changed: { added: 3, changed: 0, removed: 0 },
  });
  expect(source.counts).toMatchObject({ found: 0, read: 3, skipped: 0, failed: 0, gone: 0, passages: 3 });
  expect(await reader.pagesOf(sourceId)).toEqual({
    '/help/': 'read',
    '/help/parcels': 'read',
    '/help/refunds': 'read',
  });
  expect((await reader.visibleTexts(sourceId)).join(' ')).toContain('parcels');
  expect(site.asked.filter((path) => path.startsWith('/help/')).toSorted()).toEqual([
    '/help/',
    '/help/parcels',
    '/help/refunds',
  ]);
  await eventually(async () => {
    const { counts } = await reader.findSource(sourceId);
    expect(counts.embedded).toBe(3);
    for (const { vector, model } of await reader.passagesOf(sourceId)) {
      expect((vector as unknown as { length: () => number }).length()).toBe(384);
      expect(model).toBe('trigrams-1');
    }
  });
  const { passages } = await stack.service.assistants.getAssistant(reader.assistantId);
  expect(passages?.count).toBe(3);
});

test('vectors whose worker was killed before it stored their count are counted', async () => {
  const { reader, sourceId } = await aReadSite();
  await reader.storedIndex(sourceId);
  await eventually(async () => expect((await reader.findSource(sourceId)).vectors?.made).toBe('trigrams-1'));

  const left = { 'counts.embedded': 1, 'vectors.made': null };
  await stack.service.mongo.collection<{ _id: string }>('sources').updateOne({ _id: sourceId }, { $set: left });

  await eventually(async () => expect((await reader.findSource(sourceId)).vectors?.made).toBe('trigrams-1'));
  expect((await reader.findSource(sourceId)).counts.embedded).toBe(3);
});

test('a passage whose text the model refuses is tried a few times, and delays neither the rest of its source nor others', async () => {
  let tried = 0;
  embedder.refuse = (texts) => {
    const isRefused = texts.some((text) => text.includes('doom'));
    if (isRefused && texts.length === 1) tried += 1;
    return isRefused;
  };
  onTestFinished(() => {
    embedder.refuse = () => false;
  });
  const sites = [
    await aSite({ ...THREE, '/help/parcels': aPage('Parcels', aSentence('doom'), ['/help/']) }),
    await aSite(THREE),
  ];
  const reader = await aReader(stack);
  const [poisoned, other] = [
    await reader.addSite(`${sites[0]?.url}/help/`),
    await (await aReader(stack)).addSite(`${sites[1]?.url}/help/`),
  ];

  const whole = { counts: { embedded: 3 }, vectors: { made: 'trigrams-1' } };
  for (const { sourceId } of [other, poisoned])
    await eventually(async () => expect(await reader.findSource(sourceId)).toMatchObject(whole));

  const passages = await reader.passagesOf(poisoned.sourceId);
  const isRefused = ({ text }: { text: string }): boolean => text.includes('doom');
  expect(passages.map((one) => [isRefused(one), one.vector === null, one.model])).toEqual(
    passages.map((one) => (isRefused(one) ? [true, true, null] : [false, false, 'trigrams-1'])),
  );
  expect(passages.filter(isRefused)).toHaveLength(1);
  expect(tried).toBe(3);
});

const tagged =
  (body: string): SitePage =>
  (request, response) => {
    const etag = `"${body.length}"`;
    if (request.headers['if-none-match'] === etag) return response.writeHead(304, { ETag: etag }).end();
    return response.writeHead(200, { ETag: etag, 'Content-Type': 'text/html' }).end(body);
  };

test('pages that another version of the reader has read are read again, and keep what is the same', async () => {
  const { reader, sourceId, read } = await aReadSite(tagged);
  const before = await reader.passagesOf(sourceId);
  const pages = stack.service.mongo.collection('sourcePages');
  const older = { $replaceOne: { input: '$hash', find: readerVersion(), replacement: 'older' } };

  const { modifiedCount } = await pages.updateMany({ sourceId }, [{ $set: { hash: older } }]);
  const again = await reader.readAgain(sourceId, 2);
  const same = await reader.readAgain(sourceId, 3);

  expect(modifiedCount).toBe(read.counts.read);
  expect(again.counts).toMatchObject({ read: modifiedCount, unchanged: 0 });
  expect(same.counts).toMatchObject({ read: 0, unchanged: modifiedCount });
  expect((await reader.passagesOf(sourceId)).map(({ _id }) => _id)).toEqual(before.map(({ _id }) => _id));
});

test('a refresh asks whether pages have changed, and shows what has', async () => {
  const { site, reader, sourceId } = await aReadSite(tagged);
  const before = await reader.passagesOf(sourceId);

  site.pages.set('/help/parcels', tagged(aPage('Parcels', aSentence('heavy parcels'), ['/help/', '/help/letters'])));
  site.pages.set('/help/letters', tagged(aPage('Letters', aSentence('letters'))));
  const source = await reader.readAgain(sourceId, 2);

  expect(source).toMatchObject({ state: 'ready', live: 2, changed: { added: 1, changed: 1, removed: 0 } });
  expect(source.counts).toMatchObject({ found: 0, read: 2, unchanged: 2, passages: 4 });
  const after = await reader.passagesOf(sourceId);
  expect(after.map(({ text }) => text).join(' ')).toContain('heavy parcels');
  expect(after.map(({ until }) => until)).toEqual([null, null, null, null]);
  const kept = before.filter(({ _id }) => after.some((one) => one._id === _id));
  expect(kept.length).toBe(2);
});

test('a page that is gone leaves after the second refresh, and not before', async () => {
  const { site, reader, sourceId } = await aReadSite();

  site.pages.delete('/help/parcels');
  site.pages.set('/help/refunds', aPage('Refunds', aSentence('refunds')));
  await reader.readAgain(sourceId, 2);
  const afterOne = (await reader.visibleTexts(sourceId)).join(' ');
  const source = await reader.readAgain(sourceId, 3);

  expect(afterOne).toContain('parcels');
  expect((await reader.visibleTexts(sourceId)).join(' ')).not.toContain('parcels');
  expect(source.changed).toMatchObject({ removed: 1 });
  expect((await reader.pagesOf(sourceId))['/help/parcels']).toBe('gone: not_found');
});

test('a page that nothing links to any more leaves after the second refresh', async () => {
  const { site, reader, sourceId } = await aReadSite();

  site.pages.set('/help/', aPage('Help', aSentence('help'), ['/help/parcels']));
  for (const run of [2, 3]) {
    await reader.readAgain(sourceId, run);
  }

  expect((await reader.visibleTexts(sourceId)).join(' ')).not.toContain('refunds');
  expect((await reader.findSource(sourceId)).counts).toMatchObject({ passages: 2 });
});

test('a site that cannot be reached keeps its last version, and says why', async () => {
  const { site, reader, sourceId } = await aReadSite();
  const before = await reader.visibleTexts(sourceId);

  await site.close();
  opened.length = 0;
  const source = await reader.readAgain(sourceId, 2);

  expect(source).toMatchObject({ state: 'failed', live: 1, error: { code: 'unreachable' } });
  expect(await reader.visibleTexts(sourceId)).toEqual(before);
});

test('a refresh that fails half-way changes nothing, and the next one reads what it had read', async () => {
  const { site, reader, sourceId } = await aReadSite();
  const before = await reader.visibleTexts(sourceId);
  // So many that ten fail in a row wherever the two others stand among them.
  const links = Array.from({ length: 20 }, (_, nth) => `/help/broken-${nth}`);
  const changed = aPage('Help', aSentence('help in winter'), ['/help/parcels', '/help/refunds', ...links]);
  for (const link of links) site.pages.set(link, (_request, response) => response.destroy());
  site.pages.set('/help/', changed);
  const failed = await reader.readAgain(sourceId, 2);
  const during = await reader.visibleTexts(sourceId);
  const left = await reader.passagesOf(sourceId);

  for (const link of links) site.pages.set(link, aPage(link, aSentence(link)));
  await reader.readAgain(sourceId, 3);

  expect(failed).toMatchObject({ state: 'failed', live: 1, error: { code: 'unreachable' } });
  expect(during).toEqual(before);
  expect(left.map(({ since, until }) => [since, until])).toEqual(before.map(() => [1, null]));
  const after = (await reader.visibleTexts(sourceId)).join(' ');
  expect(after).toContain('help in winter');
  expect(after).toContain('broken-19');
});

test('equal texts are stored once, and stay when the page that has them leaves', async () => {
  const shared = aSentence('everybody');
  const site = await aSite({
    '/': aPage('Start', aSentence('start'), ['/a', '/b']),
    '/a': aPage('A', shared),
    '/b': aPage('B', shared),
  });
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(`${site.url}/`);
  await reader.ended(sourceId);
  const first = (await reader.passagesOf(sourceId)).filter(({ text }) => text.includes('everybody'));
  const holder = first[0]?.url?.endsWith('/a') ? '/a' : '/b';

  site.pages.set(holder, aPage('Other', aSentence('something else')));
  await reader.readAgain(sourceId, 2);

  const second = (await reader.passagesOf(sourceId)).filter(({ text }) => text.includes('everybody'));
  expect(first.length).toBe(1);
  expect(second.map(({ url }) => new URL(url ?? '').pathname)).toEqual([holder === '/a' ? '/b' : '/a']);
});

test('a file and a single page become passages; a file has no address', async () => {
  const site = await aSite({ '/prices': aPage('Prices', aSentence('prices'), ['/other']) });
  const reader = await aReader(stack);
  const file = await reader.addFile('handbook.md', `# Handbook\n\n## Holidays\n\n${aSentence('holidays')}\n`);
  const page = await reader.addPage(`${site.url}/prices?utm_source=mail`);

  expect((await reader.ended(file.sourceId)).counts).toMatchObject({ found: 0, read: 1, passages: 1 });
  expect((await reader.ended(page.sourceId)).counts).toMatchObject({ found: 0, read: 1, passages: 1 });
  expect(await reader.passagesOf(file.sourceId)).toMatchObject([{ url: null, path: ['Handbook', 'Holidays'] }]);
  expect(await reader.passagesOf(page.sourceId)).toMatchObject([{ url: `${site.url}/prices`, title: 'Prices' }]);
  expect(site.asked).not.toContain('/other');
});

test('a replaced file answers whole, also under another name, and a renamed one is read as before', async () => {
  const reader = await aReader(stack);
  const { sources } = stack.service;
  const of = (...names: string[]) => names.map((name) => `## ${name}\n\n${aSentence(name)}\n`).join('\n');
  const bytes = async function* (text: string) {
    yield Buffer.from(text);
  };
  const { sourceId } = await reader.addFile('handbook.md', of('holidays', 'parking'));
  const versions = [];
  await reader.ended(sourceId);
  versions.push(await reader.visibleTexts(sourceId));

  await sources.change(reader.assistantId, sourceId, { name: 'The handbook' });
  await reader.readAgain(sourceId, 2);
  versions.push(await reader.visibleTexts(sourceId));
  await sources.replaceFile(reader.assistantId, sourceId, 'handbook.txt', bytes(aSentence('parking')));
  const { counts, state } = await reader.ended(sourceId, 3);
  versions.push(await reader.visibleTexts(sourceId));

  expect(versions.map(({ length }) => length)).toEqual([2, 2, 1]);
  expect(versions[1]).toEqual(versions[0]);
  expect(versions[2]?.[0]).toContain('parking');
  expect([state, counts.passages, await reader.findOrphans(sourceId)]).toEqual(['ready', 1, []]);
  expect(Object.keys(await reader.pagesOf(sourceId))).toContain('handbook.txt');
});

test('removing a source leaves nothing of it in any collection, also while it is read', async () => {
  const started = Promise.withResolvers<void>();
  const site = await aSite({
    ...THREE,
    '/help/refunds': (_request, response) => {
      started.resolve();
      setTimeout(() => response.writeHead(200, { 'Content-Type': 'text/html' }).end(THREE['/help/refunds']), 200);
    },
  });
  const reader = await aReader(stack);
  const whole = await reader.addFile('notes.txt', aSentence('notes'));
  await reader.ended(whole.sourceId);
  expect(await reader.storedIndex(whole.sourceId)).toHaveLength(1);
  const { sourceId } = await reader.addSite(`${site.url}/help/`);
  await started.promise;

  await reader.remove(whole.sourceId);
  await reader.remove(sourceId);

  const none = {
    sources: 0,
    sourceFiles: 0,
    sourcePages: 0,
    passages: 0,
    passageTokens: 0,
    passageIndexes: 0,
    proposedEntries: 0,
  };
  for (const id of [whole.sourceId, sourceId])
    await eventually(async () => expect(await reader.countLeft(id)).toEqual(none));
  const { passages } = await stack.service.assistants.getAssistant(reader.assistantId);
  expect(passages?.count).toBe(0);
});

const SHOP = '/help/';
const asking = (dog: string, kite: string) =>
  aPage(
    'Help',
    `${aSentence('help')}</p><h2>May I bring a dog?</h2><p>${dog}</p><h2>Do you sell kites?</h2><p>${kite}`,
  );
type Proposal = { proposalId: string; question: string; answer: string; entryId: string | null };

test('an entry that was accepted follows its page until its owner edits it', async () => {
  const site = await aSite({ [SHOP]: asking('Yes, for 12 EUR.', 'No, we sell umbrellas.') });
  const reader = await aReader(stack);
  const { assistantId } = reader;
  const { sources, assistants } = stack.service;
  const proposed = async (): Promise<Proposal[]> =>
    (await sources.listProposals({ assistantId, limit: 9 })).proposals.map(({ entryId = null, ...one }) => {
      return { ...one, entryId };
    });
  const answers = async () =>
    Object.fromEntries((await assistants.listKnowledge(assistantId)).map((one) => [one.question, one.answer]));
  const read = async (dog: string, kite: string, run: number): Promise<void> => {
    site.pages.set(SHOP, asking(dog, kite));
    await reader.readAgain(sourceId, run);
  };
  const { sourceId } = await reader.addSite(`${site.url}${SHOP}`);
  await reader.ended(sourceId);
  await sources.accept(assistantId, null);
  const entries = await assistants.listKnowledge(assistantId);
  const kites = entries.find(({ question }) => question === 'Do you sell kites?')!;
  const { entryId, ...kite } = kites;

  await read('Yes, for 15 EUR.', 'No, we sell umbrellas.', 2);
  const followed = await answers();
  await assistants.updateKnowledge(assistantId, entryId, { ...kite, answer: 'Only in spring.' });
  await read('Yes, for 15 EUR.', 'Yes, in all colours.', 3);
  const edited = await answers();
  const [conflict] = await proposed();
  await sources.dismiss(assistantId, [conflict?.proposalId ?? '']);
  await read('Yes, for 15 EUR.', 'Yes, in red.', 4);
  const [another] = await proposed();
  const all = await sources.accept(assistantId, null);
  const chosen = await sources.accept(assistantId, [another?.proposalId ?? '']);

  expect(kites.actions).toEqual([{ label: 'Help', type: 'link', payload: `${site.url}${SHOP}` }]);
  expect(followed).toMatchObject({ 'May I bring a dog?': 'Yes, for 15 EUR.' });
  expect(edited).toMatchObject({ 'Do you sell kites?': 'Only in spring.' });
  expect(conflict).toMatchObject({ entryId, answer: 'Yes, in all colours.' });
  expect(another).toMatchObject({ entryId, answer: 'Yes, in red.' });
  expect([all, chosen, await proposed()]).toEqual([0, 1, []]);
  expect(await answers()).toMatchObject({ 'Do you sell kites?': 'Yes, in red.' });
});

test('the entry of an assistant with drafts is proposed again, and changes its draft', async () => {
  const site = await aSite({ [SHOP]: asking('Yes, for 12 EUR.', 'No.') });
  const reader = await aReader(stack);
  const { assistantId } = reader;
  const { sources, assistants } = stack.service;
  await assistants.updateAssistant(assistantId, { drafts: true });
  const { sourceId } = await reader.addSite(`${site.url}${SHOP}`);
  await reader.ended(sourceId);
  await sources.accept(assistantId, null);

  site.pages.set(SHOP, asking('Yes, for 15 EUR.', 'No.'));
  await reader.readAgain(sourceId, 2);
  const { proposals } = await sources.listProposals({ assistantId, limit: 9 });
  const ids = proposals.map(({ proposalId }) => proposalId);
  const count = await sources.accept(assistantId, ids);

  const entry = await assistants.drafts.findEntry(assistantId, proposals[0]?.entryId ?? '');
  expect([count, ids.length, entry?.answer]).toEqual([1, 1, 'Yes, for 15 EUR.']);
  expect((await sources.listProposals({ assistantId, limit: 9 })).proposals).toEqual([]);
});

test('what an upload stores after its source was removed is removed too', async () => {
  const reader = await aReader(stack);
  const { sources, mongo } = stack.service;
  const { sourceId } = await reader.addFile('notes.txt', aSentence('notes'));
  await reader.ended(sourceId);
  const removed = Promise.withResolvers<void>();
  /** Stores a chunk after the removal. Its process then dies. */
  const bytes = async function* () {
    await removed.promise;
    yield Buffer.alloc(FILE_CHUNK_BYTES);
    await new Promise<never>(() => undefined);
  };
  void sources.replaceFile(reader.assistantId, sourceId, 'notes.txt', bytes());
  const rows = mongo.collection<StoredSource>('sources');
  await eventually(async () => expect((await rows.findOne({ _id: sourceId }))?.uploadUntil).toBeInstanceOf(Date));

  await reader.remove(sourceId);
  await eventually(async () =>
    expect((await rows.findOne({ _id: sourceId }))?.removedAt?.getTime()).toBeGreaterThan(Date.now()),
  );
  removed.resolve();
  await eventually(async () => expect((await reader.countLeft(sourceId)).sourceFiles).toBe(1));
  const past = new Date(Date.now() - 1_000);
  await rows.updateOne({ _id: sourceId }, { $set: { removedAt: past, uploadUntil: past } });

  await eventually(async () =>
    expect(await reader.countLeft(sourceId)).toMatchObject({ sources: 0, sourceFiles: 0, sourcePages: 0 }),
  );
});

test('a schedule reads a source again when it is due', async () => {
  const site = await aSite(THREE);
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(`${site.url}/help/`, { schedule: 'daily' });
  const { nextAt } = await reader.ended(sourceId);

  await stack.service.mongo
    .collection('sources')
    .updateOne({ _id: sourceId as never }, { $set: { nextAt: new Date() } });
  const again = await reader.ended(sourceId, 2);

  expect((nextAt?.getTime() ?? 0) - Date.now()).toBeGreaterThan(86_000_000);
  expect(again.counts).toMatchObject({ unchanged: 3, read: 0 });
  expect(again.changed).toEqual({ added: 0, changed: 0, removed: 0 });
});

test('the index of a source is stored with its vectors, follows each run and the language, and has no older pieces', async () => {
  const { site, reader, sourceId } = await aReadSite();
  const { passages } = stack.service;
  const { assistantId } = reader;
  /** What a reply worker gets that starts now, and how many passages it has to read for it. */
  const start = async (language = 'en') => {
    let read = 0;
    const counted = {
      ...passages,
      readEmbedded: (ids: string[]) => {
        read += ids.length;
        return passages.readEmbedded(ids);
      },
    };
    const options = { passages: counted, scope: { assistantId }, model: anEmbedder().model(), language };
    const { index } = await buildPassageIndex(options, null);
    return { ids: [...index.passageIds()].toSorted(), read };
  };
  const visible = async () => (await reader.passagesOf(sourceId)).map(({ _id }) => _id).toSorted();

  await eventually(async () => expect(await start()).toEqual({ ids: await visible(), read: 0 }));
  site.pages.set('/help/refunds', aPage('Refunds', aSentence('other refunds'), ['/help/parcels']));
  await reader.readAgain(sourceId, 2);
  const before = await visible();
  expect((await start()).ids).toEqual(before);
  await eventually(async () => expect(await start()).toEqual({ ids: before, read: 0 }));
  await reader.storedIndex(sourceId);
  const pieces = await stack.service.mongo.collection('passageIndexes').find({ sourceId }).toArray();
  expect(new Set(pieces.map((piece) => piece['of'])).size).toBe(1);

  await stack.service.assistants.updateAssistant(assistantId, { languages: ['de'] });
  expect(await start('de')).toEqual({ ids: before, read: before.length });
  await eventually(async () => expect(await start('de')).toEqual({ ids: before, read: 0 }));
});
