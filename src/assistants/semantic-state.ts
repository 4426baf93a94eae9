import type { mongo } from 'mongoose';
import type { StoredAssistant } from './assistant.ts';

/** Longer than the slowest batch. After this time another worker can take over from a dead one. */
export const LEASE_MS = 10_000;

export type VectorProgress = { done: number; answers: number; total: number };

/** The models of running workers: `model` is this worker's, `others` are the rest. */
export type RunningModels = { model: string; others: string[] };

/** A worker's lease on the vectors of an assistant. */
export type VectorLease = { assistantId: string; token: string };

/**
 * Assistants that need vectors by this model. Assistants with vectors of another running model are excluded: during a
 * rollout, workers with different models would otherwise replace each other's vectors forever.
 */
const needsVectors = ({ model, others }: RunningModels): mongo.Filter<StoredAssistant> => ({
  'semantic.model': { $nin: others },
  $or: [{ 'semantic.stale': true }, { 'semantic.model': { $ne: model } }],
});

/**
 * Assistants with an outdated version, also if the process that changed them ended before it set `stale`. This filter
 * cannot use an index, so it runs rarely.
 */
const isOutdated = ({ others }: RunningModels): mongo.Filter<StoredAssistant> => ({
  'semantic.model': { $nin: others },
  $expr: { $ne: ['$semantic.version', '$version'] },
});

const unleased = {
  $expr: { $lt: [{ $ifNull: ['$semantic.lease.until', new Date(0)] }, '$$NOW'] },
};

const leasedBy = ({ assistantId, token }: VectorLease): mongo.Filter<StoredAssistant> => ({
  _id: assistantId,
  'semantic.lease.token': token,
});

/** Merges these fields and renews the lease. `$literal` keeps values from being evaluated as expressions. */
const renewal = (token: string, fields: Record<string, unknown> = {}, revision: 0 | 1 = 0) => {
  const lease = { token: { $literal: token }, until: { $add: ['$$NOW', LEASE_MS] } };
  const raised = { $add: [{ $ifNull: ['$semantic.revision', 0] }, revision] };
  return [{ $set: { semantic: { $mergeObjects: ['$semantic', { $literal: fields }, { lease, revision: raised }] } } }];
};

const AFTER = { returnDocument: 'after', projection: { version: 1 } } as const;

/** Leases and progress of making vectors. Every step is a compare-and-set, and all times are the server's. */
export const createSemanticState = (assistants: mongo.Collection<StoredAssistant>) => ({
  /** Assistants that need vectors and are not leased. */
  findOutdated: async (
    models: RunningModels,
    { thorough, limit }: { thorough: boolean; limit: number },
  ): Promise<string[]> => {
    const filter = { $and: [thorough ? isOutdated(models) : needsVectors(models), unleased] };
    const rows = await assistants.find(filter, { projection: { _id: 1 }, limit }).toArray();
    return rows.map(({ _id }) => _id);
  },

  /** The version to make vectors for; null if there is nothing to do or another worker has the lease. */
  acquire: async ({ assistantId, token }: VectorLease, models: RunningModels): Promise<number | null> => {
    const filter = { _id: assistantId, $and: [{ $or: [needsVectors(models), isOutdated(models)] }, unleased] };
    const row = await assistants.findOneAndUpdate(filter, renewal(token), AFTER);
    return row?.version ?? null;
  },

  /** Stores the progress and renews the lease. Gives the current version; null if another worker has the lease now. */
  reportProgress: async (
    lease: VectorLease,
    fields: VectorProgress & { model: string; version: number },
  ): Promise<number | null> => {
    const row = await assistants.findOneAndUpdate(leasedBy(lease), renewal(lease.token, fields, 1), AFTER);
    return row?.version ?? null;
  },

  /**
   * Stores the final progress and releases the lease. Gives false and changes nothing if the assistant has changed
   * meanwhile.
   */
  complete: async (
    lease: VectorLease,
    { version, done, answers, total }: VectorProgress & { version: number },
  ): Promise<boolean> => {
    const { matchedCount } = await assistants.updateOne(
      { ...leasedBy(lease), version },
      {
        $set: {
          'semantic.version': version,
          'semantic.done': done,
          'semantic.answers': answers,
          'semantic.total': total,
        },
        $unset: { 'semantic.stale': '', 'semantic.lease': '' },
        $inc: { 'semantic.revision': 1 },
      },
    );
    return matchedCount === 1;
  },

  release: async (lease: VectorLease): Promise<void> => {
    await assistants.updateOne(leasedBy(lease), { $unset: { 'semantic.lease': '' } });
  },

  /** Vectors that were stored after the lease was lost may be outdated, so all are checked again. */
  markStale: async (assistantId: string): Promise<void> => {
    await assistants.updateOne({ _id: assistantId }, { $set: { 'semantic.stale': true } });
  },
});

export type SemanticState = ReturnType<typeof createSemanticState>;
