import { beforeEach, expect, test } from 'vitest';
import { newToken } from '../../src/platform/process/ids.ts';
import type { PageEnd } from '../../src/sources/run-pages.ts';
import type { StoredPassage } from '../../src/sources/source.ts';
import { eventually } from '../support/eventually.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { aReader } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';

// A large page that is read twice in one run, because a text that it has in common with another page has left. Meanwhile
// its first texts got vectors, which may have 240 MB together: too much to delete in one transaction.

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const PASSAGES = 450;
const AT_ONCE = 200;
type Read = Extract<PageEnd, { state: 'read' }>;

const readWith = (subject: string, count = PASSAGES): Read => ({
  state: 'read',
  title: 'Umbrellas',
  language: 'en',
  note: null,
  etag: null,
  lastModified: null,
  hash: subject,
  passages: Array.from({ length: count }, (_, nth) => ({ path: [], text: `${subject} ${nth}`, anchor: null })),
  proposals: [],
  links: [],
});

/** A run that has read one page, whose texts have vectors. */
const aRun = async () => {
  const reader = await aReader(stack);
  const { assistantId } = reader;
  const { sourceId } = await reader.addPage('http://127.0.0.1:9/');
  const { sourceRuns: runs, passages: visible, mongo } = stack.service;
  const claimed = await runs.claim(sourceId, newToken());
  if (!claimed) throw new Error('the source is not due');
  const { lease } = claimed;
  const texts = mongo.collection<StoredPassage>('passages');
  const tokens = mongo.collection<{ _id: string; sourceId: string; tokens: Buffer }>('passageTokens');
  let pageId = '';

  const begin = async (run: number) => {
    // The clock of MongoDB may be some milliseconds ahead.
    await eventually(async () => expect(await runs.start(lease)).toMatchObject({ run }));
    await runs.seed(lease, [{ url: 'http://127.0.0.1:9/', depth: 0 }]);
    pageId = (await runs.listOpen({ sourceId, run }, 1))[0]?._id ?? '';
  };
  const read = async (end: PageEnd) => {
    expect(await runs.endPage(lease, pageId, end)).toBe(true);
    for await (const { _id } of texts.find({ sourceId, vector: null })) {
      await texts.updateOne({ _id }, { $set: { vector: Buffer.alloc(384), made: 'test' } });
      await tokens.insertOne({ _id, sourceId, tokens: Buffer.alloc(96) });
    }
  };
  const readAgain = async (end: PageEnd) => {
    expect(await runs.reopenPages(lease, [pageId])).toBe(true);
    const hidden = { sourceId, $expr: { $eq: ['$since', '$until'] } };
    expect(await texts.countDocuments(hidden)).toBe(0); // so nothing piles up
    await read(end);
  };
  /** The subjects of the visible texts, with their number. */
  const listVisible = async (): Promise<Record<string, number>> => {
    const counts: Record<string, number> = {};
    for await (const some of visible.listVisible({ assistantId })) {
      const rows = await texts.find({ _id: { $in: some.map(({ passageId }) => passageId) } }).toArray();
      for (const { text } of rows) counts[text.split(' ')[0]!] = (counts[text.split(' ')[0]!] ?? 0) + 1;
    }
    return counts;
  };
  const countLeft = async () => [await texts.countDocuments({ sourceId }), await tokens.countDocuments({ sourceId })];
  await begin(1);
  await read(readWith('old'));
  return { ...reader, runs, lease, sourceId, begin, read, readAgain, listVisible, countLeft };
};
let run: Awaited<ReturnType<typeof aRun>>;
beforeEach(async () => {
  run = await aRun();
});

test('it deletes at most some vectors in one transaction, and answers use only what it read last', async () => {
  const { runs, lease, readAgain, listVisible, countLeft, findSource, sourceId } = run;

  const sent = await profileStatements(stack, async () => {
    await readAgain(readWith('new', 5));
    expect(await listVisible()).toEqual({ new: 5 });
    expect((await findSource(sourceId)).counts.passages).toBe(5);
    await readAgain(readWith('old'));
    expect(await listVisible()).toEqual({ old: PASSAGES });
    await readAgain({ state: 'skipped', error: { code: 'no_text', message: 'It has no text' } });
    await runs.publish(lease);
    await runs.settle(lease);
  });

  const deleted = sent.filter((one) => collectionIn(one) === 'passageTokens').map(({ ndeleted }) => ndeleted ?? 0);
  expect(deleted.reduce((sum, count) => sum + count, 0)).toBe(2 * PASSAGES + 5);
  expect(Math.max(...deleted)).toBeLessThanOrEqual(AT_ONCE);
  expect(await listVisible()).toEqual({});
  expect(await countLeft()).toEqual([0, 0]);
});

test('pages that go on lacking texts are read four times, also by workers that follow one another', async () => {
  const { runs, lease, readAgain, sourceId } = run;
  for (const nth of [1, 2, 3]) {
    await readAgain(readWith(`time ${nth}`, 5));
    await runs.release(lease);
    const claimed = await eventually(async () => {
      const next = await runs.claim(sourceId, newToken());
      if (!next) throw new Error('the lease has not ended');
      return next;
    });
    Object.assign(lease, claimed.lease);
  }

  expect(await runs.reopenPages(lease, ['a page'])).toBe(false);
});

test('after a run that fails, answers use what the one before has read', async () => {
  const { runs, lease, begin, read, readAgain, listVisible, countLeft, refresh, sourceId } = run;
  await runs.publish(lease);
  await runs.settle(lease);
  await refresh(sourceId);
  await begin(2);
  await read(readWith('new'));
  await readAgain(readWith('other', 5));
  expect(await listVisible()).toEqual({ old: PASSAGES });

  await runs.fail(lease, { code: 'unreachable', message: 'The site does not answer' });
  await runs.settle(lease);

  expect(await listVisible()).toEqual({ old: PASSAGES });
  expect(await countLeft()).toEqual([PASSAGES, PASSAGES]);
});
