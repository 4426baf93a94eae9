import type { ClientSession, Connection, mongo } from 'mongoose';
import { type SourcesChanged, VERSIONS_MAX, type VersionedSources } from '../assistants/drafts/versions.ts';
import { collectionOf } from '../platform/mongo/mongo.ts';
import { serverDate } from '../platform/process/clock.ts';
import { isInVersion, isPublished, passagesOf, PRESENT, sourceModels, type StoredSource } from './source.ts';

/** What a hidden source, and each of its passages, count as among the entries that versions keep. */
const SOURCE_BYTES = 2_000_000;
const PASSAGE_BYTES = 2_000;

const FIELDS = { removedAt: 1, versions: 1, retired: 1, state: 1, language: 1, 'counts.passages': 1 } as const;
type Row = Pick<StoredSource, '_id' | 'removedAt' | 'versions' | 'retired' | 'state' | 'language' | 'counts'>;

/** The sources of versions: each source names the versions that answer from it (docs/design.md, Drafts and versions). */
export const createVersionedSources = (connection: Connection): VersionedSources => {
  const models = sourceModels(connection);
  const sources = collectionOf<StoredSource>(models.sources);
  const proposals = collectionOf(models.proposedEntries);

  const dropProposals = async (session: ClientSession, sourceIds: string[]): Promise<void> => {
    if (sourceIds.length > 0)
      await proposals.deleteMany({ sourceId: { $in: sourceIds }, state: 'proposed' }, { session });
  };

  const removeAll = async (filter: mongo.Filter<StoredSource>, session?: ClientSession): Promise<void> => {
    const removed = { $set: { removedAt: serverDate() } };
    await sources.updateMany({ ...filter, removedAt: null }, removed, session ? { session } : {});
  };

  /** Makes sources live or hides them, from `version` on, as `wanted` says. It leaves out those of the draft. */
  const make = async (
    session: ClientSession,
    { assistantId, version }: { assistantId: string; version: number },
    wanted: (source: Row) => boolean,
  ): ReturnType<VersionedSources['publish']> => {
    const rows: Row[] = await sources.find({ assistantId, removedAt: null }, { projection: FIELDS, session }).toArray();
    const counts: SourcesChanged = { added: 0, removed: 0 };
    let bytes = 0;
    const writes: mongo.AnyBulkWriteOperation<StoredSource>[] = [];
    const hidden: string[] = [];
    for (const row of rows) {
      const { _id, versions: all = [{ since: 0, until: null }], state } = row;
      const isWanted = wanted(row);
      if (isWanted === isPublished(row)) continue;
      // Otherwise one that is hidden and comes back again and again would become ever larger.
      const versions = all.filter(({ until }) => until === null || until > version - VERSIONS_MAX);
      if (isWanted) {
        counts.added += 1;
        // One that comes back was not read again while it was hidden.
        const due = row.retired
          ? { nextAt: serverDate(), ...(state !== 'running' && { state: 'waiting' as const }) }
          : {};
        const set = { versions: [...versions, { since: version, until: null }], retired: null, ...due };
        writes.push({ updateOne: { filter: { _id }, update: { $set: set } } });
      } else {
        counts.removed += 1;
        bytes += SOURCE_BYTES + PASSAGE_BYTES * row.counts.passages;
        hidden.push(_id);
        const ended = versions.map(({ since, until }) => ({ since, until: until ?? version }));
        const set = { versions: ended, retired: version, nextAt: null };
        writes.push({ updateOne: { filter: { _id }, update: { $set: set } } });
      }
    }
    if (writes.length > 0) await sources.bulkWrite(writes, { session });
    await dropProposals(session, hidden);
    return { counts, bytes, passages: passagesOf(rows.filter(wanted)) };
  };

  return {
    publish: (session, { added, removed, ...at }) =>
      make(session, at, (row) => {
        if (added.includes(row._id)) return true;
        return isPublished(row) && !removed.includes(row._id);
      }),

    rollBack: (session, { to, ...at }) => make(session, at, (row) => isInVersion(row, to)),

    discard: async (session, assistantId, sourceIds) => {
      if (sourceIds.length === 0) return;
      await removeAll({ assistantId, _id: { $in: sourceIds }, versions: { $size: 0 } }, session);
      await dropProposals(session, sourceIds);
    },

    forget: (assistantId, oldest) => removeAll({ assistantId, retired: { $lte: oldest } }),

    release: async (session, assistantId) => {
      await removeAll({ assistantId, retired: { $gt: 0 } }, session);
      await sources.updateMany({ assistantId, ...PRESENT }, { $unset: { versions: '' } }, { session });
    },
  };
};
