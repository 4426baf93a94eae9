import { mainLanguage } from '@parley/understanding/text';
import type { ClientSession, Connection, mongo } from 'mongoose';
import { createRound, inBatches, inChunks, leaseIn, restIfSlow } from '../platform/mongo/batches.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { collectionOf } from '../platform/mongo/mongo.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import type { Timing } from '../platform/process/time-limits.ts';
import { createLeaseSessions, type RunLease, RunLost } from './lease-sessions.ts';
import {
  createPagesOfRun,
  type FoundPage,
  LARGE_AT_ONCE,
  type PageEnd,
  type PageReads,
  type SourceUpdate,
} from './run-pages.ts';
import {
  dueAfter,
  FIRST_OF_ASSISTANT,
  isPublished,
  passagesOf,
  NO_CHANGES,
  PRESENT,
  type SiteOfRun,
  type SourceError,
  sourceModels,
  type StoredFileChunk,
  type StoredIndexPiece,
  type StoredPassage,
  type StoredSource,
  type StoredSourcePage,
  UPLOADED_WITHIN_MS,
} from './source.ts';

const ROWS_AT_ONCE = 200;
const REOPENED_MAX = 3;
/**
 * A run that has not begun goes before those that go on, unless they have waited this much longer, or its assistant had
 * a place since.
 */
const AHEAD_MS = 10 * 60_000;
/** Of how many assistants the first due source is looked for, if more are due than are read. */
const LOOKED_AT = 20;
/** So many passages tell the language of a source. */
const LANGUAGE_SAMPLE = 500;
const AFTER = { returnDocument: 'after' } as const;

/** `goesOn`: its run has begun. */
type DueSource = { sourceId: string; assistantId: string; since: Date; goesOn: boolean };
/** How many places an assistant has, and when it had one last, in ms since the epoch. */
type TurnOf = (assistantId: string) => { places: number; servedAt: number };

/**
 * The assistant with the fewest places goes first, then the one that has waited longest for a place, so that the many
 * sources of one never stand before the first one of another. Runs that have not begun go before those that go on.
 */
const inTurns = (due: DueSource[], turnOf: TurnOf = () => ({ places: 0, servedAt: 0 })): DueSource[] => {
  const rank = ({ since, goesOn }: DueSource, servedAt = 0): number =>
    Math.max(since.getTime() - (goesOn ? 0 : AHEAD_MS), servedAt);
  const counted = new Map<string, number>();
  return due
    .toSorted((one, other) => rank(one) - rank(other))
    .map((one) => {
      const { places, servedAt } = turnOf(one.assistantId);
      const nth = counted.get(one.assistantId) ?? places;
      counted.set(one.assistantId, nth + 1);
      return { one, nth, rank: rank(one, servedAt) };
    })
    .toSorted((one, other) => one.nth - other.nth || one.rank - other.rank)
    .map(({ one }) => one);
};

/**
 * How a run makes many writes. `signal` ends it between two of them, and the run goes on later. `inLine` makes a write of
 * many passages when it is its turn.
 */
type Steps = { signal?: AbortSignal; inLine?: <Result>(write: () => Promise<Result>) => Promise<Result> };
const atOnce: NonNullable<Steps['inLine']> = (write) => write();

type Dependencies = {
  connection: Connection;
  timing: Pick<Timing, 'sourceLeaseMs'>;
  /** Tells the reply workers that the visible passages of an assistant have changed. */
  raisePassages: AssistantStore['raisePassages'];
};

/**
 * The runs of sources: reading a source anew (docs/design.md, Sources and their runs). Each write is one transaction
 * that also renews the lease on the source, so a worker that lost the lease writes nothing, and a killed worker leaves
 * only complete pages.
 */
export type SourceRuns = PageReads & {
  /**
   * Sources that are due and that no worker holds, in the order in which they get a place: of each assistant one before
   * the second one of any. `except`: assistants that get no place. `before`: only those due by then.
   */
  findDue: (options: { limit: number; except: string[]; turnOf?: TurnOf; before?: Date }) => Promise<DueSource[]>;

  /** Takes the lease of a source that has something to do. `isLeft`: another worker has left its work unfinished. */
  claim: (
    sourceId: string,
    token: string,
  ) => Promise<{ lease: RunLease; source: StoredSource; isLeft: boolean } | null>;

  /** False if the lease is lost. */
  renew: (lease: RunLease) => Promise<boolean>;

  /** Ends the lease at once. An unfinished source waits behind the others that are due. */
  release: (lease: RunLease) => Promise<void>;

  /** Begins the next run if one is due. */
  start: (lease: RunLease) => Promise<StoredSource | null>;

  /** Adds the first pages of a run, and what was found out about the site. */
  seed: (lease: RunLease, pages: FoundPage[], site?: SiteOfRun, signal?: AbortSignal) => Promise<void>;

  /** Stores how the fetch of a page ended, with all that follows from it. False if the page has already ended. */
  endPage: (lease: RunLease, pageId: string, end: PageEnd, steps?: Steps) => Promise<boolean>;

  /** How many pages the run has read, unchanged ones included. */
  countRead: (sourceId: string) => Promise<number>;

  /** Ends the pages that the run did not find. */
  closePages: (lease: RunLease, steps?: Steps) => Promise<void>;

  /** Makes pages that have ended open again. False if the run has done so too often: two pages may go on lacking texts. */
  reopenPages: (lease: RunLease, ids: string[], signal?: AbortSignal) => Promise<boolean>;

  /** Makes all that the run has read live at once. */
  publish: (lease: RunLease, error?: SourceError | null) => Promise<void>;

  /** Ends the run as failed. Answers keep using the previous version. */
  fail: (lease: RunLease, error: SourceError, againAfterMs?: number) => Promise<void>;

  /** Removes what nobody can see after the end of a run, and announces what is visible. */
  settle: (lease: RunLease) => Promise<void>;

  /** Gives the lease back after everything is done. */
  end: (lease: RunLease) => Promise<void>;

  /** Tells the reply workers that the visible passages of an assistant have changed. */
  announce: (assistantId: string) => Promise<void>;

  /** The file as it is now, with its name. */
  readFile: (sourceId: string) => Promise<{ bytes: Buffer; name: string | null }>;

  /** Removes a source and all that belongs to it. Continues what a killed worker has begun. */
  remove: (sourceId: string, token: string) => Promise<boolean>;
};

export const createSourceRuns = ({ connection, timing, raisePassages }: Dependencies): SourceRuns => {
  const models = sourceModels(connection);
  const sources = collectionOf<StoredSource>(models.sources);
  const files = collectionOf<StoredFileChunk>(models.sourceFiles);
  const pages = collectionOf<StoredSourcePage>(models.sourcePages);
  const passages = collectionOf<StoredPassage>(models.passages);
  const pagesOfRun = createPagesOfRun(connection);
  const indexes = collectionOf<StoredIndexPiece>(models.passageIndexes);
  const proposals = collectionOf(models.proposedEntries);
  const ofRun = leaseIn('lease', timing.sourceLeaseMs);
  const ofVectors = leaseIn('vectors.lease', timing.sourceLeaseMs);

  const { transactAs, isWriting, openSession, closeSession, killSession } = createLeaseSessions(connection);
  const renewalOf = (token: string, session?: string) => {
    const kept = session === undefined ? '$lease.session' : { $literal: session };
    return [{ $set: { lease: { ...ofRun.renewed(token), session: kept } } }];
  };

  /**
   * Writes in a transaction, to a source whose lease this worker holds. `write` makes the other writes and returns what
   * to change in the source. The source itself is written last, so that an owner's change hardly ever waits for this
   * transaction. If the source has changed meanwhile, the transaction is repeated, and the source is written first, so that
   * the next change waits. Making vectors changes the source several times a second, so it must wait until the repeated
   * one ends.
   */
  const writeAs = <Result>(
    { sourceId, token }: RunLease,
    write: (session: ClientSession, source: StoredSource) => Promise<SourceUpdate & { result: Result }>,
    removed = false,
  ): Promise<Result> => {
    const filter = { _id: sourceId, ...ofRun.heldBy(token), ...(removed ? {} : { removedAt: null }) };
    let isRepeated = false;
    const stopVectors = async (): Promise<void> => {
      isRepeated = true;
      const lease = { ...ofVectors.renewed(token), session: '$vectors.lease.session' };
      await sources.updateOne(filter, [{ $set: { 'vectors.lease': lease } }]);
    };
    const transaction = async (session: ClientSession): Promise<Result> => {
      if (isRepeated) await sources.updateOne(filter, renewalOf(token), { session });
      const lost = () => new RunLost('another worker has the source, or it was removed');
      const source = await sources.findOne(filter, { session });
      if (!source) throw lost();
      const { add = {}, set = {}, result } = await write(session, source);
      const changes = {
        ...Object.fromEntries(Object.entries(add).map(([path, by]) => [path, { $add: [`$${path}`, by] }])),
        ...Object.fromEntries(Object.entries(set).map(([path, value]) => [path, { $literal: value }])),
      };
      const update = [
        ...renewalOf(token),
        ...(Object.keys(changes).length > 0 ? [{ $set: changes }] : []),
        ...(isRepeated ? [{ $unset: 'vectors.lease' }] : []),
      ];
      const { matchedCount } = await sources.updateOne(filter, update, { session });
      if (matchedCount === 0) throw lost();
      return result;
    };
    return transactAs(token, transaction, stopVectors);
  };

  /** Deletes passages with their tokens, in steps that each check the lease. */
  const deleteInSteps = async (
    lease: RunLease,
    filterOf: (source: StoredSource) => mongo.Filter<StoredPassage> | null,
    removed = false,
  ): Promise<void> => {
    const step = async (session: ClientSession, source: StoredSource) => {
      const filter = filterOf(source);
      return { result: filter !== null && (await pagesOfRun.deletePassages(session, filter)) };
    };
    for (let isLeft = true; isLeft; ) {
      const since = performance.now();
      isLeft = await writeAs(lease, step, removed);
      if (isLeft) await restIfSlow(since);
    }
  };

  /**
   * Writes of some pages each, for many pages. MongoDB keeps whole pages in its cache until a transaction ends, and they
   * may have 400 KB each: with a cache of 0.5 GB, a transaction that changed 1,000 of them never ended, and those of
   * several runs that changed 200 each held up everybody's writes.
   */
  const writeInSteps = async <Item>(
    lease: RunLease,
    steps: Item[][],
    write: (session: ClientSession, source: StoredSource, some: Item[]) => Promise<SourceUpdate>,
    signal?: AbortSignal,
  ): Promise<void> => {
    for (const some of steps) {
      signal?.throwIfAborted();
      const since = performance.now();
      await writeAs(lease, async (session, source) => {
        const { add, set } = source.state === 'running' ? await write(session, source, some) : {};
        return { ...(add && { add }), ...(set && { set }), result: undefined };
      });
      await restIfSlow(since);
    }
  };

  const announce = async (assistantId: string): Promise<void> => {
    const projection = { removedAt: 1, versions: 1, live: 1, language: 1, 'counts.passages': 1 };
    await raisePassages(assistantId, async () => {
      const all = await sources.find({ assistantId, ...PRESENT }, { projection }).toArray();
      const read = all.filter(({ live }) => live > 0);
      const { count, language } = passagesOf(read.filter(isPublished));
      return { live: count, drafted: passagesOf(read).count - count, language };
    });
  };

  /** Counts in the transaction that stores the count, so that a count which is stored later is never an older one. */
  const countPassages = (session: ClientSession, sourceId: string, made?: mongo.Condition<string | null>) =>
    passages.countDocuments({ sourceId, until: null, ...(made !== undefined && { made }) }, { session });

  const endOf = (source: StoredSource, againAfterMs?: number) => {
    const now = serverDate();
    const due = againAfterMs === undefined ? dueAfter(source.schedule, now) : new Date(now.getTime() + againAfterMs);
    return { endedAt: now, nextAt: source.nextAt ?? (source.retired ? null : due) };
  };

  /** For each kind of due sources, the assistants take turns to be looked at. */
  const rounds = {
    removedAt: createRound<StoredSource>(),
    nextAt: createRound<StoredSource>(),
    'lease.until': createRound<StoredSource>(),
  };

  const isDue = (now: Date) => ({
    removedAt: null,
    ...ofRun.free,
    // `lease` exists until a run has ended and what it has left behind is removed.
    $or: [{ nextAt: { $lte: now } }, { lease: { $exists: true } }],
  });

  return {
    ...pagesOfRun.reads,

    findDue: async ({ limit, except, turnOf, before = serverDate() }) => {
      const projection = { assistantId: 1, nextAt: 1, lease: 1, removedAt: 1 };
      const findKind = async (path: keyof typeof FIRST_OF_ASSISTANT): Promise<StoredSource[]> => {
        const due = {
          removedAt: { $not: { $gt: serverDate() } },
          ...ofRun.free,
          // The partial indexes hold dates, and MongoDB uses them only if the filter says so too.
          [path]: { $lte: before, $type: 'date' as const },
        };
        const oldest = sources.find(due, { projection }).sort({ [path]: 1 });
        const found = await oldest.limit(limit).toArray();
        if (found.length < limit) return found;
        // Those of other assistants may be behind these. One statement each, so that not all that is due is read.
        const others = await rounds[path](LOOKED_AT, (behind) =>
          sources
            .find({ ...due, assistantId: { ...behind, $nin: except } }, { projection })
            .sort({ assistantId: 1, [path]: 1 })
            .hint(FIRST_OF_ASSISTANT[path])
            .limit(1)
            .toArray(),
        );
        return [...found, ...others];
      };
      const found = (await Promise.all([findKind('removedAt'), findKind('nextAt'), findKind('lease.until')])).flat();
      const due = [...new Map(found.map((row) => [row._id, row])).values()].map(
        ({ _id: sourceId, assistantId, removedAt, lease, nextAt }) => {
          const since = removedAt ?? lease?.until ?? nextAt ?? serverDate();
          return { sourceId, assistantId, since, goesOn: lease !== undefined };
        },
      );
      const wanted = due.filter(({ assistantId }) => !except.includes(assistantId));
      return inTurns(wanted, turnOf).slice(0, limit);
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
      // The transaction renews the lease, and would be repeated if this write came before its own.
      if (isWriting(token)) return true;
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
        const set = { ...begun, ...times, error: null, site: null, reopened: 0 };
        return { set, result: { ...source, ...set } };
      }),

    seed: async (lease, found, site, signal) => {
      await writeInSteps(lease, await pagesOfRun.reads.listSteps(lease.sourceId, found), pagesOfRun.add, signal);
      // Written last: a worker that continues the run without it seeds the run once more.
      if (site) await writeAs(lease, async () => ({ set: { site }, result: undefined }));
    },

    endPage: async (lease, pageId, end, { signal, inLine = atOnce } = {}) => {
      const linked = await pagesOfRun.reads.listLinked({ pageId, end });
      const steps = await pagesOfRun.reads.listSteps(lease.sourceId, linked);
      // Links that are few are added in the transaction that ends the page. Many write no passages, so nobody waits for them.
      if (steps.length > 1) await writeInSteps(lease, steps, pagesOfRun.add, signal);
      return inLine(() => writeAs(lease, (session, source) => pagesOfRun.end(session, source, { pageId, end })));
    },

    countRead: async (sourceId) => {
      const source = await sources.findOne({ _id: sourceId }, { projection: { counts: 1 } });
      return source ? source.counts.read + source.counts.unchanged : 0;
    },

    closePages: async (lease, { signal, inLine = atOnce } = {}) => {
      for (let isLeft = true; isLeft; ) {
        signal?.throwIfAborted();
        let since = 0;
        // A turn for each step: a site has up to 125, and the large pages of others are stored between two of them.
        isLeft = await inLine(async () => {
          since = performance.now();
          return (await writeAs(lease, pagesOfRun.closeSome)) > 0;
        });
        if (isLeft) await restIfSlow(since);
      }
    },

    reopenPages: async (lease, ids, signal) => {
      const count = async (_session: ClientSession, { reopened = 0 }: StoredSource) => ({
        set: { reopened: reopened + 1 },
        result: reopened < REOPENED_MAX,
      });
      if (!(await writeAs(lease, count))) return false;
      // What the pages replaced when they were read again the last time. Otherwise it would grow with each time.
      await deleteInSteps(lease, ({ _id: sourceId, assistantId, run }) => ({
        assistantId,
        sourceId,
        since: run,
        until: run,
      }));
      await writeInSteps(lease, inChunks(ids, LARGE_AT_ONCE), pagesOfRun.reopen, signal);
      return true;
    },

    publish: (lease, error = null) =>
      writeAs(lease, async (_session, source) => {
        const set = { state: 'ready' as const, live: source.run, ...endOf(source), ...(error && { error }) };
        return { set: source.state === 'running' ? set : {}, result: undefined };
      }),

    fail: async (lease, error, againAfterMs) => {
      const { sourceId } = lease;
      const { run = 0, live = 0 } =
        (await sources.findOne({ _id: sourceId }, { projection: { run: 1, live: 1 } })) ?? {};
      // The passages that this run has read are removed, so the next run must read their pages again. No signal ends this:
      // the run would fetch pages again only to fail once more.
      const read = live === run ? [] : await pagesOfRun.reads.listRead({ sourceId, run });
      await writeInSteps(lease, inChunks(read, LARGE_AT_ONCE), async (session, source, ids) => {
        await pagesOfRun.forgetRead(session, source, ids);
        return {};
      });
      await writeAs(lease, async (_session, source) => {
        const set = { state: 'failed' as const, error, ...endOf(source, againAfterMs) };
        return { set: source.state === 'running' ? set : {}, result: undefined };
      });
    },

    settle: async (lease) => {
      const { sourceId } = lease;
      const texts = ({ assistantId }: StoredSource) => ({ assistantId, sourceId });
      await deleteInSteps(lease, (source) =>
        source.state === 'running' ? null : { ...texts(source), since: { $gt: source.live } },
      );
      await deleteInSteps(lease, ({ live }) => ({ sourceId, until: { $lte: live } }));
      const keepLeft = async (session: ClientSession, { live, state }: StoredSource) => {
        if (state === 'running') return { result: 0 };
        const options = { projection: { _id: 1 }, limit: ROWS_AT_ONCE, session };
        const left = await passages.find({ sourceId, until: { $gt: live } }, options).toArray();
        const ids = left.map(({ _id }) => _id);
        if (ids.length > 0) await passages.updateMany({ _id: { $in: ids } }, { $set: { until: null } }, { session });
        // No vectors were made for these passages while `until` was set.
        return { result: ids.length, ...(ids.length > 0 && { set: { 'vectors.made': null } }) };
      };
      while ((await writeAs(lease, keepLeft)) === ROWS_AT_ONCE);
      const source = await sources.findOne({ _id: sourceId });
      if (!source) throw new RunLost('the source is gone');
      // Chunks of unfinished uploads, and of replaced files whose removal a crash prevented.
      const old = { $lt: new Date(serverNow() - 2 * UPLOADED_WITHIN_MS) };
      if (source.file) await files.deleteMany({ sourceId, at: old, upload: { $ne: source.file.upload } });
      await writeAs(lease, async (session) => {
        const present = await countPassages(session, sourceId);
        const embedded = await countPassages(session, sourceId, { $type: 'string' });
        const counted = { 'counts.passages': present, 'counts.embedded': embedded };
        const options = { projection: { language: 1 }, session };
        const some = await passages.find({ sourceId, until: null }, options).limit(LANGUAGE_SAMPLE).toArray();
        return { set: { ...counted, language: mainLanguage(some), 'indexed.by': null }, result: undefined };
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
      // This also ends the lease of a run: its worker loses it.
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
          const all = { collection, filter: { sourceId }, maxItems: LARGE_AT_ONCE, rests: true };
          await inBatches(all, (some) => collection.deleteMany(some));
        }
        const own = { _id: sourceId, ...ofRun.heldBy(token) };
        // An upload that goes on may still store chunks. Once none can, they are removed.
        const { uploadUntil } = source;
        if (uploadUntil && uploadUntil.getTime() > serverNow())
          await sources.updateOne(own, { $set: { removedAt: new Date(uploadUntil.getTime() + UPLOADED_WITHIN_MS) } });
        else await sources.deleteOne(own);
      } finally {
        await closeSession(token);
      }
      return true;
    },
  };
};
