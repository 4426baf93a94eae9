import type { ClientSession, Connection } from 'mongoose';
import type { DraftedSourceKind } from '../assistants/drafts/draft-reads.ts';
import type { EditOptions } from '../assistants/drafts/drafts.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { inPages, insertAtMost } from '../platform/mongo/batches.ts';
import { collectionOf, DURABLE, type Indexed, inTurn } from '../platform/mongo/mongo.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { conflict, invalid, notFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { validate } from '../platform/process/validation.ts';
import { checkEndpointUrl, type GuardOptions, requirePublicUrl } from '../platform/http/address-guard.ts';
import { createRestedWork } from '../platform/http/request-slots.ts';
import { createProposals, type ProposalAssistants, type Proposals } from './proposals.ts';
import {
  dueAfter,
  FILE_CHUNK_BYTES,
  FileSourceInput,
  isPublished,
  NO_CHANGES,
  NO_COUNTS,
  pageOf,
  PAGE_STATES,
  PAGES_BY,
  type PageState,
  PRESENT,
  type Source,
  SourceChange,
  type SourceKind,
  sourceModels,
  SOURCES_MAX,
  type StoredFileChunk,
  type StoredSource,
  type StoredSourcePage,
  toSource,
  UPLOADED_WITHIN_MS,
  UrlSourceInput,
} from './source.ts';

/**
 * How many sources an assistant may have, including those that the worker has yet to remove, so that files do not fill
 * the disk.
 */
const STORED_MAX = 2 * SOURCES_MAX;
const AFTER = { returnDocument: 'after', updatePipeline: true } as const;

/** The files that the reader understands, by the ending of the name. */
export const FILE_ENDINGS = ['md', 'markdown', 'html', 'htm', 'txt', 'pdf', 'docx'] as const;
const isReadable = (name: string): boolean => FILE_ENDINGS.some((ending) => name.toLowerCase().endsWith(`.${ending}`));

const tooSlow = () => invalid('file', 'too_slow', 'did not arrive in time');

/** The name of a file that the reader understands. */
const readableName = (given: string): string => {
  const { name } = validate(FileSourceInput, { name: given });
  if (isReadable(name)) return name;
  const endings = FILE_ENDINGS.map((ending) => `.${ending}`).join(', ');
  throw invalid('name', 'unsupported', `must end with one of ${endings}`);
};

/** A page as owners see it. */
export type SourcePage = Pick<StoredSourcePage, 'url' | 'state' | 'title' | 'error'> & { pageId: string };

/** The fields of a page that owners see. `PAGES_BY.state` has them all, because a page may have thousands of links. */
const SHOWN = { url: 1, state: 1, title: 1, error: 1, note: 1 } as const;

type PageFilter = { assistantId: string; sourceId: string; state?: PageState; after?: string; limit: number };
const toPage = ({
  _id,
  error,
  note = null,
  ...page
}: Pick<StoredSourcePage, keyof typeof SHOWN | '_id'>): SourcePage => ({
  pageId: _id,
  ...page,
  error: error ?? note,
});

/** Refuses settings that a source of this kind does not have. */
const requireFits = (kind: SourceKind, { include, exclude, schedule }: SourceChange): void => {
  for (const [field, globs] of Object.entries({ include, exclude })) {
    if (kind !== 'site' && globs && globs.length > 0) throw invalid(field, 'not_for_kind', 'is only for a website');
  }
  if (kind === 'file' && schedule && schedule !== 'off')
    throw invalid('schedule', 'not_for_kind', 'must be off: a file that has changed is replaced');
};

/** The name of a source without one: host and path. */
const nameOf = (url: URL): string =>
  `${url.host}${url.pathname === '/' ? '' : url.pathname.replace(/\/$/, '')}`.slice(0, 200);

type Dependencies = {
  connection: Connection;
  assistants: ProposalAssistants & Pick<AssistantStore, 'raisePassages'>;
  guard: GuardOptions;
  /** Tells the worker that a source has something to do. Never throws. */
  wake: (sourceId: string) => void;
};

/**
 * The sources of assistants, as owners handle them. With the setting `drafts`, adding and removing one changes the
 * draft. The worker does everything that takes time: reading, and removing what a removed source has left.
 */
export type SourceStore = Proposals & {
  models: Indexed[];

  add: (assistantId: string, input: UrlSourceInput, options?: EditOptions) => Promise<Source>;

  /** Stores a file as its bytes arrive. If `bytes` throws, the file is not added. */
  addFile: (
    assistantId: string,
    name: string,
    bytes: AsyncIterable<Uint8Array>,
    options?: EditOptions,
  ) => Promise<Source>;

  /**
   * Stores new content for a file. The content is read at once. Until then, answers use the previous content. If
   * `bytes` throws, nothing changes.
   */
  replaceFile: (
    assistantId: string,
    sourceId: string,
    name: string,
    bytes: AsyncIterable<Uint8Array>,
  ) => Promise<Source>;

  /** Oldest first. */
  list: (assistantId: string) => Promise<Source[]>;

  get: (assistantId: string, sourceId: string) => Promise<Source>;
  /** A source of any assistant, with the time until which a worker has it. Null if there is none. */
  findAny: (sourceId: string) => Promise<{ source: Source; leasedUntil: Date | null } | null>;
  change: (assistantId: string, sourceId: string, change: SourceChange) => Promise<Source>;

  /** Reads the source again now. A source that is being read is not changed. */
  refresh: (assistantId: string, sourceId: string) => Promise<Source>;

  /**
   * Hides the source at once from owners and answers. With drafts, one that is live answers until the draft is
   * published.
   */
  remove: (assistantId: string, sourceId: string, options?: EditOptions) => Promise<Source>;

  /** The draft no longer removes the source. */
  keep: (assistantId: string, sourceId: string, options?: EditOptions) => Promise<Source>;

  /** The pages of a source, by URL. */
  listPages: (filter: PageFilter) => Promise<{ pages: SourcePage[]; next: string | null }>;
};

export const createSourceStore = ({ connection, assistants, guard, wake }: Dependencies): SourceStore => {
  const models = sourceModels(connection);
  const { sources, sourceFiles, sourcePages, proposedEntries } = models;
  const [stored, files] = [collectionOf(sources), collectionOf(sourceFiles)];
  const pageGuard = { ...guard, allowHttp: true };

  const one = (assistantId: string, sourceId: string) => ({ _id: sourceId, assistantId, ...PRESENT });

  /** Inserts a source that nobody sees yet. It already counts, so that adding many at once cannot exceed the limit. */
  const insertHidden = async (
    assistantId: string,
    given: Pick<StoredSource, 'kind' | 'name' | 'url' | 'include' | 'exclude' | 'schedule' | 'file'>,
  ): Promise<string> => {
    const now = serverDate();
    const source: StoredSource = {
      _id: newId(),
      assistantId,
      ...given,
      state: 'waiting',
      error: null,
      run: 0,
      live: 0,
      counts: NO_COUNTS,
      changed: NO_CHANGES,
      startedAt: null,
      endedAt: null,
      nextAt: now,
      removedAt: new Date(now.getTime() + UPLOADED_WITHIN_MS),
      createdAt: now,
    };
    const field = given.kind === 'file' ? 'name' : 'url';
    if ((await stored.countDocuments({ assistantId }, { limit: STORED_MAX })) >= STORED_MAX)
      throw invalid(field, 'too_many', 'must wait until removed sources have left. Try again soon');
    const tooMany = () => invalid(field, 'too_many', `an assistant has at most ${SOURCES_MAX} sources: remove one`);
    const filter = { assistantId, retired: null, $or: [{ removedAt: null }, { removedAt: { $gt: now } }] };
    await insertAtMost({ collection: stored, filter, max: SOURCES_MAX, tooMany }, source);
    return source._id;
  };

  /** Shows a source to owners, and to answers of what is live, or of the draft. */
  const show = async (assistantId: string, sourceId: string, options: EditOptions = {}): Promise<Source> => {
    const write = async (set: Partial<StoredSource>, session?: ClientSession): Promise<Source> => {
      const inTime = { _id: sourceId, removedAt: { $gt: serverDate() } };
      const more = { returnDocument: 'after' as const, ...(session && { session }) };
      const shown = await sources.findOneAndUpdate(inTime, { removedAt: null, ...set }, more).lean();
      if (!shown) throw tooSlow();
      return toSource(shown);
    };
    const { drafts } = await assistants.getAssistant(assistantId);
    const drafted = async (session: ClientSession) => {
      const { name } = await write({ versions: [] }, session);
      return { kind: 'added' as const, name };
    };
    if (drafts) await assistants.drafts.changeSource(assistantId, sourceId, drafted, options);
    const source = drafts ? await get(assistantId, sourceId) : await write({});
    wake(sourceId);
    return source;
  };

  const rested = createRestedWork();

  /** Stores the bytes in chunks. Each goes into the journal of MongoDB, so those of an assistant take turns. */
  const storeBytes = async (
    assistantId: string,
    { sourceId, upload, at }: Pick<StoredFileChunk, 'sourceId' | 'upload' | 'at'>,
    bytes: AsyncIterable<Uint8Array>,
  ): Promise<void> => {
    let [size, n, waiting] = [0, 0, 0];
    let pieces: Uint8Array[] = [];
    const flush = async (): Promise<void> => {
      if (serverNow() > at.getTime() + UPLOADED_WITHIN_MS) throw tooSlow();
      const chunk = { _id: `${sourceId}:${upload}:${n}`, sourceId, upload, n, at, bytes: Buffer.concat(pieces) };
      [pieces, waiting, n] = [[], 0, n + 1];
      await rested(assistantId, () => files.insertOne(chunk, { writeConcern: DURABLE }));
    };
    for await (const piece of bytes) {
      size += piece.length;
      waiting += piece.length;
      pieces.push(piece);
      if (waiting >= FILE_CHUNK_BYTES) await flush();
    }
    if (waiting > 0) await flush();
    if (size === 0) throw invalid('file', 'empty', 'is empty');
  };

  /** Removes a file that did not arrive whole. The worker removes what is still being written. */
  const withdraw = async (sourceId: string): Promise<void> => {
    await sources.updateOne({ _id: sourceId }, { removedAt: serverDate() });
    await files.deleteMany({ sourceId });
    wake(sourceId);
  };

  const get = async (assistantId: string, sourceId: string): Promise<Source> => {
    const found = await sources.findOne(one(assistantId, sourceId)).lean();
    if (!found) throw notFound();
    return toSource(found);
  };

  const update = async (assistantId: string, sourceId: string, set: Record<string, unknown>): Promise<Source> => {
    let changed = null as StoredSource | null;
    // A run that stores a large page may have the source for seconds.
    await inTurn(connection, async (session) => {
      changed = await sources
        .findOneAndUpdate(one(assistantId, sourceId), [{ $set: set }], { ...AFTER, session })
        .lean();
    });
    if (!changed) throw notFound();
    return toSource(changed);
  };

  const unlessRunning = (field: string, value: unknown) => ({
    $cond: [{ $eq: ['$state', 'running'] }, `$${field}`, value],
  });

  const soon = { state: unlessRunning('state', 'waiting'), error: unlessRunning('error', null) };

  /** Removes a source in the draft. True if no version has it, so that it is removed at once. */
  const removeInDraft = async (
    { assistantId, sourceId }: Pick<Source, 'assistantId' | 'sourceId'>,
    options: EditOptions,
  ): Promise<boolean> => {
    let isLeft = false;
    const write = async (session: ClientSession) => {
      const found = await stored.findOne(one(assistantId, sourceId), { session });
      if (!found) throw notFound();
      isLeft = !isPublished(found);
      if (!isLeft) return { kind: 'removed' as const, name: found.name };
      await stored.updateOne({ _id: sourceId }, { $set: { removedAt: serverDate() } }, { session });
      return null;
    };
    await assistants.drafts.changeSource(assistantId, sourceId, write, options);
    return isLeft;
  };

  return {
    ...createProposals({ connection, assistants }),
    models: Object.values(models) as Indexed[],

    add: async (assistantId, input, options) => {
      const { url: text, name, ...given } = validate(UrlSourceInput, input);
      await requirePublicUrl(text, pageGuard, 'url');
      const checked = checkEndpointUrl(text, pageGuard);
      if (!checked.ok) throw new Error('a URL was accepted and refused');
      requireFits(given.kind, given);
      checked.url.hash = '';
      const url = checked.url.href;
      const sourceId = await insertHidden(assistantId, { ...given, url, name: name ?? nameOf(checked.url) });
      return show(assistantId, sourceId, options);
    },

    addFile: async (assistantId, fileName, bytes, options) => {
      const name = readableName(fileName);
      const file = { name, upload: newId() };
      const paths = { url: null, include: [], exclude: [], schedule: 'off' as const };
      const sourceId = await insertHidden(assistantId, { ...paths, kind: 'file', name, file });
      try {
        await storeBytes(assistantId, { sourceId, upload: file.upload, at: serverDate() }, bytes);
        return await show(assistantId, sourceId, options);
      } catch (cause) {
        await withdraw(sourceId).catch(() => undefined);
        throw cause;
      }
    },

    replaceFile: async (assistantId, sourceId, fileName, bytes) => {
      const name = readableName(fileName);
      const { kind } = await get(assistantId, sourceId);
      if (kind !== 'file') throw invalid('file', 'not_for_kind', 'is only for a source that is a file');
      const [upload, at] = [newId(), serverDate()];
      const until = new Date(at.getTime() + UPLOADED_WITHIN_MS);
      // If this process dies, the run that is due at `until` removes the stored chunks and finds the file unchanged.
      const nextAt = { $ifNull: ['$nextAt', { $literal: until }] };
      await update(assistantId, sourceId, { nextAt, uploadUntil: { $literal: until } });
      try {
        await storeBytes(assistantId, { sourceId, upload, at }, bytes);
        if (serverNow() > until.getTime()) throw tooSlow();
        // A source that nobody has renamed has the name of its file.
        const isNamed = { $eq: ['$name', { $ifNull: ['$file.name', '$name'] }] };
        const named = { $cond: [isNamed, { $literal: name }, '$name'] };
        const set = { ...soon, name: named, file: { $literal: { name, upload } }, nextAt: '$$NOW', uploadUntil: null };
        const options = { ...AFTER, returnDocument: 'before' } as const;
        const before = await sources.findOneAndUpdate(one(assistantId, sourceId), [{ $set: set }], options).lean();
        if (!before) throw notFound();
        await files.deleteMany({ sourceId, upload: before.file?.upload ?? null } as object);
      } catch (cause) {
        await files.deleteMany({ sourceId, upload }).catch(() => undefined);
        throw cause;
      }
      wake(sourceId);
      return get(assistantId, sourceId);
    },

    list: async (assistantId) => {
      const listed: Source[] = [];
      const rows = stored.find({ assistantId, ...PRESENT }).sort({ createdAt: 1 });
      for await (const page of inPages(rows)) listed.push(...page.map(toSource));
      return listed;
    },

    get,
    findAny: async (sourceId) => {
      const found = await sources.findOne({ _id: sourceId, ...PRESENT }).lean();
      return found && { source: toSource(found), leasedUntil: found.lease?.until ?? null };
    },

    change: async (assistantId, sourceId, change) => {
      const { name, include, exclude, schedule } = validate(SourceChange, change);
      const before = await get(assistantId, sourceId);
      requireFits(before.kind, { include, exclude, schedule });
      const isOther = (globs: string[] | undefined, had: string[]) =>
        globs !== undefined && globs.join(' ') !== had.join(' ');
      const again = isOther(include, before.include) || isOther(exclude, before.exclude);
      // Values of an update pipeline are expressions, so texts are literals.
      const given = Object.entries({ name, include, exclude, schedule }).filter(([, value]) => value !== undefined);
      const due = schedule && dueAfter(schedule, before.endedAt ?? serverDate());
      const isDue = { $in: ['$state', ['running', 'waiting']] };
      const changed = await update(assistantId, sourceId, {
        ...Object.fromEntries(given.map(([field, value]) => [field, { $literal: value }])),
        ...(schedule && { nextAt: { $cond: [isDue, '$nextAt', { $literal: due }] } }),
        ...(again && { ...soon, nextAt: '$$NOW' }),
      });
      if (again) wake(sourceId);
      return changed;
    },

    refresh: async (assistantId, sourceId) => {
      const changed = await update(assistantId, sourceId, { ...soon, nextAt: unlessRunning('nextAt', '$$NOW') });
      wake(sourceId);
      return changed;
    },

    remove: async (assistantId, sourceId, options = {}) => {
      const source = await get(assistantId, sourceId);
      if ((await assistants.getAssistant(assistantId)).drafts) {
        const isLeft = await removeInDraft(source, options);
        if (!isLeft) return source;
      } else await update(assistantId, sourceId, { removedAt: '$$NOW' });
      await assistants.raisePassages(assistantId);
      await proposedEntries.deleteMany({ sourceId, state: 'proposed' });
      wake(sourceId);
      return source;
    },

    keep: async (assistantId, sourceId, options = {}) => {
      const source = await get(assistantId, sourceId);
      const write = async (_session: ClientSession, before: DraftedSourceKind | null) => {
        if (before === null) throw conflict('The draft does not remove this source.');
        return before === 'added' ? { kind: before, name: source.name } : null;
      };
      await assistants.drafts.changeSource(assistantId, sourceId, write, options);
      return source;
    },

    listPages: async ({ assistantId, sourceId, state, after, limit }) => {
      await get(assistantId, sourceId);
      const find = (_id: string) => sourcePages.findOne({ _id, sourceId }, { _id: 0, url: 1 }).hint(PAGES_BY.id).lean();
      const last = after === undefined ? null : await find(after);
      if (after !== undefined && !last) throw invalid('cursor', 'invalid', 'is not a cursor of this list');
      // With each state by name, MongoDB merges their parts of the index in the order of the addresses.
      const states = state ?? { $in: [...PAGE_STATES] };
      const found = await sourcePages
        .find({ sourceId, state: states, ...(last && { url: { $gt: last.url } }) }, SHOWN)
        .sort({ url: 1 })
        .hint(PAGES_BY.state)
        .limit(limit + 1)
        .lean();
      const { rows, next } = pageOf(found, limit);
      return { pages: rows.map((row) => toPage(row)), next };
    },
  };
};
