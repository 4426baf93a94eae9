import { createHash } from 'node:crypto';
import type { ClientSession, Connection, mongo } from 'mongoose';
import { inChunks } from '../platform/mongo/batches.ts';
import { collectionOf } from '../platform/mongo/mongo.ts';
import { createSlices } from '../platform/process/slices.ts';
import {
  type PageState,
  PAGES_BY,
  PAGES_OF_SITE_MAX,
  pagesIn,
  PASSAGES_MAX,
  PRESENT,
  Proposal,
  PROPOSALS_MAX,
  type SourceError,
  sourceModels,
  type StoredPassage,
  type StoredSource,
  type StoredSourcePage,
} from './source.ts';

/** A page that was found, with the number of links from the start. */
export type FoundPage = { url: string; depth: number };

type TextOfPage = { path: string[]; text: string; anchor: string | null };

/** How the fetch of a page ended. */
export type PageEnd =
  | {
      state: 'read';
      title: string;
      language: string | null;
      note: SourceError | null;
      etag: string | null;
      lastModified: string | null;
      hash: string;
      passages: TextOfPage[];
      proposals: { question: string; answer: string }[];
      links: FoundPage[];
    }
  /** It has the same content as before. `keeps` says which of the pages that it links to still belong to the source. */
  | { state: 'unchanged'; etag: string | null; lastModified: string | null; keeps: (url: string) => boolean }
  /** Not to be used: forbidden, redirected, a copy, or no text. Its passages are removed. `links`: pages to read instead. */
  | { state: 'skipped'; error: SourceError; links?: FoundPage[] }
  /** Its passages are kept. */
  | { state: 'failed'; error: SourceError }
  /** Not found. Its passages are removed by the second run in a row that does not find it. */
  | { state: 'missing'; error: SourceError };

/** A page is gone after this many runs in a row that did not find it. */
const GONE_AFTER = 2;
const ROWS_AT_ONCE = 200;
/** How many pages are changed, or pages or pieces deleted, at once. Each may have 400 KB, or 2 MB. */
export const LARGE_AT_ONCE = 16;
/** Writes of more passages than these wait for one another, and have statements of so many. */
export const MANY_PASSAGES = 1_000;
/** How many pages with their hashes come in one answer of MongoDB. */
const PAGES_AT_ONCE = 10;
const PROPOSALS_OF_PAGE = 50;
/** The hash of a page that must be read again even if its content is the same. */
const AGAIN = 'again';
const AFTER = { returnDocument: 'after' } as const;

const hashOf = (...parts: (string | number | null)[]): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 24);

const idOfPage = (sourceId: string, url: string): string => hashOf(sourceId, url);

const TOO_MANY_PAGES: SourceError = {
  code: 'too_many_pages',
  message: `The site has more than ${PAGES_OF_SITE_MAX.toLocaleString('en')} pages, and the rest is left out. Choose a path below it, or exclude some`,
};
const TOO_MANY_PASSAGES: SourceError = {
  code: 'too_many_passages',
  message: `The assistant has ${PASSAGES_MAX.toLocaleString('en')} passages, and the rest is left out. Exclude some pages, or remove a source`,
};
const NOT_LINKED: SourceError = {
  code: 'not_found',
  message: 'The site does not list this page any more. It leaves at the next refresh, unless it is back',
};

/** The states of pages whose texts are live. */
const WITH_TEXTS = ['read', 'unchanged'] as const;

/** What a write in a run changes in the source: numbers to add by path, and fields to set. */
export type SourceUpdate = { add?: Record<string, number>; set?: Record<string, unknown> };

/** The reads and writes of pages that need no lease. */
export type PageReads = {
  /** Pages of the run that are still to fetch, the nearest first. */
  listOpen: (source: { sourceId: string; run: number }, limit: number) => Promise<Pick<StoredSourcePage, '_id'>[]>;

  /** Counts an attempt to fetch a page. Null if the page has already ended in this run. */
  beginPage: (run: { pageId: string; run: number }) => Promise<StoredSourcePage | null>;

  /** Takes back the count of an attempt that was interrupted. */
  forgetTry: (run: { pageId: string; run: number }) => Promise<void>;

  findPage: (sourceId: string, url: string) => Promise<StoredSourcePage | null>;

  /** Whether many passages are written if the fetch of the page has ended so. */
  changesMany: (ended: { sourceId: string; pageId: string; end: PageEnd }) => Promise<boolean>;

  /** The pages that are found if the fetch of a page has ended so. */
  listLinked: (ended: { pageId: string; end: PageEnd }) => Promise<FoundPage[]>;

  /** Those of these pages that the run has not found yet, in parts that are small enough for one transaction each. */
  listSteps: (sourceId: string, found: FoundPage[]) => Promise<FoundPage[][]>;

  /** Pages that the run has read, without unchanged ones. */
  listRead: (source: { sourceId: string; run: number }) => Promise<string[]>;

  /** The addresses of pages that earlier runs found and that are not gone. */
  listKnown: (source: { sourceId: string; run: number }, limit: number) => Promise<string[]>;

  /**
   * The pages with a text that was stored only with another page and was removed with that page. Takes long for a large
   * site, so it is no part of a transaction: only the run itself changes what it reads.
   */
  findLacking: (source: { sourceId: string; run: number }) => Promise<string[]>;

  /** What kept the nearest page of this run from being read. */
  findProblem: (source: {
    sourceId: string;
    run: number;
  }) => Promise<{ error: SourceError | null; missed: number } | null>;
};

/**
 * The pages of a run, with their passages and proposed entries. Each write is a part of a transaction that holds the lease
 * of the source, and returns what else it changes in the source.
 */
type PagesOfRun = {
  reads: PageReads;

  /**
   * Adds pages to fetch. A page that the run has already found is not changed. `ids`: all given pages within the limit.
   */
  add: (session: ClientSession, source: StoredSource, found: FoundPage[]) => Promise<SourceUpdate & { ids: string[] }>;

  /** Stores how the fetch of a page ended, with all that follows from it. False if the page has already ended. */
  end: (
    session: ClientSession,
    source: StoredSource,
    ended: { pageId: string; end: PageEnd },
  ) => Promise<SourceUpdate & { result: boolean }>;

  /** Ends some pages that the run did not find. `result`: how many. */
  closeSome: (session: ClientSession, source: StoredSource) => Promise<SourceUpdate & { result: number }>;

  /** Makes pages that have ended open again. */
  reopen: (
    session: ClientSession,
    source: StoredSource,
    ids: string[],
  ) => Promise<SourceUpdate & { result: undefined }>;

  /** Pages that this run has read are read again by the next one, even if their content is the same. */
  forgetRead: (session: ClientSession, source: StoredSource, ids: string[]) => Promise<void>;

  /** Deletes some of the passages that match, with their tokens. True if there may be more. */
  deletePassages: (session: ClientSession, filter: mongo.Filter<StoredPassage>) => Promise<boolean>;
};

export const createPagesOfRun = (connection: Connection): PagesOfRun => {
  const models = sourceModels(connection);
  const sources = collectionOf<StoredSource>(models.sources);
  const pages = collectionOf<StoredSourcePage>(models.sourcePages);
  const passages = collectionOf<StoredPassage>(models.passages);
  const tokens = collectionOf(models.passageTokens);
  const proposals = collectionOf(models.proposedEntries);

  /**
   * `known`: the last run that found each page. `open`: those that this run has not found yet, of which as many as `room`
   * can be added.
   */
  const findOpen = async (
    { _id: sourceId, run, counts }: Pick<StoredSource, '_id' | 'run' | 'counts'>,
    found: FoundPage[],
    session?: ClientSession,
  ) => {
    const wanted = new Map(found.map((page) => [idOfPage(sourceId, page.url), page]));
    const known = new Map<string, number>();
    const options = { projection: { run: 1 }, hint: PAGES_BY.id, ...(session && { session }) };
    for (const ids of inChunks([...wanted.keys()], 1_000))
      for await (const row of pages.find({ _id: { $in: ids } }, options)) known.set(row._id, row.run);
    const open = [...wanted].filter(([id]) => (known.get(id) ?? 0) < run);
    return { wanted, known, open, room: Math.max(0, PAGES_OF_SITE_MAX - pagesIn(counts)) };
  };

  /** Adds pages to the frontier of a run. A page that the run has already found is not changed. */
  const addPages = async (
    session: ClientSession,
    source: StoredSource,
    found: FoundPage[],
  ): Promise<SourceUpdate & { ids: string[] }> => {
    const { _id: sourceId, assistantId, run, error } = source;
    const { wanted, known, open, room } = await findOpen(source, found, session);
    const added = open.slice(0, room);
    const writes = added.map(([_id, { url, depth }]): mongo.AnyBulkWriteOperation<StoredSourcePage> => {
      const again = { run, depth, state: 'found' as const, tries: 0, error: null };
      if (known.has(_id)) return { updateOne: { filter: { _id }, update: { $set: again } } };
      const content = { etag: null, lastModified: null, hash: null, title: null, links: [], repeated: [] };
      return { insertOne: { document: { _id, sourceId, assistantId, url, ...again, ...content, missed: 0 } } };
    });
    if (writes.length > 0) await pages.bulkWrite(writes, { session, ordered: false });
    const left = new Set(open.slice(room).map(([id]) => id));
    return {
      ids: [...wanted.keys()].filter((id) => !left.has(id)),
      ...(writes.length > 0 && { add: { 'counts.found': writes.length } }),
      ...(left.size > 0 && error === null && { set: { error: TOO_MANY_PAGES } }),
    };
  };

  /**
   * Makes these the passages of a page in the version of the run. Passages that were there before are kept until the run
   * is published, also those that this run wrote and nobody can see any more: they may have 240 MB of vectors, too much
   * for one transaction.
   */
  const replacePassages = async (
    session: ClientSession,
    { _id: sourceId, run }: StoredSource,
    pageId: string,
    wanted: StoredPassage[],
  ): Promise<number> => {
    const projection = { until: 1 };
    const present = await passages.find({ sourceId, pageId }, { projection, session }).toArray();
    const byId = new Map(present.map((row) => [row._id, row]));
    const kept = new Set(wanted.map(({ _id }) => _id));
    const added = wanted.filter(({ _id }) => !byId.has(_id));
    const back = present.filter(({ _id, until }) => kept.has(_id) && until !== null).map(({ _id }) => _id);
    const left = present.filter(({ _id, until }) => !kept.has(_id) && until === null).map(({ _id }) => _id);
    for (const some of inChunks(added, ROWS_AT_ONCE)) await passages.insertMany(some, { session });
    for (const some of inChunks(back, MANY_PASSAGES))
      await passages.updateMany({ _id: { $in: some } }, { $set: { until: null } }, { session });
    for (const some of inChunks(left, MANY_PASSAGES))
      await passages.updateMany({ _id: { $in: some } }, { $set: { until: run } }, { session });
    return added.length + back.length - left.length;
  };

  /** The passages of a page, without texts that another page of the source has too. */
  const composePassages = async (
    session: ClientSession,
    { _id: sourceId, assistantId, run, kind }: StoredSource,
    page: StoredSourcePage,
    { title, language, passages: texts }: Extract<PageEnd, { state: 'read' }>,
  ): Promise<{ wanted: StoredPassage[]; repeated: string[] }> => {
    const url = kind === 'file' ? null : page.url;
    const slices = createSlices();
    const composed = new Map<string, StoredPassage>();
    for (const [order, { path, text, anchor }] of texts.entries()) {
      if (slices.isOver()) await slices.next();
      const hash = hashOf(text);
      if (composed.has(hash)) continue;
      composed.set(hash, {
        // Whatever an answer shows of a passage is a part of its id, so a visible passage never changes.
        _id: hashOf(sourceId, page._id, title, anchor, text, ...path),
        assistantId,
        sourceId,
        pageId: page._id,
        hash,
        order,
        path,
        text,
        title,
        url,
        anchor,
        language,
        since: run,
        until: null,
        model: null,
        vector: null,
        made: null,
      });
    }
    const repeated = new Set<string>();
    for (const hashes of inChunks([...composed.keys()], 1_000)) {
      const others = { sourceId, hash: { $in: hashes }, pageId: { $ne: page._id }, until: null };
      for await (const { hash } of passages.find(others, { projection: { hash: 1 }, session })) repeated.add(hash);
    }
    return {
      wanted: [...composed].flatMap(([hash, passage]) => (repeated.has(hash) ? [] : [passage])),
      repeated: [...repeated],
    };
  };

  /** How many passages the assistant may still have. */
  const roomFor = async (session: ClientSession, { _id, assistantId }: StoredSource): Promise<number> => {
    const others = sources.find(
      { assistantId, ...PRESENT, _id: { $ne: _id } },
      { projection: { 'counts.passages': 1 }, session },
    );
    let room = PASSAGES_MAX;
    for await (const { counts } of others) room -= counts.passages;
    return Math.max(0, room);
  };

  /**
   * Stores the proposals of a page. A dismissed one is not changed. An accepted one whose answer is another now waits until
   * its entry has followed, or an owner has decided.
   */
  const propose = async (
    session: ClientSession,
    { _id: sourceId, assistantId, kind }: StoredSource,
    page: StoredSourcePage,
    { proposals: found, title }: Pick<Extract<PageEnd, { state: 'read' }>, 'proposals' | 'title'>,
  ): Promise<void> => {
    const url = kind === 'file' ? null : page.url;
    const valid = found.flatMap((one) => Proposal.safeParse(one).data ?? []).slice(0, PROPOSALS_OF_PAGE);
    const wanted = new Map(valid.map((one) => [hashOf(assistantId, one.question.toLowerCase()), one]));
    const ids = [...wanted.keys()];
    // With the assistant, an index has those of the page alone.
    const outdated = { assistantId, sourceId, url, state: 'proposed' as const, _id: { $nin: ids } };
    await proposals.deleteMany(outdated, { session });
    if (ids.length === 0) return;
    const known = new Set(
      (await proposals.find({ _id: { $in: ids } }, { projection: { _id: 1 }, session }).toArray()).map(
        ({ _id }) => _id,
      ),
    );
    const room = PROPOSALS_MAX - (await proposals.countDocuments({ assistantId }, { session, limit: PROPOSALS_MAX }));
    const added = [...wanted].filter(([_id]) => !known.has(_id)).slice(0, Math.max(0, room));
    const own = { assistantId, sourceId, url, title };
    const rows = added.map(([_id, one]) => ({ _id, ...own, ...one, state: 'proposed' as const }));
    if (rows.length > 0) await proposals.insertMany(rows, { session });
    for (const [_id, { answer }] of wanted) {
      if (!known.has(_id)) continue;
      const now = { $literal: answer };
      const isAsDecided = {
        $or: [
          { $eq: [{ $type: '$entryId' }, 'missing'] },
          { $eq: ['$given', now] },
          { $and: [{ $eq: ['$state', 'accepted'] }, { $eq: ['$answer', now] }] },
        ],
      };
      const decided = { $cond: [isAsDecided, 'accepted', 'changed'] };
      const state = { $cond: [{ $eq: ['$state', 'proposed'] }, 'proposed', decided] };
      const set = { answer: now, url: { $literal: url }, title: { $literal: title }, state };
      await proposals.updateOne({ _id, sourceId, state: { $ne: 'dismissed' } }, [{ $set: set }], { session });
    }
  };

  type PageWrite = SourceUpdate & { page: Partial<StoredSourcePage> & { state: PageState } };

  const readPage = async (
    session: ClientSession,
    source: StoredSource,
    page: StoredSourcePage,
    end: Extract<PageEnd, { state: 'read' }>,
  ): Promise<PageWrite> => {
    const { wanted, repeated } = await composePassages(session, source, page, end);
    const room = (await roomFor(session, source)) - source.counts.passages;
    const had = await passages.countDocuments({ sourceId: source._id, pageId: page._id, until: null }, { session });
    const fitting = wanted.slice(0, Math.max(0, room + had));
    const passagesAdded = await replacePassages(session, source, page._id, fitting);
    await propose(session, source, page, end);
    const { ids, add, set } = await addPages(session, source, end.links);
    const change = page.hash === null ? 'added' : 'changed';
    return {
      page: {
        state: 'read',
        missed: 0,
        error: null,
        note: end.note,
        title: end.title,
        etag: end.etag,
        lastModified: end.lastModified,
        hash: end.hash,
        links: ids,
        repeated,
      },
      add: { ...add, 'counts.passages': passagesAdded, [`changed.${change}`]: 1 },
      set: {
        ...set,
        'vectors.made': null,
        ...(fitting.length < wanted.length && { error: TOO_MANY_PASSAGES }),
        // In the first run, pages are used for answers as soon as they are read.
        ...(source.live === 0 && { live: source.run }),
      },
    };
  };

  const dropPage = async (
    session: ClientSession,
    source: StoredSource,
    page: StoredSourcePage,
    changes: PageWrite['page'],
  ): Promise<PageWrite> => {
    const { _id: sourceId, assistantId } = source;
    const added = await replacePassages(session, source, page._id, []);
    await proposals.deleteMany({ assistantId, sourceId, url: page.url, state: 'proposed' }, { session });
    const removed = page.hash === null ? 0 : 1;
    return {
      page: { ...changes, hash: null, note: null, etag: null, lastModified: null, links: [], repeated: [] },
      add: { 'counts.passages': added, 'changed.removed': removed },
    };
  };

  const missPage = (
    session: ClientSession,
    source: StoredSource,
    page: StoredSourcePage,
    error: SourceError,
  ): Promise<PageWrite> | PageWrite => {
    const missed = page.missed + 1;
    // A file that was replaced by one of another name is removed at once.
    if (page.hash === null || missed >= GONE_AFTER || source.kind === 'file')
      return dropPage(session, source, page, { state: 'gone', missed, error });
    return { page: { state: 'failed', missed, error } };
  };

  /** The pages that an unchanged page links to and that still belong to the source. */
  const findKept = async (
    { links, depth }: Pick<StoredSourcePage, 'links' | 'depth'>,
    { keeps }: Extract<PageEnd, { state: 'unchanged' }>,
    session?: ClientSession,
  ): Promise<FoundPage[]> => {
    const options = { projection: { _id: 0, url: 1 }, hint: PAGES_BY.id, ...(session && { session }) };
    const linked = await pages.find({ _id: { $in: links } }, options).toArray();
    const slices = createSlices();
    const kept: FoundPage[] = [];
    for (const { url } of linked) {
      if (keeps(url)) kept.push({ url, depth: depth + 1 });
      if (slices.isOver()) await slices.next();
    }
    return kept;
  };

  const endedPage = async (
    session: ClientSession,
    source: StoredSource,
    page: StoredSourcePage,
    end: PageEnd,
  ): Promise<PageWrite> => {
    if (end.state === 'read') return readPage(session, source, page, end);
    if (end.state === 'missing') return missPage(session, source, page, end.error);
    if (end.state === 'failed') return { page: { state: 'failed', error: end.error } };
    if (end.state === 'unchanged') {
      const { etag, lastModified } = end;
      const { add, set } = await addPages(session, source, await findKept(page, end, session));
      const content = { etag: etag ?? page.etag, lastModified: lastModified ?? page.lastModified };
      return {
        page: { state: 'unchanged', missed: 0, error: null, ...content },
        ...(add && { add }),
        ...(set && { set }),
      };
    }
    const dropped = await dropPage(session, source, page, { state: 'skipped', missed: 0, error: end.error });
    const { add, set } = await addPages(session, source, end.links ?? []);
    return { ...dropped, add: { ...dropped.add, ...add }, ...(set && { set }) };
  };

  const closeSome: PagesOfRun['closeSome'] = async (session, source) => {
    const { _id: sourceId, run } = source;
    const options = { limit: LARGE_AT_ONCE, projection: { links: 0, repeated: 0 }, session };
    const rows = await pages.find({ sourceId, run: { $lt: run } }, options).toArray();
    const add: Record<string, number> = {};
    const count = (all: Record<string, number> = {}): void => {
      for (const [name, by] of Object.entries(all)) add[name] = (add[name] ?? 0) + by;
    };
    let closed = 0;
    for (const page of rows) {
      if ((add['counts.passages'] ?? 0) < -MANY_PASSAGES) break;
      closed += 1;
      if (page.state === 'gone') {
        // A page that is gone has no passages any more, except after a run that failed.
        count({ 'counts.passages': await replacePassages(session, source, page._id, []) });
        await pages.deleteOne({ _id: page._id }, { session });
        continue;
      }
      const { page: set, add: more } = await missPage(session, source, page, NOT_LINKED);
      await pages.updateOne({ _id: page._id }, { $set: { ...set, run } }, { session });
      count(more);
      count({ [`counts.${set.state}`]: 1 });
    }
    return { add, result: closed };
  };

  const findLacking: PageReads['findLacking'] = async ({ sourceId, run }) => {
    const filter = { sourceId, run, state: { $in: [...WITH_TEXTS] }, repeated: { $ne: [] } };
    const slices = createSlices();
    // Pages are read a few at a time: together they may have millions of hashes, of which few differ.
    async function* withRepeated() {
      const options = { projection: { state: 1, repeated: 1 }, batchSize: PAGES_AT_ONCE };
      for await (const page of pages.find(filter, options)) {
        yield page;
        if (slices.isOver()) await slices.next();
      }
    }
    const lacking = new Set<string>();
    for await (const { repeated } of withRepeated()) for (const hash of repeated) lacking.add(hash);
    for (const hashes of inChunks([...lacking], 1_000)) {
      const held = { sourceId, hash: { $in: hashes }, until: null };
      for await (const { hash } of passages.find(held, { projection: { hash: 1 } })) lacking.delete(hash);
    }
    const found: string[] = [];
    if (lacking.size > 0) {
      for await (const { _id, repeated } of withRepeated())
        if (repeated.some((hash) => lacking.has(hash))) found.push(_id);
    }
    return found;
  };

  const reopen: PagesOfRun['reopen'] = async (session, { run }, ids) => {
    const add: Record<string, number> = {};
    const open = { state: 'found' as const, etag: null, lastModified: null, hash: AGAIN, repeated: [], tries: 0 };
    for (const state of WITH_TEXTS) {
      const ended = { _id: { $in: ids }, run, state };
      const { matchedCount } = await pages.updateMany(ended, { $set: open }, { session });
      add[`counts.${state}`] = -matchedCount;
      add['counts.found'] = (add['counts.found'] ?? 0) + matchedCount;
    }
    return { add, result: undefined };
  };

  return {
    reads: {
      listOpen: ({ sourceId, run }, limit) =>
        pages
          .find(
            { sourceId, run, state: 'found' },
            { sort: { depth: 1 }, limit, projection: { _id: 1 }, hint: PAGES_BY.run },
          )
          .toArray(),

      beginPage: ({ pageId, run }) =>
        pages.findOneAndUpdate({ _id: pageId, run, state: 'found' }, { $inc: { tries: 1 } }, AFTER),

      forgetTry: async ({ pageId, run }) => {
        await pages.updateOne({ _id: pageId, run, state: 'found', tries: { $gt: 0 } }, { $inc: { tries: -1 } });
      },

      findPage: (sourceId, url) => pages.findOne({ _id: idOfPage(sourceId, url) }),

      changesMany: async ({ sourceId, pageId, end }) => {
        if (end.state === 'unchanged' || end.state === 'failed') return false;
        if (end.state === 'read' && end.passages.length > MANY_PASSAGES) return true;
        return (await passages.countDocuments({ sourceId, pageId }, { limit: MANY_PASSAGES + 1 })) > MANY_PASSAGES;
      },

      listLinked: async ({ pageId, end }) => {
        if (end.state === 'read' || end.state === 'skipped') return end.links ?? [];
        if (end.state !== 'unchanged') return [];
        const page = await pages.findOne({ _id: pageId }, { projection: { links: 1, depth: 1 } });
        return page ? findKept(page, end) : [];
      },

      listSteps: async (sourceId, found) => {
        if (found.length <= LARGE_AT_ONCE) return [found];
        const source = await sources.findOne({ _id: sourceId }, { projection: { run: 1, counts: 1 } });
        if (!source) return [];
        const { known, open, room } = await findOpen(source, found);
        const steps: FoundPage[][] = [];
        let changed = 0;
        for (const [nth, [id, page]] of open.entries()) {
          const last = steps.at(-1);
          if (!last || last.length === ROWS_AT_ONCE || changed === LARGE_AT_ONCE) {
            steps.push([page]);
            changed = 0;
          } else last.push(page);
          // Only a page of an earlier run can be large. One that the site has no room for is not changed.
          if (known.has(id) && nth < room) changed += 1;
        }
        return steps;
      },

      listRead: async ({ sourceId, run }) => {
        const options = { projection: { _id: 1 }, hint: PAGES_BY.run };
        const read = { sourceId, run, state: 'read' as const };
        return (await pages.find(read, options).limit(PAGES_OF_SITE_MAX).toArray()).map(({ _id }) => _id);
      },

      listKnown: async ({ sourceId, run }, limit) => {
        const known = { sourceId, run: { $lt: run }, state: { $ne: 'gone' as const } };
        const options = { projection: { _id: 0, url: 1 }, hint: PAGES_BY.state };
        return (await pages.find(known, options).limit(limit).toArray()).map(({ url }) => url);
      },

      findLacking,

      findProblem: async ({ sourceId, run }) => {
        const options = { projection: { error: 1, missed: 1 }, sort: { depth: 1 } } as const;
        const states: PageState[] = ['failed', 'skipped', 'gone'];
        return pages.findOne({ sourceId, run, state: { $in: states } }, options);
      },
    },

    add: addPages,

    end: async (session, source, { pageId, end }) => {
      const page = await pages.findOne({ _id: pageId, run: source.run, state: 'found' }, { session });
      if (!page || source.state !== 'running') return { result: false };
      const { page: set, add = {}, ...update } = await endedPage(session, source, page, end);
      await pages.updateOne({ _id: pageId }, { $set: set }, { session });
      const found = (add['counts.found'] ?? 0) - 1;
      return { ...update, add: { ...add, [`counts.${set.state}`]: 1, 'counts.found': found }, result: true };
    },

    closeSome,
    reopen,

    forgetRead: async (session, { run }, ids) => {
      const unread = { etag: null, lastModified: null, hash: AGAIN };
      await pages.updateMany({ _id: { $in: ids }, run, state: 'read' }, { $set: unread }, { session });
    },

    deletePassages: async (session, filter) => {
      const options = { projection: { _id: 1 }, limit: ROWS_AT_ONCE, session };
      const rows = await passages.find(filter, options).toArray();
      const some = { _id: { $in: rows.map(({ _id }) => _id) } };
      await tokens.deleteMany(some, { session });
      await passages.deleteMany(some, { session });
      return rows.length === ROWS_AT_ONCE;
    },
  };
};
