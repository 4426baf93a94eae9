import { passageEngine } from '@parley/understanding';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { createStoreIndexes } from '../../src/sources/make-vectors.ts';
import type { PassageVectors } from '../../src/sources/passage-vectors.ts';
import { RunLost } from '../../src/sources/lease-sessions.ts';
import { type StoredIndexPiece, type StoredSource } from '../../src/sources/source.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { addPassages, addSources, setSource } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

type Claim = NonNullable<Awaited<ReturnType<PassageVectors['claimIndex']>>>;

const sources = () => stack.service.mongo.collection<StoredSource>('sources');
const pieces = () => stack.service.mongo.collection<StoredIndexPiece>('passageIndexes');

beforeEach(async () => {
  await sources().deleteMany({});
  await pieces().deleteMany({});
});

/** Sources of one assistant with a passage each, which lack an index. */
const withSources = async (count: number): Promise<{ assistantId: string; sourceIds: string[] }> => {
  const { assistantId } = await anAssistant(stack);
  const sourceIds = await addSources(stack, assistantId, { count });
  for (const sourceId of sourceIds) await addPassages(stack, { assistantId, sourceId }, ['We sell kites.']);
  return { assistantId, sourceIds };
};

/** The worker's duty: stores the index of every source that lacks one. */
const storeIndexes = (): Promise<void> =>
  createStoreIndexes({
    vectors: stack.service.passageVectors,
    passages: stack.service.passages,
    embedder: { model: () => null },
    languageOf: async () => 'en',
    timing: { sourceRenewMs: 1_000 },
    draining: new AbortController().signal,
  })();

const find = async (sourceId: string): Promise<StoredSource> => (await sources().findOne({ _id: sourceId }))!;
const tokensOf = async (sourceId: string): Promise<string[]> => pieces().distinct('of', { sourceId });

/** Pieces that are left of another index. */
const leave = async (sourceId: string, of: string, count: number): Promise<void> => {
  const { assistantId } = await find(sourceId);
  const bytes = Buffer.from('left');
  const rows = Array.from({ length: count }, (_, piece) => {
    const _id = `${sourceId}:${of}:0:${piece}`;
    return { _id, assistantId, sourceId, of, part: piece, piece: 0, size: 4, kind: 'test', model: null, bytes };
  });
  await pieces().insertMany(rows);
};

const KIND = { kind: 'test', model: null };

/** Claims the source, which is the only one that is due, and stores an index of one piece with this text. */
const begin = async (sourceId: string, text: string): Promise<Claim> => {
  await setSource(stack, { sourceId }, { 'indexed.by': null } as Partial<StoredSource>);
  const claim = (await stack.service.passageVectors.claimIndex(newToken(), passageEngine()))!;
  expect(claim.sourceId).toBe(sourceId);
  const bytes = Buffer.from(text);
  await stack.service.passageVectors.saveIndexPiece(claim, { ...KIND, part: 0, piece: 0, size: bytes.length, bytes });
  return claim;
};
const end = (claim: Claim): Promise<void> => stack.service.passageVectors.endIndex(claim, passageEngine(), true);

/** The texts that a reply worker reads. */
async function* read(assistantId: string): AsyncGenerator<string> {
  for await (const { bytes } of stack.service.passages.readStored({ assistantId }, 'test'))
    yield Buffer.from(bytes).toString();
}
const readAll = async (assistantId: string): Promise<string[]> => {
  const texts: string[] = [];
  for await (const text of read(assistantId)) texts.push(text);
  return texts;
};

test('the pieces of other indexes are found without reading them, and deleted a few at a time', async () => {
  const { assistantId, sourceIds } = await withSources(1);
  const [sourceId = ''] = sourceIds;
  await storeIndexes();
  const { indexed: first } = await find(sourceId);
  for (const of of ['---', 'MMM', 'zzz']) await leave(sourceId, of, 20);
  await addPassages(stack, { assistantId, sourceId }, ['We sell umbrellas.']);
  await setSource(stack, { sourceId }, { 'indexed.by': null } as Partial<StoredSource>);

  const all = await profileStatements(stack, storeIndexes);

  const statements = all.filter((one) => collectionIn(one) === 'passageIndexes');
  const deleted = statements.filter(({ op }) => op === 'remove').map(({ ndeleted = 0 }) => ndeleted);
  expect(deleted.reduce((sum, count) => sum + count, 0)).toBe(61);
  expect(Math.max(...deleted)).toBeLessThanOrEqual(16);
  // The worker reads the index as it was, which has one piece.
  const found = statements.filter(({ op }) => op === 'query' || op === 'getmore');
  expect(found.length).toBeGreaterThanOrEqual(3);
  expect(found.reduce((sum, { docsExamined = 0 }) => sum + docsExamined, 0)).toBe(1);
  const { indexed } = await find(sourceId);
  expect(indexed).toEqual({ by: passageEngine(), of: expect.any(String), at: expect.any(Date) });
  expect(indexed?.of).not.toBe(first?.of);
  expect(await tokensOf(sourceId)).toEqual([indexed?.of]);
});

test('a reader gets the index that was stored last, and nothing of one that is being made or deleted', async () => {
  const { assistantId, sourceIds } = await withSources(1);
  const [sourceId = ''] = sourceIds;
  await end(await begin(sourceId, 'one'));

  const first = await readAll(assistantId);
  const claim = await begin(sourceId, 'two');
  const meanwhile = await readAll(assistantId);
  await end(claim);
  await leave(sourceId, '---', 1);
  await leave(sourceId, 'zzz', 1);
  const second = await readAll(assistantId);

  expect([first, meanwhile, second]).toEqual([['one'], ['one'], ['two']]);
});

test('an index that is replaced while a reader reads other sources is read as it is now', async () => {
  const { assistantId, sourceIds } = await withSources(2);
  const [one = '', other = ''] = sourceIds;
  for (const sourceId of sourceIds) await setSource(stack, { sourceId }, { indexed: { by: passageEngine() } });
  await end(await begin(one, 'one'));
  await end(await begin(other, 'other'));

  const reader = read(assistantId);
  const texts = [(await reader.next()).value];
  await end(await begin(other, 'another'));
  for await (const text of reader) texts.push(text);

  expect(texts).toEqual(['one', 'another']);
  expect((await find(other)).indexed?.by).toBe(passageEngine());
});

test('the index that an earlier release has stored is read, and replaced as a whole', async () => {
  const { assistantId, sourceIds } = await withSources(1);
  const [sourceId = ''] = sourceIds;
  await leave(sourceId, 'earlier', 2);

  const before = await readAll(assistantId);
  await end(await begin(sourceId, 'one'));

  expect(before).toEqual(['left', 'left']);
  expect(await readAll(assistantId)).toEqual(['one']);
  expect(await pieces().countDocuments({ sourceId })).toBe(1);
});

test('what a killed worker has not deleted is deleted by the next one, which keeps the index', async () => {
  const { sourceIds } = await withSources(1);
  const [sourceId = ''] = sourceIds;
  await storeIndexes();
  const { indexed } = await find(sourceId);
  await leave(sourceId, '---', 20);
  const lease = { token: 'killed', until: new Date(Date.now() - 60_000) };
  await setSource(stack, { sourceId }, { indexed: { ...indexed!, by: 'being made', lease } });

  await storeIndexes();

  expect((await find(sourceId)).indexed).toMatchObject({ by: passageEngine(), of: indexed?.of });
  expect(await tokensOf(sourceId)).toEqual([indexed?.of]);
});

test('a worker that fails leaves no pieces of its index', async () => {
  const { assistantId, sourceIds } = await withSources(1);
  const [sourceId = ''] = sourceIds;
  const { endIndex } = stack.service.passageVectors;

  await endIndex(await begin(sourceId, 'half'), null, false);
  const none = await tokensOf(sourceId);
  await end(await begin(sourceId, 'one'));
  await endIndex(await begin(sourceId, 'half'), null, false);

  expect(none).toEqual([]);
  expect(await readAll(assistantId)).toEqual(['one']);
  expect(await pieces().countDocuments({ sourceId })).toBe(1);
});

test('a worker that loses its lease while it deletes earlier pieces deletes none of the next index', async () => {
  const { assistantId, sourceIds } = await withSources(1);
  const [sourceId = ''] = sourceIds;
  const { mongo } = stack.service;
  const isPublished = (claim: Claim) =>
    eventually(async () => expect((await find(sourceId)).indexed?.of).toBe(claim.token));
  await leave(sourceId, '---', 20);
  const slow = await begin(sourceId, 'slow');
  const session = await mongo.startSession();
  onTestFinished(() => session.endSession());
  session.startTransaction();
  // Its first deletion waits for this.
  await pieces().updateOne({ sourceId, of: '---' }, { $set: { size: 0 } }, { session });

  const ended = end(slow).catch((cause: unknown) => cause);
  await isPublished(slow);
  await eventually(async () => {
    const waiting = await mongo.db!.admin().command({ currentOp: 1, op: 'remove', ns: `${mongo.name}.passageIndexes` });
    expect(waiting['inprog']).toHaveLength(1);
  });
  const lost = { 'indexed.lease.until': new Date(Date.now() - 60_000) } as Partial<StoredSource>;
  await setSource(stack, { sourceId }, lost);
  const next = await begin(sourceId, 'next');
  const nextEnded = end(next);
  await isPublished(next);
  await session.abortTransaction();

  expect(await ended).toBeInstanceOf(RunLost);
  await nextEnded;
  expect(await readAll(assistantId)).toEqual(['next']);
  expect(await tokensOf(sourceId)).toEqual([next.token]);
});
