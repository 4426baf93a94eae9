import type { ClientSession, Connection, mongo } from 'mongoose';
import { inBatches, leaseIn } from '../platform/mongo/batches.ts';
import { collectionOf } from '../platform/mongo/mongo.ts';
import { serverNow } from '../platform/process/clock.ts';
import type { Timing } from '../platform/process/time-limits.ts';
import { createLeaseSessions, RunLost } from './lease-sessions.ts';
import {
  PASSAGES_BY_MADE,
  sourceModels,
  type StoredIndexPiece,
  type StoredPassage,
  type StoredSource,
} from './source.ts';

/**
 * `indexed.by` while the index of a source is made. After `INDEXED_AGAIN_MS`, an engine replaces another engine's
 * index.
 */
const TAKEN = 'being made';
const INDEXED_AGAIN_MS = 10 * 60_000;
/** How many pieces of an earlier index are deleted at once. Each may have 2 MB. */
const DELETED_AT_ONCE = 16;

/** A passage that has no vector by the present model. */
export type PassageToEmbed = Pick<StoredPassage, 'title' | 'path' | 'text'> & { passageId: string };
/** Without a vector, the passage is not tried again with this model. */
export type MadeVectors = { passageId: string; vector: Uint8Array | null; tokens: Uint8Array | null };
/** `made` names the model and the kind of its tokens. */
export type VectorsKind = { model: string; kind: string | null; made: string };

/** A lease on the stored index of a source. What is stored under it is named by its token. */
type IndexClaim = { sourceId: string; assistantId: string; token: string; model: string | null };

/**
 * What is made from stored passages outside of runs: their vectors, and the index that reply workers load. For each of
 * the two, a source has a lease of its own.
 */
export type PassageVectors = {
  /**
   * Takes the lease of a source that lacks vectors: by turns one with the fewest passages, and that of the next assistant.
   * In both kinds of turns the assistants follow one another. `others`: models of other workers. Sources with vectors of these models are left to those workers.
   */
  claimVectors: (
    token: string,
    kind: VectorsKind,
    others: string[],
  ) => Promise<{ sourceId: string; assistantId: string } | null>;
  listWithoutVectors: (sourceId: string, made: string, limit: number) => Promise<PassageToEmbed[]>;
  saveVectors: (sourceId: string, token: string, kind: VectorsKind, rows: MadeVectors[]) => Promise<void>;
  /** Stores the progress and renews the lease. False if the lease is lost. */
  reportVectors: (sourceId: string, token: string, made: string) => Promise<boolean>;
  /** Ends the lease. `made`: the kind of the vectors if all are made, or null. */
  endVectors: (sourceId: string, token: string, made: VectorsKind | null) => Promise<void>;

  /** Takes the lease of a source that lacks a stored index of this engine. Assistants take turns. */
  claimIndex: (token: string, engine: string) => Promise<IndexClaim | null>;
  /** Renews the lease of an index that is being made, if it is not lost. */
  renewIndex: (claim: IndexClaim) => Promise<void>;
  /** Stores a piece of a part of the index, and renews the lease. Throws `RunLost` if the lease is lost. */
  saveIndexPiece: (
    claim: IndexClaim,
    piece: Omit<StoredIndexPiece, '_id' | 'assistantId' | 'sourceId' | 'of'>,
  ) => Promise<void>;
  /**
   * Ends the lease. `made`: the engine if the index is complete, or null. `isStored`: the complete index was stored and
   * replaces the earlier one. Otherwise that is kept. Pieces of any other index are deleted before the lease ends.
   */
  endIndex: (claim: IndexClaim, made: string | null, isStored: boolean) => Promise<void>;
};

type Dependencies = { connection: Connection; timing: Pick<Timing, 'sourceLeaseMs'> };

/** The most assistants of a round of the shortest sources. */
const ROUND_MAX = 200;

export const createPassageVectors = ({ connection, timing }: Dependencies): PassageVectors => {
  const models = sourceModels(connection);
  const sources = collectionOf<StoredSource>(models.sources);
  const passages = collectionOf<StoredPassage>(models.passages);
  const tokens = collectionOf(models.passageTokens);
  const indexes = collectionOf<StoredIndexPiece>(models.passageIndexes);
  const ofVectors = leaseIn('vectors.lease', timing.sourceLeaseMs);
  const ofIndex = leaseIn('indexed.lease', timing.sourceLeaseMs);
  const { transactAs, openSession, closeSession, killSession } = createLeaseSessions(connection);
  /** The assistants that had their turn last. */
  const last = { vectors: '', index: '' };
  let isShortestNext = false;
  /** The assistants whose shortest source had its turn in this round. */
  const hadShortest = new Set<string>();

  const lost = (): RunLost => new RunLost('another worker makes the index, or the source was removed');

  /** False if the lease is lost. */
  const renewIndex = async ({ sourceId, token }: IndexClaim, session?: ClientSession): Promise<boolean> => {
    const lease = { ...ofIndex.renewed(token), session: '$indexed.lease.session' };
    const held = { _id: sourceId, removedAt: null, ...ofIndex.heldBy(token) };
    const options = session && { session };
    return (await sources.updateOne(held, [{ $set: { 'indexed.lease': lease } }], options)).matchedCount === 1;
  };

  /**
   * Deletes the pieces of the source that belong to no index: those of earlier ones, and what killed or slow workers have
   * left. They are found by `_id`, so without reading them. If this is interrupted, the lease expires and the next holder
   * deletes the rest.
   */
  const deleteOthers = async (claim: IndexClaim, of: string | undefined): Promise<void> => {
    const { sourceId, token } = claim;
    const own = `${sourceId}:${of ?? token}`;
    const others = [
      { $gte: `${sourceId}:`, $lt: `${own}:` },
      { $gte: `${own};`, $lt: `${sourceId};` },
    ];
    // Earlier releases stored no `of`. Their index may be any of the others, so only what this claim has stored is deleted.
    const ranges = of === undefined ? [{ $gte: `${own}:`, $lt: `${own};` }] : others;
    for (const _id of ranges) {
      const all = { collection: indexes, filter: { _id }, maxItems: DELETED_AT_ONCE, rests: true };
      await inBatches(all, async (some) => {
        // Whoever holds the lease later stores pieces later. So if it still holds, none of those that were found is newer.
        if (!(await renewIndex(claim))) throw lost();
        await indexes.deleteMany(some);
      });
    }
  };

  type Take = (of: mongo.Filter<StoredSource>, sort: Record<string, 1>) => Promise<StoredSource | null>;

  /** Takes a source of the next assistant. An assistant whose sources are due again and again gets one turn of many. */
  const takeInTurn = async (turn: keyof typeof last, take: Take): Promise<StoredSource | null> => {
    const sort = { assistantId: 1, 'counts.passages': 1 } as const;
    const source = (await take({ assistantId: { $gt: last[turn] } }, sort)) ?? (await take({}, sort));
    if (source) last[turn] = source.assistantId;
    return source;
  };

  /** Takes the shortest source of an assistant that had no such turn in this round. */
  const takeShortest = async (take: Take): Promise<StoredSource | null> => {
    const sort = { 'counts.passages': 1 } as const;
    let source = await take({ assistantId: { $nin: [...hadShortest] } }, sort);
    if (!source) {
      hadShortest.clear();
      source = await take({}, sort);
    }
    if (hadShortest.size >= ROUND_MAX) hadShortest.clear();
    if (source) hadShortest.add(source.assistantId);
    return source;
  };

  return {
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
      const set = [{ $set: { 'vectors.lease': lease } }];
      const take: Take = (of, sort) =>
        sources.findOneAndUpdate({ ...filter, ...of }, set, { returnDocument: 'before', sort, projection });
      isShortestNext = !isShortestNext;
      const source = await (isShortestNext ? takeShortest(take) : takeInTurn('vectors', take));
      if (source) await killSession(source.vectors?.lease);
      else await closeSession(token);
      return source && { sourceId: source._id, assistantId: source.assistantId };
    },

    listWithoutVectors: async (sourceId, made, limit) => {
      const options = { projection: { title: 1, path: 1, text: 1 }, limit, hint: PASSAGES_BY_MADE };
      const rows = await passages.find({ sourceId, made: { $ne: made }, until: null }, options).toArray();
      return rows.map(({ _id, title, path, text }) => ({ passageId: _id, title, path, text }));
    },

    saveVectors: (sourceId, token, { model, kind, made }, rows) =>
      transactAs(token, async (session) => {
        const ids = rows.map(({ passageId }) => passageId);
        // A passage that was removed meanwhile must not get tokens. If one is removed just now, this transaction fails.
        const options = { projection: { assistantId: 1 }, session };
        const present = await passages.find({ _id: { $in: ids }, sourceId }, options).toArray();
        const assistantIds = new Map(present.map(({ _id, assistantId }) => [_id, assistantId]));
        const kept = rows.filter(({ passageId }) => assistantIds.has(passageId));
        if (kept.length === 0) return;
        const vectors = kept.map(({ passageId: _id, vector }) => ({
          updateOne: {
            filter: { _id },
            update: { $set: { made, model: vector && model, vector: vector && Buffer.from(vector) } },
          },
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
      transactAs(token, async (session) => {
        // Counted in the transaction that stores the count, so that a count that is stored later is never an older one.
        const embedded = await passages.countDocuments({ sourceId, until: null, made }, { session });
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
        return (await passages.findOne(missing, { projection: { _id: 1 }, hint: PASSAGES_BY_MADE })) === null;
      };
      const none = { 'vectors.made': null } as mongo.MatchKeysAndValues<StoredSource>;
      if (kind && (await isWhole(kind.made))) {
        const made = { 'vectors.made': kind.made, 'vectors.model': kind.model, 'indexed.by': null };
        await sources.updateOne(held, { $set: made as mongo.MatchKeysAndValues<StoredSource> });
        // A page may have been stored between the check and the write.
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
        // While an update is rolled out, two engines replace each other's index, but only every `INDEXED_AGAIN_MS`.
        $or: [
          { 'indexed.by': { $in: [null, TAKEN] } },
          { 'indexed.by': { $ne: engine }, 'indexed.at': { $lt: before } },
        ],
        ...ofIndex.free,
      } as mongo.Filter<StoredSource>;
      const lease = { ...ofIndex.renewed(token), session: { $literal: await openSession(token) } };
      // A change from now on sets `indexed.by` to null, so that the index is made again afterwards.
      const set = [{ $set: { indexed: { by: { $literal: TAKEN }, at: '$$NOW', lease } } }];
      const projection = { assistantId: 1, vectors: 1, indexed: 1 };
      const source = await takeInTurn('index', (of, sort) =>
        sources.findOneAndUpdate({ ...filter, ...of }, set, { returnDocument: 'before', sort, projection }),
      );
      if (source) await killSession(source.indexed?.lease);
      else await closeSession(token);
      return (
        source && { sourceId: source._id, assistantId: source.assistantId, token, model: source.vectors?.model ?? null }
      );
    },

    renewIndex: async (claim) => void (await renewIndex(claim)),

    saveIndexPiece: (claim, row) =>
      transactAs(claim.token, async (session) => {
        const { sourceId, assistantId, token } = claim;
        const _id = [sourceId, token, row.part, row.piece].join(':');
        await indexes.insertOne({ _id, assistantId, sourceId, of: token, ...row }, { session });
        if (!(await renewIndex(claim, session))) throw lost();
      }),

    endIndex: async (claim, made, isStored) => {
      const { sourceId, token } = claim;
      const held = { _id: sourceId, ...ofIndex.heldBy(token) };
      try {
        // From this write on, readers read the new index. Its pieces are all there, and so are those of the one before.
        const replaced = made !== null && isStored && { 'indexed.of': { $literal: token } };
        const update = [{ $set: { ...replaced, 'indexed.lease.until': ofIndex.renewed(token).until } }];
        const options = { returnDocument: 'after', projection: { 'indexed.of': 1 } } as const;
        const source = await sources.findOneAndUpdate({ ...held, removedAt: null }, update, options);
        if (source) await deleteOthers(claim, source.indexed?.of);
        // If the index became due again meanwhile, it stays due.
        const end = { $cond: [{ $eq: ['$indexed.by', TAKEN] }, { $literal: made }, '$indexed.by'] };
        await sources.updateOne(held, [{ $set: { 'indexed.by': end } }, { $unset: 'indexed.lease' }]);
      } finally {
        await closeSession(token);
      }
    },
  };
};
