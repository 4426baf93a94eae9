import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type ClientSession, type Connection, type mongo } from 'mongoose';
import { inChunks, leaseIn } from '../mongo/batches.ts';
import { collectionOf } from '../mongo/mongo.ts';
import { serverDate, serverNow } from '../process/clock.ts';
import type { Timing } from '../process/time-limits.ts';
import {
  dueAfter,
  NO_CHANGES,
  type PageState,
  PAGES_OF_SITE_MAX,
  PASSAGES_MAX,
  Proposal,
  PROPOSALS_MAX,
  type SiteOfRun,
  type SourceLease,
  type SourceError,
  sourceModels,
  type StoredFileChunk,
  type StoredIndexPiece,
  type StoredPassage,
  type StoredSource,
  type StoredSourcePage,
  UPLOADED_WITHIN_MS,
} from './source.ts';

/** A lease on a source: while it holds, only its worker writes. */
export type RunLease = { sourceId: string; token: string };

/** Another worker has the lease now, or the source was removed. Whatever was not written must not be written. */
export class RunLost extends Error {
  override name = 'RunLost';
}

/** A page that was found, with the number of links from the start. */
export type FoundPage = { url: string; depth: number };

export type TextOfPage = { path: string[]; text: string; anchor: string | null };

/** How the fetch of a page ended. */
export type PageEnd =
  | {
      state: 'read';
      title: string;
      language: string | null;
      etag: string | null;
      lastModified: string | null;
      hash: string;
      passages: TextOfPage[];
      proposals: { question: string; answer: string }[];
      links: FoundPage[];
    }
  /** It has the same content as before. `keeps` says which of the pages that it links to still belong to the source. */
  | { state: 'unchanged'; etag: string | null; lastModified: string | null; keeps: (url: string) => boolean }
  /** It must not be read, or is no text. Its passages leave. `links` is where it leads instead. */
  | { state: 'skipped'; error: SourceError; links?: FoundPage[] }
  /** Its passages stay. */
  | { state: 'failed'; error: SourceError }
  /** It is not there. Its passages leave after the second run. */
  | { state: 'missing'; error: SourceError };

/** After so many runs in a row without it, a page is gone. */
const GONE_AFTER = 2;
const TRIES_OF_WRITE = 6;
const AT_ONCE = 200;
const PROPOSALS_OF_PAGE = 50;
/** The hash of a page that must be read again even if it is the same. */
const AGAIN = 'again';
/** While the index of a source is made. An engine makes those of another one again after this time. */
const TAKEN = 'being made';
const INDEXED_AGAIN_MS = 10 * 60_000;
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

const isTransient = (cause: unknown): boolean => {
  const { hasErrorLabel } = cause as { hasErrorLabel?: (label: string) => boolean };
  return ['TransientTransactionError', 'UnknownTransactionCommitResult'].some(
    (label) => hasErrorLabel?.call(cause, label) === true,
  );
};

/** What a write in a run changes in the source: numbers to add by path, and fields to set. */
type SourceUpdate = { add?: Record<string, number>; set?: Record<string, unknown> };

type Dependencies = {
  connection: Connection;
  timing: Pick<Timing, 'sourceLeaseMs'>;
  /** Tells the reply workers that the visible passages of an assistant have changed. */
  raisePassages: (assistantId: string, count: number) => Promise<void>;
};

/** A passage that has no vector by the present model. */
export type PassageToEmbed = Pick<StoredPassage, 'title' | 'path' | 'text'> & { passageId: string };
export type PassageVectors = { passageId: string; vector: Uint8Array; tokens: Uint8Array | null };
/** `made` names the model and the kind of its tokens. */
export type VectorsKind = { model: string; kind: string | null; made: string };

/**
 * The runs of sources: reading a source anew (docs/design.md, Sources and their runs). Each write is one transaction that
 * also renews the lease on the source, so a worker that lost the lease writes nothing, and a killed one leaves whole
 * pages only.
 */
export type SourceRuns = {
  /** Sources with something to do and without a worker, those that wait longest first. `before`: since this time. */
  findDue: (options: {
    limit: number;
    except: string[];
    before?: Date;
  }) => Promise<{ sourceId: string; assistantId: string; since: Date }[]>;

  /** Takes the lease of a source that has something to do. `isLeft`: another worker has not ended its work on it. */
  claim: (
    sourceId: string,
    token: string,
  ) => Promise<{ lease: RunLease; source: StoredSource; isLeft: boolean } | null>;

  /** False if the lease is lost. */
  renew: (lease: RunLease) => Promise<boolean>;

  /** Ends the lease at once. What is unfinished waits behind the others. */
  release: (lease: RunLease) => Promise<void>;

  /** Begins the next run if one is due. */
  start: (lease: RunLease) => Promise<StoredSource | null>;

  /** Adds the first pages of a run, and what was found out about the site. */
  seed: (lease: RunLease, pages: FoundPage[], site?: SiteOfRun) => Promise<void>;

  /** Pages of the run that are still to fetch, the nearest first. */
  listOpen: (source: { sourceId: string; run: number }, limit: number) => Promise<StoredSourcePage[]>;

  /** Counts a try to fetch a page. Null if it has ended. */
  beginPage: (run: { pageId: string; run: number }) => Promise<StoredSourcePage | null>;

  /** The try of a page that was interrupted does not count. */
  forgetTry: (run: { pageId: string; run: number }) => Promise<void>;

  findPage: (sourceId: string, url: string) => Promise<StoredSourcePage | null>;

  /** Ends a page of the run, with all that follows from it. A page that has ended stays as it is. */
  endPage: (lease: RunLease, pageId: string, end: PageEnd) => Promise<boolean>;

  /** Whether the run read anything. */
  countRead: (sourceId: string) => Promise<number>;

  /** What kept the nearest page of this run from being read. */
  findProblem: (source: {
    sourceId: string;
    run: number;
  }) => Promise<{ error: SourceError | null; missed: number } | null>;

  /** Ends what the run did not find. Pages are open again if they have a text that left with another page. */
  closePages: (lease: RunLease) => Promise<{ reopened: number }>;

  /** Shows what the run has read, whole. */
  publish: (lease: RunLease, error?: SourceError | null) => Promise<void>;

  /** Ends the run. Answers go on with the version before. */
  fail: (lease: RunLease, error: SourceError, againAfterMs?: number) => Promise<void>;

  /** Removes what nobody can see after the end of a run, and announces what is visible. */
  settle: (lease: RunLease) => Promise<void>;

  /** Gives the lease back after everything is done. */
  end: (lease: RunLease) => Promise<void>;

  /** Tells the reply workers what has changed. */
  announce: (assistantId: string) => Promise<void>;

  /** The file as it is now, with its name. */
  readFile: (sourceId: string) => Promise<{ bytes: Buffer; name: string | null }>;

  /** Removes a source and all that belongs to it. Continues what a killed worker has begun. */
  remove: (sourceId: string, token: string) => Promise<boolean>;

  /** Takes the source with the fewest passages of those that lack vectors. `others`: models of other workers. */
  claimVectors: (
    token: string,
    kind: VectorsKind,
    others: string[],
  ) => Promise<{ sourceId: string; assistantId: string } | null>;
  listWithoutVectors: (sourceId: string, made: string, limit: number) => Promise<PassageToEmbed[]>;
  saveVectors: (sourceId: string, token: string, kind: VectorsKind, rows: PassageVectors[]) => Promise<void>;
  /** Stores the progress and renews the lease. False if it is lost. */
  reportVectors: (sourceId: string, token: string, made: string) => Promise<boolean>;
  /** Ends the lease, with or without all vectors made. */
  endVectors: (sourceId: string, token: string, made: VectorsKind | null) => Promise<void>;

  /** Takes a source whose index by this engine is to be stored. `model`: of its vectors. */
  claimIndex: (token: string, engine: string) => Promise<IndexClaim | null>;
  /** Stores a piece of a part, and renews the lease. Throws `RunLost` if it is lost. */
  saveIndexPiece: (
    claim: IndexClaim,
    piece: Omit<StoredIndexPiece, '_id' | 'assistantId' | 'sourceId' | 'of'>,
  ) => Promise<void>;
  /**
   * Ends the lease. `made` is the engine of a whole index, or null. An index that was stored replaces those before; one
   * that was not needed leaves them.
   */
  endIndex: (claim: IndexClaim, made: string | null, isStored: boolean) => Promise<void>;
};

/** A lease on the stored index of a source. What is stored under it is named by its token. */
export type IndexClaim = { sourceId: string; assistantId: string; token: string; model: string | null };

export const createSourceRuns = ({ connection, timing, raisePassages }: Dependencies): SourceRuns => {
  const models = sourceModels(connection);
  const sources = collectionOf<StoredSource>(models.sources);
  const files = collectionOf<StoredFileChunk>(models.sourceFiles);
  const pages = collectionOf<StoredSourcePage>(models.sourcePages);
  const passages = collectionOf<StoredPassage>(models.passages);
  const tokens = collectionOf(models.passageTokens);
  const indexes = collectionOf<StoredIndexPiece>(models.passageIndexes);
  const proposals = collectionOf(models.proposedEntries);
  const ofRun = leaseIn('lease', timing.sourceLeaseMs);
  const ofVectors = leaseIn('vectors.lease', timing.sourceLeaseMs);
  const ofIndex = leaseIn('indexed.lease', timing.sourceLeaseMs);

  /** A transaction that is repeated if another one was faster. */
  const transact = async <Result>(
    session: ClientSession,
    work: (session: ClientSession) => Promise<Result>,
  ): Promise<Result> => {
    for (let tries = 1; ; tries += 1) {
      try {
        session.startTransaction();
        const result = await work(session);
        await session.commitTransaction();
        return result;
      } catch (cause) {
        if (session.inTransaction()) await session.abortTransaction().catch(() => undefined);
        if (!isTransient(cause) || tries === TRIES_OF_WRITE) throw cause;
        await sleep(Math.random() * 20 * 2 ** tries);
      }
    }
  };

  // A transaction whose process was killed would lock what it wrote for a minute. So its session is stored with the
  // lease, and whoever takes the lease ends it.
  const sessions = new Map<string, ClientSession>();
  const openSession = async (token: string): Promise<string> => {
    const session = await connection.startSession();
    sessions.set(token, session);
    return (session.id as { id: mongo.Binary }).id.toUUID().toString();
  };
  const sessionOf = (token: string): ClientSession => {
    const session = sessions.get(token);
    if (!session) throw new RunLost('the lease has ended');
    return session;
  };
  const closeSession = async (token: string): Promise<void> => {
    const session = sessions.get(token);
    sessions.delete(token);
    await session?.endSession();
  };
  const killSession = async (lease: Pick<SourceLease, 'session'> | undefined): Promise<void> => {
    if (lease?.session === undefined) return;
    const id = new mongoose.mongo.UUID(lease.session);
    await connection.db?.admin().command({ killSessions: [{ id }] });
  };
  const renewalOf = (token: string, session?: string) => {
    const kept = session === undefined ? '$lease.session' : { $literal: session };
    return [{ $set: { lease: { ...ofRun.renewed(token), session: kept } } }];
  };

  /**
   * Writes to a source whose lease this worker holds. `write` says what else changes in the source. The source itself is
   * written last, so that an owner's change hardly ever waits for it; if it has changed meanwhile, all is repeated.
   */
  const writeAs = <Result>(
    { sourceId, token }: RunLease,
    write: (session: ClientSession, source: StoredSource) => Promise<SourceUpdate & { result: Result }>,
    removed = false,
  ): Promise<Result> =>
    transact(sessionOf(token), async (session) => {
      const filter = { _id: sourceId, ...ofRun.heldBy(token), ...(removed ? {} : { removedAt: null }) };
      const lost = () => new RunLost('another worker has the source, or it was removed');
      const source = await sources.findOne(filter, { session });
      if (!source) throw lost();
      const { add = {}, set = {}, result } = await write(session, source);
      const changes = {
        ...Object.fromEntries(Object.entries(add).map(([path, by]) => [path, { $add: [`$${path}`, by] }])),
        ...Object.fromEntries(Object.entries(set).map(([path, value]) => [path, { $literal: value }])),
      };
      const update = [...renewalOf(token), ...(Object.keys(changes).length > 0 ? [{ $set: changes }] : [])];
      const { matchedCount } = await sources.updateOne(filter, update, { session });
      if (matchedCount === 0) throw lost();
      return result;
    });

  /** Adds pages to the frontier of a run. A page that the run has already found stays as it is. */
  const addPages = async (
    session: ClientSession,
    { _id: sourceId, assistantId, run, counts, error }: StoredSource,
    found: FoundPage[],
  ): Promise<SourceUpdate & { ids: string[] }> => {
    const wanted = new Map(found.map((page) => [idOfPage(sourceId, page.url), page]));
    const known = new Map<string, number>();
    for (const ids of inChunks([...wanted.keys()], 1_000)) {
      const rows = pages.find({ _id: { $in: ids } }, { projection: { run: 1 }, session });
      for await (const row of rows) known.set(row._id, row.run);
    }
    const open = [...wanted].filter(([id]) => (known.get(id) ?? 0) < run);
    const { found: still, read, unchanged, skipped, failed, gone } = counts;
    const room = Math.max(0, PAGES_OF_SITE_MAX - still - read - unchanged - skipped - failed - gone);
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

  const deleteTexts = async (session: ClientSession, ids: string[]): Promise<void> => {
    if (ids.length === 0) return;
    await tokens.deleteMany({ _id: { $in: ids } }, { session });
    await passages.deleteMany({ _id: { $in: ids } }, { session });
  };

  /**
   * Makes these the passages of a page in the version of the run. What the live version shows stays until the run is
   * published; what the run itself wrote is replaced.
   */
  const replacePassages = async (
    session: ClientSession,
    { _id: sourceId, run }: StoredSource,
    pageId: string,
    wanted: StoredPassage[],
  ): Promise<number> => {
    const projection = { since: 1, until: 1 };
    const present = await passages.find({ sourceId, pageId }, { projection, session }).toArray();
    const byId = new Map(present.map((row) => [row._id, row]));
    const kept = new Set(wanted.map(({ _id }) => _id));
    const added = wanted.filter(({ _id }) => !byId.has(_id));
    const back = present.filter(({ _id, until }) => kept.has(_id) && until !== null).map(({ _id }) => _id);
    const left = present.filter(({ _id, until }) => !kept.has(_id) && until === null);
    const own = left.filter(({ since }) => since === run).map(({ _id }) => _id);
    const live = left.filter(({ since }) => since < run).map(({ _id }) => _id);
    if (added.length > 0) await passages.insertMany(added, { session });
    if (back.length > 0) await passages.updateMany({ _id: { $in: back } }, { $set: { until: null } }, { session });
    if (live.length > 0) await passages.updateMany({ _id: { $in: live } }, { $set: { until: run } }, { session });
    await deleteTexts(session, own);
    return added.length + back.length - left.length;
  };

  /** The passages of a page without those that another page of the source has. */
  const composePassages = async (
    session: ClientSession,
    { _id: sourceId, assistantId, run, kind }: StoredSource,
    page: StoredSourcePage,
    { title, language, passages: texts }: Extract<PageEnd, { state: 'read' }>,
  ): Promise<{ wanted: StoredPassage[]; repeated: string[] }> => {
    const url = kind === 'file' ? null : page.url;
    const composed = new Map<string, StoredPassage>();
    for (const [order, { path, text, anchor }] of texts.entries()) {
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
      { assistantId, removedAt: null, _id: { $ne: _id } },
      { projection: { 'counts.passages': 1 }, session },
    );
    let room = PASSAGES_MAX;
    for await (const { counts } of others) room -= counts.passages;
    return Math.max(0, room);
  };

  /** Stores the proposals of a page. Those that an owner has decided on stay as they are. */
  const propose = async (
    session: ClientSession,
    { _id: sourceId, assistantId, kind }: StoredSource,
    page: StoredSourcePage,
    found: { question: string; answer: string }[],
  ): Promise<void> => {
    const url = kind === 'file' ? null : page.url;
    const valid = found.flatMap((one) => Proposal.safeParse(one).data ?? []).slice(0, PROPOSALS_OF_PAGE);
    const wanted = new Map(valid.map((one) => [hashOf(assistantId, one.question.toLowerCase()), one]));
    const ids = [...wanted.keys()];
    const outdated = { sourceId, url, state: 'proposed' as const, _id: { $nin: ids } };
    await proposals.deleteMany(outdated, { session });
    if (ids.length === 0) return;
    const known = new Set(
      (await proposals.find({ _id: { $in: ids } }, { projection: { _id: 1 }, session }).toArray()).map(
        ({ _id }) => _id,
      ),
    );
    const room = PROPOSALS_MAX - (await proposals.countDocuments({ assistantId }, { session, limit: PROPOSALS_MAX }));
    const added = [...wanted].filter(([_id]) => !known.has(_id)).slice(0, Math.max(0, room));
    const rows = added.map(([_id, one]) => ({ _id, assistantId, sourceId, url, ...one, state: 'proposed' as const }));
    if (rows.length > 0) await proposals.insertMany(rows, { session });
    for (const [_id, { answer }] of wanted) {
      if (known.has(_id))
        await proposals.updateOne({ _id, sourceId, state: 'proposed' }, { $set: { answer, url } }, { session });
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
    await propose(session, source, page, end.proposals);
    const { ids, add, set } = await addPages(session, source, end.links);
    const change = page.hash === null ? 'added' : 'changed';
    return {
      page: {
        state: 'read',
        missed: 0,
        error: null,
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
        // The first pages answer at once.
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
    const added = await replacePassages(session, source, page._id, []);
    await proposals.deleteMany({ sourceId: source._id, url: page.url, state: 'proposed' }, { session });
    const removed = page.hash === null ? 0 : 1;
    return {
      page: { ...changes, hash: null, etag: null, lastModified: null, links: [], repeated: [] },
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
    // A file that was replaced by one of another name leaves at once.
    if (page.hash === null || missed >= GONE_AFTER || source.kind === 'file')
      return dropPage(session, source, page, { state: 'gone', missed, error });
    return { page: { state: 'failed', missed, error } };
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
      const { etag, lastModified, keeps } = end;
      const projection = { url: 1 };
      const linked = await pages.find({ _id: { $in: page.links } }, { projection, session }).toArray();
      const kept = linked.filter(({ url }) => keeps(url)).map(({ url }) => ({ url, depth: page.depth + 1 }));
      const { add, set } = await addPages(session, source, kept);
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

  /** Deletes passages with their tokens, in steps that each check the lease. */
  const deleteInSteps = async (
    lease: RunLease,
    filterOf: (source: StoredSource) => mongo.Filter<StoredPassage> | null,
    removed = false,
  ): Promise<void> => {
    for (let deleted = AT_ONCE; deleted === AT_ONCE; ) {
      const step = async (session: ClientSession, source: StoredSource) => {
        const filter = filterOf(source);
        const rows = filter
          ? await passages.find(filter, { projection: { _id: 1 }, limit: AT_ONCE, session }).toArray()
          : [];
        await deleteTexts(
          session,
          rows.map(({ _id }) => _id),
        );
        return { result: rows.length };
      };
      deleted = await writeAs(lease, step, removed);
    }
  };

  const announce = async (assistantId: string): Promise<void> => {
    const all = sources.find({ assistantId, removedAt: null }, { projection: { live: 1, 'counts.passages': 1 } });
    let count = 0;
    for await (const { live, counts } of all) if (live > 0) count += counts.passages;
    await raisePassages(assistantId, count);
  };

  /** Counts in the transaction that stores the count, so that a count which is stored later is never an older one. */
  const countPassages = (session: ClientSession, sourceId: string, made?: mongo.Condition<string | null>) =>
    passages.countDocuments({ sourceId, until: null, ...(made !== undefined && { made }) }, { session });

  const endOf = (source: StoredSource, againAfterMs?: number) => {
    const now = serverDate();
    const due = againAfterMs === undefined ? dueAfter(source.schedule, now) : new Date(now.getTime() + againAfterMs);
    return { endedAt: now, nextAt: source.nextAt ?? due };
  };

  const isDue = (now: Date) => ({
    removedAt: null,
    ...ofRun.free,
    // `lease` is there until a run has ended and has left nothing behind.
    $or: [{ nextAt: { $lte: now } }, { lease: { $exists: true } }],
  });

  return {
    findDue: async ({ limit, except, before: now = serverDate() }) => {
      const projection = { assistantId: 1, nextAt: 1, lease: 1, removedAt: 1 };
      const others = except.length > 0 ? { assistantId: { $nin: except } } : {};
      const find = (filter: mongo.Filter<StoredSource>, sort: mongo.Sort) =>
        sources.find({ ...filter, ...others }, { projection, sort, limit }).toArray();
      // The partial indexes hold dates, and MongoDB uses them only if the filter says so too.
      const past = { $lte: now, $type: 'date' as const };
      const found = await Promise.all([
        find({ removedAt: past, ...ofRun.free }, { removedAt: 1 }),
        find({ nextAt: past, removedAt: null, ...ofRun.free }, { nextAt: 1 }),
        find({ 'lease.until': { $lte: now }, removedAt: null, ...ofRun.free }, { 'lease.until': 1 }),
      ]);
      const since = ({ removedAt, lease, nextAt }: StoredSource): Date =>
        removedAt ?? lease?.until ?? nextAt ?? serverDate();
      const byId = new Map(found.flat().map((row) => [row._id, row]));
      return [...byId.values()]
        .toSorted((one, other) => since(one).getTime() - since(other).getTime())
        .slice(0, limit)
        .map((row) => ({ sourceId: row._id, assistantId: row.assistantId, since: since(row) }));
    },

    claim: async (sourceId, token) => {
      const filter = { _id: sourceId, ...isDue(serverDate()) };
      const due = await sources.findOne(filter, { projection: { lease: 1, vectors: 1, indexed: 1 } });
      if (!due) return null;
      await killSession(due.lease);
      for (const other of [due.vectors?.lease, due.indexed?.lease])
        if (other && other.until.getTime() < serverNow()) await killSession(other);
      const renewal = renewalOf(token, await openSession(token));
      const source = await sources.findOneAndUpdate(filter, renewal, { returnDocument: 'before' });
      if (!source) await closeSession(token);
      return source && { source, lease: { sourceId, token }, isLeft: source.lease !== undefined };
    },

    renew: async ({ sourceId, token }) => {
      const filter = { _id: sourceId, ...ofRun.heldBy(token), removedAt: null };
      const { matchedCount } = await sources.updateOne(filter, renewalOf(token));
      return matchedCount === 1;
    },

    release: async ({ sourceId, token }) => {
      await closeSession(token);
      const lease = { token: '', until: serverDate() };
      await sources.updateOne({ _id: sourceId, ...ofRun.heldBy(token) }, { $set: { lease } });
    },

    start: (lease) =>
      writeAs(lease, async (_session, source) => {
        if (source.state === 'running') return { result: source };
        if (source.nextAt === null || source.nextAt.getTime() > serverNow()) return { result: null };
        const { passages: present, embedded } = source.counts;
        const counts = { found: 0, read: 0, unchanged: 0, skipped: 0, failed: 0, gone: 0, passages: present, embedded };
        const begun = { state: 'running' as const, run: source.run + 1, counts, changed: NO_CHANGES };
        const times = { nextAt: null, startedAt: serverDate(), endedAt: null };
        const set = { ...begun, ...times, error: null, site: null };
        return { set, result: { ...source, ...set } };
      }),

    seed: (lease, found, site) =>
      writeAs(lease, async (session, source) => {
        const { add, set } = await addPages(session, source, found);
        return { ...(add && { add }), set: { ...set, ...(site && { site }) }, result: undefined };
      }),

    listOpen: ({ sourceId, run }, limit) =>
      pages.find({ sourceId, run, state: 'found' }, { sort: { depth: 1 }, limit }).toArray(),

    beginPage: ({ pageId, run }) =>
      pages.findOneAndUpdate({ _id: pageId, run, state: 'found' }, { $inc: { tries: 1 } }, AFTER),

    forgetTry: async ({ pageId, run }) => {
      await pages.updateOne({ _id: pageId, run, state: 'found', tries: { $gt: 0 } }, { $inc: { tries: -1 } });
    },

    findPage: (sourceId, url) => pages.findOne({ _id: idOfPage(sourceId, url) }),

    endPage: (lease, pageId, end) =>
      writeAs(lease, async (session, source) => {
        const page = await pages.findOne({ _id: pageId, run: source.run, state: 'found' }, { session });
        if (!page || source.state !== 'running') return { result: false };
        const { page: set, add = {}, ...update } = await endedPage(session, source, page, end);
        await pages.updateOne({ _id: pageId }, { $set: set }, { session });
        const found = (add['counts.found'] ?? 0) - 1;
        return { ...update, add: { ...add, [`counts.${set.state}`]: 1, 'counts.found': found }, result: true };
      }),

    countRead: async (sourceId) => {
      const source = await sources.findOne({ _id: sourceId }, { projection: { counts: 1 } });
      return source ? source.counts.read + source.counts.unchanged : 0;
    },

    findProblem: async ({ sourceId, run }) => {
      const options = { projection: { error: 1, missed: 1 }, sort: { depth: 1 } } as const;
      const states: PageState[] = ['failed', 'skipped', 'gone'];
      return pages.findOne({ sourceId, run, state: { $in: states } }, options);
    },

    closePages: async (lease) => {
      const step = async (session: ClientSession, source: StoredSource) => {
        const { _id: sourceId, run } = source;
        const rows = await pages.find({ sourceId, run: { $lt: run } }, { limit: AT_ONCE, session }).toArray();
        const add: Record<string, number> = {};
        const count = (all: Record<string, number> = {}): void => {
          for (const [name, by] of Object.entries(all)) add[name] = (add[name] ?? 0) + by;
        };
        for (const page of rows) {
          if (page.state === 'gone') {
            // It has no passages any more, except after a run that failed.
            count({ 'counts.passages': await replacePassages(session, source, page._id, []) });
            await pages.deleteOne({ _id: page._id }, { session });
            continue;
          }
          const { page: set, add: more } = await missPage(session, source, page, NOT_LINKED);
          await pages.updateOne({ _id: page._id }, { $set: { ...set, run } }, { session });
          count(more);
          count({ [`counts.${set.state}`]: 1 });
        }
        return { add, result: rows.length };
      };
      while ((await writeAs(lease, step)) > 0);

      return writeAs(lease, async (session, source) => {
        const { _id: sourceId, run } = source;
        const ended: PageState[] = ['read', 'unchanged'];
        const filter = { sourceId, run, state: { $in: ended }, repeated: { $ne: [] } };
        const projection = { state: 1, repeated: 1 };
        const some = await pages.find(filter, { projection, session }).toArray();
        const lacking = new Set(some.flatMap(({ repeated }) => repeated));
        for (const hashes of inChunks([...lacking], 1_000)) {
          const held = { sourceId, hash: { $in: hashes }, until: null };
          for await (const { hash } of passages.find(held, { projection: { hash: 1 }, session })) lacking.delete(hash);
        }
        const again = some.filter(({ repeated }) => repeated.some((hash) => lacking.has(hash)));
        const add: Record<string, number> = {};
        if (again.length > 0) add['counts.found'] = again.length;
        for (const { state } of again) add[`counts.${state}`] = (add[`counts.${state}`] ?? 0) - 1;
        const open = { state: 'found' as const, etag: null, lastModified: null, hash: AGAIN, repeated: [], tries: 0 };
        const ids = again.map(({ _id }) => _id);
        if (ids.length > 0) await pages.updateMany({ _id: { $in: ids } }, { $set: open }, { session });
        return { add, result: { reopened: ids.length } };
      });
    },

    publish: (lease, error = null) =>
      writeAs(lease, async (_session, source) => {
        const set = { state: 'ready' as const, live: source.run, ...endOf(source), ...(error && { error }) };
        return { set: source.state === 'running' ? set : {}, result: undefined };
      }),

    fail: (lease, error, againAfterMs) =>
      writeAs(lease, async (session, source) => {
        const { _id: sourceId, run, live } = source;
        if (source.state !== 'running') return { result: undefined };
        // The passages of these pages are removed, so the same content must be read again.
        const unread = { etag: null, lastModified: null, hash: AGAIN };
        if (live !== run) await pages.updateMany({ sourceId, run, state: 'read' }, { $set: unread }, { session });
        return { set: { state: 'failed' as const, error, ...endOf(source, againAfterMs) }, result: undefined };
      }),

    settle: async (lease) => {
      const { sourceId } = lease;
      const texts = ({ assistantId }: StoredSource) => ({ assistantId, sourceId });
      await deleteInSteps(lease, (source) =>
        source.state === 'running' ? null : { ...texts(source), since: { $gt: source.live } },
      );
      await deleteInSteps(lease, ({ live }) => ({ sourceId, until: { $lte: live } }));
      const keepLeft = async (session: ClientSession, { live, state }: StoredSource) => {
        if (state === 'running') return { result: 0 };
        const options = { projection: { _id: 1 }, limit: AT_ONCE, session };
        const left = await passages.find({ sourceId, until: { $gt: live } }, options).toArray();
        const ids = left.map(({ _id }) => _id);
        if (ids.length > 0) await passages.updateMany({ _id: { $in: ids } }, { $set: { until: null } }, { session });
        // They were left out when vectors were made.
        return { result: ids.length, ...(ids.length > 0 && { set: { 'vectors.made': null } }) };
      };
      while ((await writeAs(lease, keepLeft)) === AT_ONCE);
      const source = await sources.findOne({ _id: sourceId });
      if (!source) throw new RunLost('the source is gone');
      // Of uploads that have not ended, or whose process was killed before it removed what they replace.
      const old = { $lt: new Date(serverNow() - 2 * UPLOADED_WITHIN_MS) };
      if (source.file) await files.deleteMany({ sourceId, at: old, upload: { $ne: source.file.upload } });
      await writeAs(lease, async (session) => {
        const present = await countPassages(session, sourceId);
        const embedded = await countPassages(session, sourceId, { $type: 'string' });
        const counted = { 'counts.passages': present, 'counts.embedded': embedded };
        return { set: { ...counted, 'indexed.by': null }, result: undefined };
      });
      await announce(source.assistantId);
    },

    end: async ({ sourceId, token }) => {
      await closeSession(token);
      await sources.updateOne({ _id: sourceId, ...ofRun.heldBy(token) }, { $unset: ofRun.ended });
    },

    announce,

    readFile: async (sourceId) => {
      const find = async () => (await sources.findOne({ _id: sourceId }, { projection: { file: 1 } }))?.file;
      for (let file = await find(); ; ) {
        const filter = { sourceId, upload: file?.upload ?? null } as mongo.Filter<StoredFileChunk>;
        const read: Buffer[] = [];
        for await (const { bytes } of files.find(filter, { sort: { n: 1 }, promoteBuffers: true }))
          read.push(Buffer.from(bytes));
        const now = await find();
        if (now?.upload === file?.upload) return { bytes: Buffer.concat(read), name: file?.name ?? null };
        file = now; // it was replaced while it was read
      }
    },

    remove: async (sourceId, token) => {
      const lease = { sourceId, token };
      const filter = { _id: sourceId, removedAt: { $lte: serverDate() } };
      const due = await sources.findOne(filter, { projection: { lease: 1, vectors: 1, indexed: 1 } });
      if (!due) return false;
      // The lease of a run ends with this: the worker of the run loses it.
      for (const left of [due.lease, due.vectors?.lease, due.indexed?.lease]) await killSession(left);
      const source = await sources.findOneAndUpdate(filter, renewalOf(token, await openSession(token)), AFTER);
      if (!source) {
        await closeSession(token);
        return false;
      }
      try {
        await announce(source.assistantId);
        await deleteInSteps(lease, () => ({ sourceId }), true);
        const belongings = [pages, files, proposals, indexes] as unknown as mongo.Collection<{
          _id: string;
          sourceId: string;
        }>[];
        for (const collection of belongings) {
          for (let deleted = AT_ONCE; deleted === AT_ONCE; ) {
            const options = { projection: { _id: 1 }, limit: AT_ONCE };
            const rows = await collection.find({ sourceId }, options).toArray();
            await collection.deleteMany({ _id: { $in: rows.map(({ _id }) => _id) } });
            deleted = rows.length;
          }
        }
        await sources.deleteOne({ _id: sourceId, ...ofRun.heldBy(token) });
      } finally {
        await closeSession(token);
      }
      return true;
    },

    claimVectors: async (token, { made }, others) => {
      const filter = {
        removedAt: null,
        'vectors.made': { $ne: made },
        'counts.passages': { $gt: 0 },
        ...(others.length > 0 && { 'vectors.model': { $nin: others } }),
        ...ofVectors.free,
      } as mongo.Filter<StoredSource>;
      const lease = { ...ofVectors.renewed(token), session: { $literal: await openSession(token) } };
      const projection = { assistantId: 1, vectors: 1 };
      const options = { returnDocument: 'before', sort: { 'counts.passages': 1 }, projection } as const;
      const source = await sources.findOneAndUpdate(filter, [{ $set: { 'vectors.lease': lease } }], options);
      if (source) await killSession(source.vectors?.lease);
      else await closeSession(token);
      return source && { sourceId: source._id, assistantId: source.assistantId };
    },

    listWithoutVectors: async (sourceId, made, limit) => {
      const options = { projection: { title: 1, path: 1, text: 1 }, limit };
      const rows = await passages.find({ sourceId, made: { $ne: made }, until: null }, options).toArray();
      return rows.map(({ _id, title, path, text }) => ({ passageId: _id, title, path, text }));
    },

    saveVectors: (sourceId, token, { model, kind, made }, rows) =>
      transact(sessionOf(token), async (session) => {
        const ids = rows.map(({ passageId }) => passageId);
        // A passage that has left meanwhile must not leave tokens behind. One that leaves now makes this fail.
        const options = { projection: { assistantId: 1 }, session };
        const present = await passages.find({ _id: { $in: ids }, sourceId }, options).toArray();
        const assistantIds = new Map(present.map(({ _id, assistantId }) => [_id, assistantId]));
        const kept = rows.filter(({ passageId }) => assistantIds.has(passageId));
        if (kept.length === 0) return;
        const vectors = kept.map(({ passageId: _id, vector }) => ({
          updateOne: { filter: { _id }, update: { $set: { model, made, vector: Buffer.from(vector) } } },
        }));
        await passages.bulkWrite(vectors, { session, ordered: false });
        if (kind === null) return;
        const writes = kept.flatMap(({ passageId: _id, tokens: bytes }) => {
          const assistantId = assistantIds.get(_id) ?? '';
          const replacement = { assistantId, sourceId, kind, tokens: Buffer.from(bytes ?? []) };
          return bytes ? [{ replaceOne: { filter: { _id }, replacement, upsert: true } }] : [];
        });
        if (writes.length > 0) await tokens.bulkWrite(writes, { session, ordered: false });
      }),

    reportVectors: (sourceId, token, made) =>
      transact(sessionOf(token), async (session) => {
        const embedded = await countPassages(session, sourceId, made);
        const lease = { ...ofVectors.renewed(token), session: '$vectors.lease.session' };
        const update = [{ $set: { 'counts.embedded': embedded, 'vectors.lease': lease } }];
        const held = { _id: sourceId, ...ofVectors.heldBy(token) };
        return (await sources.updateOne(held, update, { session })).matchedCount === 1;
      }),

    endVectors: async (sourceId, token, kind) => {
      await closeSession(token);
      const held = { _id: sourceId, ...ofVectors.heldBy(token) };
      const isWhole = async (made: string): Promise<boolean> => {
        const missing = { sourceId, made: { $ne: made }, until: null };
        return (await passages.findOne(missing, { projection: { _id: 1 } })) === null;
      };
      const none = { 'vectors.made': null } as mongo.MatchKeysAndValues<StoredSource>;
      if (kind && (await isWhole(kind.made))) {
        const made = { 'vectors.made': kind.made, 'vectors.model': kind.model, 'indexed.by': null };
        await sources.updateOne(held, { $set: made as mongo.MatchKeysAndValues<StoredSource> });
        // A page may have been stored between the two.
        if (!(await isWhole(kind.made))) await sources.updateOne({ _id: sourceId }, { $set: none });
      }
      await sources.updateOne(held, { $unset: ofVectors.ended });
    },

    claimIndex: async (token, engine) => {
      const before = new Date(serverNow() - INDEXED_AGAIN_MS);
      const filter = {
        state: { $in: ['ready', 'failed'] },
        removedAt: null,
        'counts.passages': { $gt: 0 },
        // Two engines, while an update is rolled out, take turns slowly.
        $or: [
          { 'indexed.by': { $in: [null, TAKEN] } },
          { 'indexed.by': { $ne: engine }, 'indexed.at': { $lt: before } },
        ],
        ...ofIndex.free,
      } as mongo.Filter<StoredSource>;
      const lease = { ...ofIndex.renewed(token), session: { $literal: await openSession(token) } };
      // What becomes due from now on is done again after this.
      const set = { $set: { indexed: { by: { $literal: TAKEN }, at: '$$NOW', lease } } };
      const projection = { assistantId: 1, vectors: 1, indexed: 1 };
      const source = await sources.findOneAndUpdate(filter, [set], { returnDocument: 'before', projection });
      if (source) await killSession(source.indexed?.lease);
      else await closeSession(token);
      return (
        source && { sourceId: source._id, assistantId: source.assistantId, token, model: source.vectors?.model ?? null }
      );
    },

    saveIndexPiece: ({ sourceId, assistantId, token }, row) =>
      transact(sessionOf(token), async (session) => {
        const _id = [sourceId, token, row.part, row.piece].join(':');
        await indexes.insertOne({ _id, assistantId, sourceId, of: token, ...row }, { session });
        const lease = { ...ofIndex.renewed(token), session: '$indexed.lease.session' };
        const held = { _id: sourceId, removedAt: null, ...ofIndex.heldBy(token) };
        const { matchedCount } = await sources.updateOne(held, [{ $set: { 'indexed.lease': lease } }], { session });
        if (matchedCount === 0) throw new RunLost('another worker makes the index, or the source was removed');
      }),

    endIndex: async ({ sourceId, token }, made, isStored) => {
      const held = { _id: sourceId, ...ofIndex.heldBy(token) };
      try {
        await transact(sessionOf(token), async (session) => {
          // If it became due meanwhile, it stays due.
          const end = { $cond: [{ $eq: ['$indexed.by', TAKEN] }, { $literal: made }, '$indexed.by'] };
          const update = [{ $set: { 'indexed.by': end } }, { $unset: 'indexed.lease' }];
          const { matchedCount } = await sources.updateOne(held, update, { session });
          if (matchedCount === 0 || made === null || !isStored) return;
          await indexes.deleteMany({ sourceId, of: { $ne: token } }, { session });
        });
      } finally {
        await closeSession(token);
      }
    },
  };
};
