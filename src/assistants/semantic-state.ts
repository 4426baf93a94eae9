import type { mongo } from 'mongoose';
import type { StoredAssistant } from './assistant.ts';

/** Longer than the slowest chunk takes; a dead worker's assistant is taken up by another after it. */
export const LEASE_MS = 10_000;

export type VectorProgress = { done: number; answers: number; total: number };

/** Whose vectors these are to be: `others` are the models of further workers that run right now. */
export type RunningModels = { model: string; others: string[] };

/** A worker's hold on an assistant. */
export type VectorLease = { assistantId: string; token: string };

/**
 * Work for this model. An assistant whose vectors another running worker's model made is that one's: workers that do not
 * agree, as while new ones replace old ones, would make everything again and again for one another.
 */
const needsVectors = ({ model, others }: RunningModels): mongo.Filter<StoredAssistant> => ({
  'semantic.model': { $nin: others },
  $or: [{ 'semantic.stale': true }, { 'semantic.model': { $ne: model } }],
});

/** Also those whose change was not told, by a process that ended before it could: sought rarely, since each is looked at. */
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

/** Merges these fields, and begins the lease anew. Values are literal: none is taken for an expression. */
const renewal = (token: string, fields: Record<string, unknown> = {}, revision: 0 | 1 = 0) => {
  const lease = { token: { $literal: token }, until: { $add: ['$$NOW', LEASE_MS] } };
  const raised = { $add: [{ $ifNull: ['$semantic.revision', 0] }, revision] };
  return [{ $set: { semantic: { $mergeObjects: ['$semantic', { $literal: fields }, { lease, revision: raised }] } } }];
};

const AFTER = { returnDocument: 'after', projection: { version: 1 } } as const;

/** Who makes which assistant's vectors, and how far that is: every step a compare-and-set, times by the server's clock. */
export const createSemanticState = (assistants: mongo.Collection<StoredAssistant>) => ({
  /** Assistants that nobody is at work on. */
  findOutdated: async (
    models: RunningModels,
    { thorough, limit }: { thorough: boolean; limit: number },
  ): Promise<string[]> => {
    const filter = { $and: [thorough ? isOutdated(models) : needsVectors(models), unleased] };
    const rows = await assistants.find(filter, { projection: { _id: 1 }, limit }).toArray();
    return rows.map(({ _id }) => _id);
  },

  /** The version to make; null: nothing to do, or somebody is at it. */
  acquire: async ({ assistantId, token }: VectorLease, models: RunningModels): Promise<number | null> => {
    const filter = { _id: assistantId, $and: [{ $or: [needsVectors(models), isOutdated(models)] }, unleased] };
    const row = await assistants.findOneAndUpdate(filter, renewal(token), AFTER);
    return row?.version ?? null;
  },

  /** Tells how far it is and keeps the hold. The version as it is now; null: another worker has taken over. */
  reportProgress: async (
    lease: VectorLease,
    fields: VectorProgress & { model: string; version: number },
  ): Promise<number | null> => {
    const row = await assistants.findOneAndUpdate(leasedBy(lease), renewal(lease.token, fields, 1), AFTER);
    return row?.version ?? null;
  },

  /** All is made and the hold ends, unless the assistant was changed meanwhile: then false, and nothing happens. */
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

  /** What was stored under a lost hold may be older than what is there by now: somebody looks over all of it again. */
  markStale: async (assistantId: string): Promise<void> => {
    await assistants.updateOne({ _id: assistantId }, { $set: { 'semantic.stale': true } });
  },
});

export type SemanticState = ReturnType<typeof createSemanticState>;
