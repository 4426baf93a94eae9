import { passageEngine } from '@parley/understanding';
import type { Connection, mongo } from 'mongoose';
import type { SourceEdits } from '../assistants/drafts/draft-reads.ts';
import { collectionOf, createReader, type Indexed } from '../platform/mongo/mongo.ts';
import {
  isInDraft,
  isInVersion,
  isPublished,
  sourceModels,
  type StoredIndexPiece,
  type StoredPassage,
  type StoredPassageTokens,
  type StoredSource,
} from './source.ts';

/** How many ids come in one answer of MongoDB, and how many passages with their vectors. */
const LISTED_AT_ONCE = 2_000;
const READ_AT_ONCE = 250;

/** The maximum number of bytes in a piece of a stored index, and how many pieces come in one answer. */
export const INDEX_PIECE_BYTES = 2_000_000;
const PIECES_AT_ONCE = 2;

/** `model`: the model of the passage's vector. Null if it has no vector yet. */
type ListedPassage = { passageId: string; model: string | null };

/** A passage as replies use it. */
export type ReadPassage = Pick<
  StoredPassage,
  'sourceId' | 'path' | 'text' | 'title' | 'url' | 'anchor' | 'language'
> & { passageId: string };

type EmbeddedPassage = ReadPassage & { model: string | null; vector: Int8Array | null };

/** The passages that an assistant answers from, those that its draft would, or those of one source. */
export type PassageScope = { assistantId: string; sourceId?: string; draft?: SourceEdits };

/** What answers: the live version (undefined without drafts), or the draft with these changes. */
type AnsweredBy = { version?: number | undefined; draft?: SourceEdits | undefined };

type StoredIndexPart = { model: string | null; bytes: Uint8Array<ArrayBuffer> };

/** Reads the passages that replies are taken from. */
export type PassageStore = {
  models: Indexed[];

  /**
   * Lists the visible passages of the scope, source by source. Each source is listed in one of its versions.
   */
  listVisible: (scope: PassageScope) => AsyncGenerator<ListedPassage[]>;

  /**
   * Reads the stored parts of indexes that are of this kind. They may lack passages, or have some that are gone. An index
   * of another kind by this engine is made again: since then the assistant has another first language.
   */
  readStored: (scope: PassageScope, kind: string) => AsyncGenerator<StoredIndexPart>;

  /** Reads passages with their vectors, in batches. Passages that are gone are left out. */
  readEmbedded: (passageIds: string[]) => AsyncGenerator<EmbeddedPassage[]>;

  /**
   * Reads passages for a reply. Passages of a source that is removed, or that the answering version or draft does not
   * have, are left out. `gone`: how many no longer exist, for example because a newer version has replaced them.
   */
  readPassages: (passageIds: string[], by: AnsweredBy) => Promise<{ passages: ReadPassage[]; gone: number }>;

  /** True if none of these sources waits to be read or is being read. Then the version of the passages has risen. */
  areRead: (sourceIds: string[]) => Promise<boolean>;

  /** Reads the token vectors of this kind, by passage. */
  readTokens: (passageIds: string[], kind: string) => Promise<Map<string, Int8Array>>;
};

const FIELDS = { sourceId: 1, path: 1, text: 1, title: 1, url: 1, anchor: 1, language: 1 } as const;

const SOURCE_FIELDS = { assistantId: 1, removedAt: 1, versions: 1, retired: 1, live: 1, 'indexed.of': 1 } as const;

const toPassage = ({ _id, sourceId, path, text, title, url, anchor, language }: StoredPassage): ReadPassage => ({
  passageId: _id,
  sourceId,
  path,
  text,
  title,
  url,
  anchor,
  language,
});

/** A view of the bytes that the driver returned. */
const toInts = ({ buffer, byteOffset, byteLength }: Buffer): Int8Array => new Int8Array(buffer, byteOffset, byteLength);

export const createPassageStore = ({ connection }: { connection: Connection }): PassageStore => {
  const models = sourceModels(connection);
  const sources = collectionOf<StoredSource>(models.sources);
  const passages = collectionOf<StoredPassage>(models.passages);
  const tokens = collectionOf<StoredPassageTokens>(models.passageTokens);
  const indexes = collectionOf<StoredIndexPiece>(models.passageIndexes);
  const readPassage = createReader(passages, FIELDS);
  const readSource = createReader(sources, { removedAt: 1, versions: 1, retired: 1 });

  const listVersion = async (assistantId: string, sourceId: string, live: number): Promise<ListedPassage[]> => {
    const filter = { assistantId, sourceId, since: { $lte: live } };
    const projection = { _id: 1, model: 1, until: 1 };
    const listed: ListedPassage[] = [];
    for await (const { _id, model, until } of passages.find(filter, { projection, batchSize: LISTED_AT_ONCE })) {
      if (until == null || until > live) listed.push({ passageId: _id, model: model ?? null });
    }
    return listed;
  };

  /** The sources of the scope, the oldest first. */
  const listSources = async ({ assistantId, sourceId, draft }: PassageScope): Promise<StoredSource[]> => {
    const filter = { assistantId, removedAt: null, ...(sourceId !== undefined && { _id: sourceId }) };
    const all = await sources.find(filter, { projection: SOURCE_FIELDS }).sort({ createdAt: 1 }).toArray();
    if (sourceId !== undefined) return all;
    return all.filter((source) => (draft ? isInDraft(source, draft) : isPublished(source)));
  };

  /**
   * Reads the whole parts of a source's index. Pieces of other indexes, which are still being stored or deleted, are left
   * out. If this index is replaced meanwhile, parts of it are missing.
   */
  async function* readParts(
    { _id: sourceId, assistantId, indexed }: StoredSource,
    kind: string,
  ): AsyncGenerator<StoredIndexPart> {
    // An earlier release has not stored which index counts, and deleted all others at once.
    const prefix = indexed?.of === undefined ? sourceId : `${sourceId}:${indexed.of}`;
    const filter = { assistantId, kind, _id: { $gte: `${prefix}:`, $lt: `${prefix};` } };
    let whole = { name: '', bytes: new Uint8Array(), read: 0 };
    // In the order of `_id`, the pieces of a part come one after the other, and each has its place in the part.
    const rows = indexes.find(filter, { sort: { _id: 1 }, batchSize: PIECES_AT_ONCE, promoteBuffers: true });
    for await (const { of, part, piece, size, model, bytes } of rows) {
      const name = `${of} ${part}`;
      if (whole.name !== name) whole = { name, bytes: new Uint8Array(size), read: 0 };
      if (piece * INDEX_PIECE_BYTES + bytes.length > size) continue;
      whole.bytes.set(bytes, piece * INDEX_PIECE_BYTES);
      whole.read += bytes.length;
      if (whole.read !== size) continue;
      const read = { model: model ?? null, bytes: whole.bytes };
      whole = { name: '', bytes: new Uint8Array(), read: 0 };
      yield read;
    }
  }

  return {
    models: [models.passages, models.passageTokens, models.passageIndexes],

    async *readStored(scope, kind) {
      const ofOtherKind: string[] = [];
      for (let left = await listSources(scope); left.length > 0; ) {
        const without = new Map<string, string | undefined>();
        for (const source of left) {
          let isFound = false;
          for await (const part of readParts(source, kind)) {
            isFound = true;
            yield part;
          }
          if (!isFound) without.set(source._id, source.indexed?.of);
        }
        const filter = { _id: { $in: [...without.keys()] }, removedAt: null };
        const now = without.size > 0 ? await sources.find(filter, { projection: SOURCE_FIELDS }).toArray() : [];
        const isReplaced = ({ _id, indexed }: StoredSource): boolean => indexed?.of !== without.get(_id);
        ofOtherKind.push(...now.filter((source) => !isReplaced(source)).map(({ _id }) => _id));
        // An index that was replaced before anything of it was read is read as it is now.
        left = now.filter(isReplaced);
      }
      const made = { _id: { $in: ofOtherKind }, 'indexed.by': passageEngine() } as mongo.Filter<StoredSource>;
      const due = { 'indexed.by': null } as mongo.MatchKeysAndValues<StoredSource>;
      if (ofOtherKind.length > 0) await sources.updateMany(made, { $set: due });
    },

    async *listVisible(scope) {
      for (const { _id: sourceId, live: first } of await listSources(scope)) {
        let live = first;
        let listed: ListedPassage[] = [];
        // Passages of a replaced version are deleted, so a list counts only if its version is still the live one.
        for (let isSame = live === 0; !isSame; ) {
          listed = await listVersion(scope.assistantId, sourceId, live);
          const now = await sources.findOne({ _id: sourceId, removedAt: null }, { projection: { live: 1 } });
          isSame = now === null || now.live === live;
          if (now) ({ live } = now);
          else listed = [];
        }
        yield listed;
      }
    },

    async *readEmbedded(passageIds: string[]): AsyncGenerator<EmbeddedPassage[]> {
      for (let start = 0; start < passageIds.length; start += READ_AT_ONCE) {
        const some = { _id: { $in: passageIds.slice(start, start + READ_AT_ONCE) } };
        const projection = { ...FIELDS, model: 1, vector: 1 };
        const rows = await passages.find(some, { projection, promoteBuffers: true }).toArray();
        yield rows.map((row) => ({
          ...toPassage(row),
          model: row.model ?? null,
          // A copy, because a view would keep the texts of the whole answer in memory.
          vector: row.vector ? toInts(row.vector).slice() : null,
        }));
      }
    },

    readPassages: async (passageIds, { version, draft }) => {
      const read = await Promise.all(passageIds.map(readPassage));
      const found = read.filter((row) => row !== null);
      const sourceIds = [...new Set(found.map(({ sourceId }) => sourceId))];
      const kept = new Set<string>();
      for (const source of await Promise.all(sourceIds.map(readSource)))
        if (source && (draft ? isInDraft(source, draft) : isInVersion(source, version ?? null))) kept.add(source._id);
      const visible = found.filter(({ sourceId }) => kept.has(sourceId));
      return { passages: visible.map(toPassage), gone: passageIds.length - found.length };
    },

    areRead: async (sourceIds) => {
      const isBusy = [{ state: { $in: ['running', 'waiting'] } }, { lease: { $exists: true } }];
      const unread = { _id: { $in: sourceIds }, removedAt: null, $or: isBusy };
      return (await sources.findOne(unread as mongo.Filter<StoredSource>, { projection: { _id: 1 } })) === null;
    },

    readTokens: async (passageIds, kind) => {
      if (passageIds.length === 0) return new Map();
      const rows = await tokens
        .find({ _id: { $in: passageIds }, kind }, { projection: { tokens: 1 }, promoteBuffers: true })
        .toArray();
      return new Map(rows.map((row) => [row._id, toInts(row.tokens)]));
    },
  };
};
