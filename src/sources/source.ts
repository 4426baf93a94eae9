import { mainLanguage } from '@parley/understanding/text';
import type { Connection } from 'mongoose';
import * as z from 'zod';
import type { SourceEdits } from '../assistants/drafts/draft-reads.ts';
import { KnowledgeInput } from '../assistants/knowledge/entry.ts';
import { DAY_MS } from '../platform/process/clock.ts';
import { schemaOf } from '../platform/mongo/mongo.ts';
import type { Lease } from '../platform/mongo/batches.ts';

export const SOURCES_QUEUE = 'sources';
/** A wake-up: this source has something to do. The worker reads from MongoDB what it is. */
export const SourceJob = z.object({ sourceId: z.uuid() });
export type SourceJob = z.infer<typeof SourceJob>;

// The limits of docs/limits.md. Each bounds what an assistant stores, or what a run reads.
export const SOURCES_MAX = 100;
export const PAGES_OF_SITE_MAX = 2_000;
export const PASSAGES_MAX = 50_000;
export const FILE_MAX_BYTES = 20_000_000;
/** Bytes of a fetched page, after decompression. */
export const FETCHED_MAX_BYTES = 10_000_000;
/**
 * How many proposed entries an assistant may have, accepted and dismissed ones included. Further ones are not stored.
 */
export const PROPOSALS_MAX = 2_000;

/** An uploaded file is stored in chunks, because a document of MongoDB has at most 16 MB. */
export const FILE_CHUNK_BYTES = 2_000_000;
/** An upload that takes longer is not used, and what it has stored is removed. */
export const UPLOADED_WITHIN_MS = 10 * 60_000;

export const SOURCE_KINDS = ['file', 'page', 'site'] as const;
export type SourceKind = (typeof SOURCE_KINDS)[number];

export const SCHEDULES = ['off', 'daily', 'weekly'] as const;
export type Schedule = (typeof SCHEDULES)[number];

export const SOURCE_STATES = ['waiting', 'running', 'ready', 'failed'] as const;
type SourceState = (typeof SOURCE_STATES)[number];

export const PAGE_STATES = ['found', 'read', 'unchanged', 'skipped', 'failed', 'gone'] as const;
export type PageState = (typeof PAGE_STATES)[number];

/** `changed`: it was accepted, and its page says something else now, which its entry does not follow by itself. */
const PROPOSAL_STATES = ['proposed', 'accepted', 'changed', 'dismissed'] as const;
export type ProposalState = (typeof PROPOSAL_STATES)[number];

const GLOBS_MAX = 20;
const SourceName = z.string().trim().min(1).max(200);
const PathGlob = z
  .string()
  .trim()
  .max(200)
  .regex(/^\/\S*$/, 'must begin with a slash and have no spaces')
  .meta({ description: 'A path. `*` stands for anything but `/`, and `**` for anything.' });
const Globs = z.array(PathGlob).max(GLOBS_MAX);
const ScheduleField = z.enum(SCHEDULES).meta({ description: 'How often the source is read again.' });

const HOST = /^[^\s/:?#@]{1,250}\.[^\s/:?#@.]{2,60}\.?(?::\d{1,5})?(?=[/?#]|$)/;
/** People type `example.com/help`, as into a browser. */
const completed = (address: string): string => (HOST.test(address) ? `https://${address}` : address);

/** A website or one page of it, as an owner adds it. */
export const UrlSourceInput = z.object({
  kind: z.enum(SOURCE_KINDS).exclude(['file']),
  url: z
    .string()
    .trim()
    .min(1)
    .overwrite(completed)
    .meta({ description: 'An address without a scheme gets https://.', example: 'https://example.com/help' }),
  name: SourceName.optional().meta({ description: 'Without it: the host and the path.' }),
  include: Globs.default([]).meta({ description: 'Only pages of these paths. Empty: all below the URL.' }),
  exclude: Globs.default([]).meta({ description: 'No pages of these paths.' }),
  schedule: ScheduleField.default('off'),
});
export type UrlSourceInput = z.input<typeof UrlSourceInput>;

export const FileSourceInput = z.object({ name: SourceName });

export const SourceChange = z
  .object({ name: SourceName, include: Globs, exclude: Globs, schedule: ScheduleField })
  .partial();
export type SourceChange = z.infer<typeof SourceChange>;

/** What went wrong, for the owner. The message says what to do. */
export type SourceError = { code: string; message: string };

/** The pages of the last run by their state, and the passages of the source. */
type SourceCounts = {
  /** Pages that are still to fetch. Afterwards each counts in one of the states below. */
  found: number;
  read: number;
  unchanged: number;
  skipped: number;
  failed: number;
  gone: number;
  passages: number;
  /** Passages that have a vector. */
  embedded: number;
};
export const NO_COUNTS: SourceCounts = {
  found: 0,
  read: 0,
  unchanged: 0,
  skipped: 0,
  failed: 0,
  gone: 0,
  passages: 0,
  embedded: 0,
};

/** Pages that a run added, changed and removed, compared with the run before. */
type SourceChanges = { added: number; changed: number; removed: number };
export const NO_CHANGES: SourceChanges = { added: 0, changed: 0, removed: 0 };

export type Source = {
  sourceId: string;
  assistantId: string;
  kind: SourceKind;
  name: string;
  /** Null for a file. */
  url: string | null;
  /** Globs of paths. An empty `include` means every path below the path of the URL. */
  include: string[];
  exclude: string[];
  schedule: Schedule;
  state: SourceState;
  error: SourceError | null;
  /** The last run that started. 0: none. */
  run: number;
  /** The run whose passages answers use. 0: none. */
  live: number;
  counts: SourceCounts;
  changed: SourceChanges;
  startedAt: Date | null;
  endedAt: Date | null;
  /**
   * When a run is due: by the schedule, or at once. A run sets null when it begins, so that a request during the run is
   * kept. When the run ends, null becomes the time of the schedule (`dueAfter`).
   */
  nextAt: Date | null;
  createdAt: Date;
};

/** What a run found out about its site, so that a worker that continues the run need not ask again. */
export type SiteOfRun = {
  run: number;
  /** Where the URL led. */
  origin: string;
  path: string;
  /** Where the URL itself is, if it leads elsewhere: links to there lead to the site too. */
  typed?: { origin: string; path: string } | null;
  /** Whether links are followed. False if sitemaps list the pages, and were read to their end. */
  follow: boolean;
};

/** The file of a source: its own name, and the id of the upload that its chunks belong to. */
type FileOfSource = { name: string; upload: string };

/**
 * `session`: the session in which the worker writes, so that the next worker can end the transaction of a killed one.
 */
export type SourceLease = Lease & { session?: string };

export type StoredSource = Omit<Source, 'sourceId'> & {
  _id: string;
  /** Only for a file. Another upload replaces it with one write. */
  file?: FileOfSource;
  /** The lease of a run. It is kept until what the run has left behind is removed too. */
  lease?: SourceLease;
  site?: SiteOfRun | null;
  /** How often this run has made pages open again. */
  reopened?: number;
  /** `made`: the kind of vectors that all its passages have. Null: some passages lack vectors. */
  vectors?: { made: string | null; model?: string; lease?: SourceLease };
  /** The main language of its passages, or `mul`. Known once a run has ended. */
  language?: string | null;
  /**
   * `by`: the passage engine that made the stored index of all passages, at `at`. Null: it must be made again. `of`: the
   * token of the pieces that are the index, also while the next one is made.
   */
  indexed?: { by: string | null; of?: string; at?: Date; lease?: SourceLease };
  /**
   * If set, the source is hidden, and from this time on the worker removes it with all that belongs to it. The time is
   * in the future while the file of a source is uploaded, so that an upload that never ends leaves nothing.
   */
  removedAt: Date | null;
  /** Until when another version of the file may still be arriving. */
  uploadUntil?: Date | null;
  /**
   * With drafts: the versions that answer from it, those with `since ≤ version < until`. Empty: none yet, because only
   * the draft has it. Absent: all.
   */
  versions?: { since: number; until: number | null }[];
  /** The version that has removed it. It is kept, hidden and not read again, as long as it may come back. */
  retired?: number | null;
};

type Published = Pick<StoredSource, 'removedAt'> & Partial<Pick<StoredSource, 'versions' | 'retired'>>;

/** The sources that count: those that are live, and those of the draft. */
export const PRESENT = { removedAt: null, retired: null } as const;

/** True if what is live answers from the source. */
export const isPublished = ({ removedAt, versions, retired }: Published): boolean =>
  removedAt === null && (retired ?? null) === null && versions?.length !== 0;

/** How many passages these sources have, and their main language. */
export const passagesOf = (
  sources: Pick<StoredSource, 'language' | 'counts'>[],
): { count: number; language: string | null } => {
  const texts = sources.map(({ language = null, counts }) => ({ language, count: counts.passages }));
  return { count: texts.reduce((sum, { count }) => sum + count, 0), language: mainLanguage(texts) };
};

/** True if this version answers from the source; with `null`, what is live without drafts. */
export const isInVersion = (source: Published, version: number | null): boolean =>
  version === null
    ? isPublished(source)
    : source.removedAt === null &&
      (source.versions?.some(({ since, until }) => since <= version && (until === null || version < until)) ?? true);

/** True if the draft with these changes would answer from the source. */
export const isInDraft = (source: Published & Pick<StoredSource, '_id'>, edits: SourceEdits): boolean => {
  const kind = edits[source._id]?.kind;
  return kind === undefined ? isPublished(source) : kind === 'added' && source.removedAt === null;
};

/** The pages that a run has found, whatever became of them. */
export const pagesIn = ({ found, read, unchanged, skipped, failed, gone }: SourceCounts): number =>
  found + read + unchanged + skipped + failed + gone;

export const toSource = ({
  _id,
  lease: _lease,
  site: _site,
  reopened: _reopened,
  vectors: _vectors,
  indexed: _indexed,
  language: _language,
  file: _file,
  removedAt: _removedAt,
  uploadUntil: _uploadUntil,
  versions: _versions,
  retired: _retired,
  ...stored
}: StoredSource): Source => ({
  sourceId: _id,
  ...stored,
  counts: { ...stored.counts, found: pagesIn(stored.counts) },
});

const PERIODS_MS: Record<Schedule, number | null> = { off: null, daily: DAY_MS, weekly: 7 * DAY_MS };

/** When a source that was read at this time is due again. Null: never. */
export const dueAfter = (schedule: Schedule, readAt: Date): Date | null => {
  const every = PERIODS_MS[schedule];
  return every === null ? null : new Date(readAt.getTime() + every);
};

/** A chunk of an uploaded file. Its `_id` is `sourceId:upload:n`. `at`: when the upload began. */
export type StoredFileChunk = { _id: string; sourceId: string; upload: string; n: number; at: Date; bytes: Buffer };

/** One document of a source: a URL, or the file. Pages of a run with the state `found` are still to fetch. */
export type StoredSourcePage = {
  /** A hash of source and URL. */
  _id: string;
  sourceId: string;
  assistantId: string;
  /** For a file: its name. */
  url: string;
  state: PageState;
  /** The last run that found it. */
  run: number;
  depth: number;
  etag: string | null;
  lastModified: string | null;
  /** The reader's version and a hash of the content. */
  hash: string | null;
  title: string | null;
  error: SourceError | null;
  /** What the owner should know of a page that was read. Kept while it is unchanged. */
  note?: SourceError | null;
  /** Runs in a row that did not find it. */
  missed: number;
  /** How often this run has begun to fetch it, so that a page that crashes its worker is given up. */
  tries: number;
  /** The pages that it links to. Stored, because an unchanged page is not read again. */
  links: string[];
  /** Hashes of texts of this page that are stored with another page of the source, which has them too. */
  repeated: string[];
};

export type StoredPassage = {
  /** A hash of source, page, text and path, so that the same write twice changes nothing. */
  _id: string;
  assistantId: string;
  sourceId: string;
  pageId: string;
  /** A hash of the text. */
  hash: string;
  order: number;
  /** Headings, from the outermost. */
  path: string[];
  text: string;
  title: string;
  url: string | null;
  anchor: string | null;
  language: string | null;
  /** Visible if `since ≤ live < until` of its source. */
  since: number;
  until: number | null;
  /** The model of the vector. */
  model: string | null;
  /** 384 bytes, int8. */
  vector: Buffer | null;
  /** Names the model of the vector and the kind of the tokens' vectors. Both are made together. */
  made?: string | null;
};

/** The vectors of a passage's tokens: int8, 96 a token. Its `_id` is the id of the passage. */
export type StoredPassageTokens = { _id: string; assistantId: string; sourceId: string; kind: string; tokens: Buffer };

/**
 * A piece of a part of a source's index: its words and vectors as `@parley/understanding` stores them. A cache: whatever
 * is missing in it is read from the passages. Its `_id` is `sourceId:of:part:piece`.
 */
export type StoredIndexPiece = {
  _id: string;
  assistantId: string;
  sourceId: string;
  /**
   * The token of the lease under which the piece was made. Only pieces with the same token form an index, and only those
   * with the token in `indexed.of` of the source are read.
   */
  of: string;
  part: number;
  piece: number;
  /** Bytes of the whole part. */
  size: number;
  /** The engine, and the language that passages without a language count as. */
  kind: string;
  /** The model of the vectors. */
  model: string | null;
  bytes: Buffer;
};

/** What can be proposed: the question and the answer of a knowledge entry, and nothing else. */
export const Proposal = KnowledgeInput.pick({ question: true, answer: true });

/** A question and its answer that a page contains. It answers only after an owner accepted it as an entry. */
export type ProposedEntry = {
  proposalId: string;
  assistantId: string;
  sourceId: string;
  url: string | null;
  question: string;
  /** What the page says now. */
  answer: string;
  state: ProposalState;
  /** The entry that was made of it. */
  entryId?: string;
};
export type StoredProposedEntry = Omit<ProposedEntry, 'proposalId'> & {
  /** A hash of assistant and question, so that a dismissed question does not come back. */
  _id: string;
  /** The title of the page. */
  title?: string;
  /** The answer that the entry got from the page last. Null: an owner decided to keep another one. */
  given?: string | null;
};

const sourceSchema = schemaOf<StoredSource>('sources');
/**
 * The indexes by which the first due source of each assistant is found: those that were removed, those whose next run is
 * due, and those whose run goes on.
 */
export const FIRST_OF_ASSISTANT = {
  removedAt: { assistantId: 1, removedAt: 1, createdAt: 1 },
  nextAt: { assistantId: 1, nextAt: 1 },
  'lease.until': { assistantId: 1, 'lease.until': 1 },
} as const;
const withDate = (path: keyof typeof FIRST_OF_ASSISTANT) => ({
  partialFilterExpression: { [path]: { $type: 'date' } },
});
sourceSchema.index(FIRST_OF_ASSISTANT.removedAt);
sourceSchema.index(FIRST_OF_ASSISTANT.nextAt, withDate('nextAt'));
sourceSchema.index(FIRST_OF_ASSISTANT['lease.until'], withDate('lease.until'));
// What the worker's sweep looks for: due, running without a lease, removed.
sourceSchema.index({ nextAt: 1 }, withDate('nextAt'));
sourceSchema.index({ 'lease.until': 1 }, { sparse: true });
// Sources without vectors by a model, those with the fewest passages first.
sourceSchema.index({ 'vectors.made': 1, 'counts.passages': 1 });
// Sources without an index by an engine.
sourceSchema.index({ 'indexed.by': 1, state: 1, 'counts.passages': 1 });
sourceSchema.index({ removedAt: 1 }, withDate('removedAt'));

const fileSchema = schemaOf<StoredFileChunk>('sourceFiles');
fileSchema.index({ sourceId: 1, upload: 1, n: 1 });

const pageSchema = schemaOf<StoredSourcePage>('sourcePages');
/**
 * A page has up to 400 KB of links and hashes. So what is asked of many pages is in these indexes, and is read without the
 * pages themselves: which of them a run has found, what owners see in lists, and the pages of a run, the nearest first.
 */
export const PAGES_BY = {
  id: { _id: 1, sourceId: 1, run: 1, url: 1 },
  state: { sourceId: 1, state: 1, url: 1, title: 1, error: 1, note: 1, run: 1, _id: 1 },
  run: { sourceId: 1, run: 1, state: 1, depth: 1, _id: 1 },
} as const;
for (const index of Object.values(PAGES_BY)) pageSchema.index(index);

/** For the visible passages of a source that lack vectors. */
export const PASSAGES_BY_MADE = { sourceId: 1, until: 1, made: 1 } as const;

const passageSchema = schemaOf<StoredPassage>('passages');
// A covering index, so that listing the visible passages does not read the documents.
passageSchema.index({ assistantId: 1, sourceId: 1, since: 1, until: 1, model: 1, _id: 1 });
passageSchema.index({ sourceId: 1, pageId: 1 });
passageSchema.index({ sourceId: 1, hash: 1 });
// With `until` first: passages that are hidden stay without vectors, and there may be many of them.
passageSchema.index(PASSAGES_BY_MADE);

const tokensSchema = schemaOf<StoredPassageTokens>('passageTokens');
tokensSchema.index({ sourceId: 1 });

const indexSchema = schemaOf<StoredIndexPiece>('passageIndexes');
indexSchema.index({ sourceId: 1 });

const proposalSchema = schemaOf<StoredProposedEntry>('proposedEntries');
// In the order in which owners read them: the proposals of a page together.
proposalSchema.index({ assistantId: 1, state: 1, url: 1, _id: 1 });
proposalSchema.index({ sourceId: 1 });

/** The collections of sources. Only `src/sources` opens them. */
export const sourceModels = (connection: Connection) => ({
  sources: connection.model<StoredSource>('Source', sourceSchema),
  sourceFiles: connection.model<StoredFileChunk>('SourceFile', fileSchema),
  sourcePages: connection.model<StoredSourcePage>('SourcePage', pageSchema),
  passages: connection.model<StoredPassage>('Passage', passageSchema),
  passageTokens: connection.model<StoredPassageTokens>('PassageTokens', tokensSchema),
  passageIndexes: connection.model<StoredIndexPiece>('PassageIndex', indexSchema),
  proposedEntries: connection.model<StoredProposedEntry>('ProposedEntry', proposalSchema),
});

/** Rows of a list whose query asked for one more than `limit`. `next`: the id after which the next page begins. */
export const pageOf = <Row extends { _id: string }>(
  rows: Row[],
  limit: number,
): { rows: Row[]; next: string | null } => ({
  rows: rows.slice(0, limit),
  next: rows.length > limit ? (rows[limit - 1]?._id ?? null) : null,
});
