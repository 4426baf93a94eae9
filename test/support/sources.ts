import { randomUUID } from 'node:crypto';
import {
  NO_COUNTS,
  type StoredPassage,
  type StoredProposedEntry,
  type StoredSource,
  type StoredSourcePage,
} from '../../src/sources/source.ts';
import type { Stack } from './stack.ts';

type At = { service: Pick<Stack['service'], 'mongo'> };
type Ids = { assistantId: string; sourceId: string };

const insert = async ({ service }: At, name: string, rows: object[]): Promise<void> => {
  await service.mongo.collection(name).insertMany(rows);
};

/** Sets what a run of the worker stores of a source. */
export const setSource = async (
  { service }: At,
  { sourceId }: Pick<Ids, 'sourceId'>,
  set: Partial<StoredSource>,
): Promise<void> => {
  await service.mongo.collection<StoredSource>('sources').updateOne({ _id: sourceId }, { $set: set });
};

const only = ({ assistantId, sourceId }: Ids): Ids => ({ assistantId, sourceId });

/** Pages as a run leaves them. */
export const addPages = (at: At, ids: Ids, pages: Partial<StoredSourcePage>[]): Promise<void> =>
  insert(
    at,
    'sourcePages',
    pages.map((page, nth) => ({
      _id: randomUUID(),
      ...only(ids),
      url: `https://example.com/help/${nth}`,
      state: 'read',
      run: 1,
      depth: 0,
      etag: null,
      lastModified: null,
      hash: 'hash',
      title: `Page ${nth}`,
      error: null,
      missed: 0,
      ...page,
    })),
  );

/** Sources of one assistant that are read, so many and with so many passages, which lack vectors and an index. */
export const addSources = async (
  at: At,
  assistantId: string,
  { count = 1, passages = 1 }: { count?: number; passages?: number } = {},
): Promise<string[]> => {
  const rows = Array.from({ length: count }, (_, nth) => ({
    _id: randomUUID() as string,
    assistantId,
    state: 'ready',
    live: 1,
    run: 1,
    removedAt: null,
    createdAt: new Date(nth),
    counts: { ...NO_COUNTS, passages },
    vectors: { made: null },
    indexed: { by: null },
  }));
  await insert(at, 'sources', rows);
  return rows.map(({ _id }) => _id);
};

/** Passages with their tokens, each of a text or with more fields. */
export const addPassages = async (at: At, ids: Ids, given: (string | Partial<StoredPassage>)[]): Promise<void> => {
  const passages = given.map(
    (one, order): StoredPassage => ({
      _id: randomUUID(),
      ...ids,
      pageId: 'page',
      hash: 'hash',
      order,
      path: ['Help'],
      text: '',
      title: 'Help',
      url: 'https://example.com/help',
      anchor: null,
      language: 'en',
      since: 1,
      until: null,
      model: null,
      vector: null,
      ...(typeof one === 'string' ? { text: one } : one),
    }),
  );
  await insert(at, 'passages', passages);
  const tokens = passages.map(({ _id }) => ({ _id, ...only(ids), kind: 'test', tokens: Buffer.alloc(96) }));
  await insert(at, 'passageTokens', tokens);
};

/** Proposed entries as a run finds them. Returns their ids. */
export const addProposals = async (at: At, ids: Ids, proposals: Partial<StoredProposedEntry>[]): Promise<string[]> => {
  const rows = proposals.map((one, nth) => ({
    _id: randomUUID(),
    ...only(ids),
    url: `https://example.com/help/${nth}`,
    question: `What is number ${nth}?`,
    answer: `It is ${nth}.`,
    state: 'proposed',
    ...one,
  }));
  await insert(at, 'proposedEntries', rows);
  return rows.map(({ _id }) => _id);
};
