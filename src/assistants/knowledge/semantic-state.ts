import type { TextKind } from '@parley/understanding/text';
import type { Connection, Model, mongo } from 'mongoose';
import * as z from 'zod';
import { leaseIn } from '../../platform/mongo/batches.ts';
import { collectionOf, schemaOf } from '../../platform/mongo/mongo.ts';
import type { Assistant, StoredAssistant } from '../assistant.ts';

export const REGISTER_EVERY_MS = 2_000;
/** A crashed worker counts as gone after this time. */
const EXPIRES_AFTER_MS = 12_000;
const KEPT_S = 3_600;

/** The embedding model of a reply worker, and whether it works. */
type EmbedderInfo = { model: string | null; available: boolean; detail: string };

type StoredEmbedder = EmbedderInfo & { _id: string; seenAt: Date };

const schema = schemaOf<StoredEmbedder>('embedders');
schema.index({ seenAt: 1 }, { expireAfterSeconds: KEPT_S });

/**
 * The register of running reply workers and their embedding models. Workers read the register to agree on a model.
 * Operators see it as the state of semantic search.
 */
export type Embedders = {
  model: Model<StoredEmbedder>;
  register: (worker: string, info: EmbedderInfo) => Promise<void>;
  unregister: (worker: string) => Promise<void>;

  /** The running workers, those with a working model first. */
  listRunning: () => Promise<(EmbedderInfo & { worker: string })[]>;
};

export const createEmbedders = (connection: Connection): Embedders => {
  const model = connection.model<StoredEmbedder>('Embedder', schema);
  const rows = collectionOf(model);
  return {
    model,

    register: async (worker, info) => {
      await rows.updateOne({ _id: worker }, { $set: info, $currentDate: { seenAt: true } }, { upsert: true });
    },

    unregister: async (worker) => {
      await rows.deleteOne({ _id: worker });
    },

    listRunning: async () => {
      const filter = { $expr: { $gt: ['$seenAt', { $subtract: ['$$NOW', EXPIRES_AFTER_MS] }] } };
      const live = await rows.find(filter, { sort: { available: -1, _id: 1 } }).toArray();
      return live.map(({ _id, model: made, available, detail }) => ({ worker: _id, model: made, available, detail }));
    },
  };
};

export const KNOWLEDGE_QUEUE = 'knowledge';

/** A wake-up: the knowledge of this assistant has changed. The worker reads from MongoDB what has changed. */
export const KnowledgeJob = z.object({ assistantId: z.uuid() });
export type KnowledgeJob = z.infer<typeof KnowledgeJob>;

/**
 * How long a lease lasts without renewal: longer than the slowest batch. After this time, another worker can continue
 * the work of a worker that died.
 */
const LEASE_MS = 10_000;
const lease = leaseIn('semantic.lease', LEASE_MS);

export type VectorProgress = { done: number; answers: number; total: number };

/** The models of all running workers: `model` is the model of this worker, `others` are the other models. */
type RunningModels = { model: string; others: string[] };

/** A worker's lease on the vectors of an assistant. */
export type VectorLease = { assistantId: string; token: string };

/**
 * Assistants that need vectors by this model. Assistants with vectors by another running model are excluded. Otherwise,
 * workers with different models would replace each other's vectors forever during a rollout.
 */
const needsVectors = ({ model, others }: RunningModels): mongo.Filter<StoredAssistant> => ({
  'semantic.model': { $nin: others },
  $or: [{ 'semantic.stale': true }, { 'semantic.model': { $ne: model } }],
});

/**
 * Assistants whose vectors were made for an older version. This filter also finds assistants that were changed by a
 * process that ended before it set `stale`. The filter cannot use an index, so it runs rarely.
 */
const isOutdated = ({ others }: RunningModels): mongo.Filter<StoredAssistant> => ({
  'semantic.model': { $nin: others },
  $expr: { $ne: ['$semantic.version', '$version'] },
});

const leasedBy = ({ assistantId, token }: VectorLease): mongo.Filter<StoredAssistant> => ({
  _id: assistantId,
  ...lease.heldBy(token),
});

/**
 * An update that merges these fields into the progress and renews the lease. `$literal` keeps values from being
 * evaluated as expressions.
 */
const renewal = (token: string, fields: Record<string, unknown> = {}, revision: 0 | 1 = 0) => {
  const changes = {
    lease: lease.renewed(token),
    revision: { $add: [{ $ifNull: ['$semantic.revision', 0] }, revision] },
  };
  return [{ $set: { semantic: { $mergeObjects: ['$semantic', { $literal: fields }, changes] } } }];
};

const AFTER = { returnDocument: 'after', projection: { version: 1 } } as const;

/**
 * The leases of workers that make vectors, and the progress of this work. Every step is a compare-and-set, and all
 * times come from MongoDB's clock.
 */
export type SemanticState = {
  /** Assistants that need vectors and that no worker has leased. */
  findOutdated: (
    models: RunningModels,
    options: { thorough: boolean; limit: number; except: string[] },
  ) => Promise<string[]>;

  /**
   * Acquires the lease. Returns the version to make vectors for, or null if there is nothing to do or another worker
   * has the lease.
   */
  acquire: (wanted: VectorLease, models: RunningModels) => Promise<number | null>;

  /**
   * Stores the progress and renews the lease. Returns the current version, or null if another worker has the lease now.
   */
  reportProgress: (
    held: VectorLease,
    fields: VectorProgress & { model: string; version: number },
  ) => Promise<number | null>;

  /** Renews the lease. False if another worker has it now. */
  renew: (held: VectorLease) => Promise<boolean>;

  /**
   * Stores the final progress and releases the lease. If the assistant has changed meanwhile or the lease was lost,
   * returns false and changes nothing.
   */
  complete: (held: VectorLease, options: VectorProgress & { version: number }) => Promise<boolean>;

  release: (held: VectorLease) => Promise<void>;

  /**
   * Marks the assistant so that all its vectors are checked again. Needed when vectors were stored after the lease was
   * lost, because these vectors may be outdated.
   */
  markStale: (assistantId: string) => Promise<void>;
};

export const createSemanticState = (assistants: mongo.Collection<StoredAssistant>): SemanticState => ({
  findOutdated: async (models, { thorough, limit, except }) => {
    const others = except.length > 0 ? { _id: { $nin: except } } : {};
    const filter = { ...others, $and: [thorough ? isOutdated(models) : needsVectors(models), lease.free] };
    const rows = await assistants.find(filter, { projection: { _id: 1 }, limit }).toArray();
    return rows.map(({ _id }) => _id);
  },

  acquire: async ({ assistantId, token }, models) => {
    const filter = { _id: assistantId, $and: [{ $or: [needsVectors(models), isOutdated(models)] }, lease.free] };
    const row = await assistants.findOneAndUpdate(filter, renewal(token), AFTER);
    return row?.version ?? null;
  },

  reportProgress: async (held, fields) => {
    const row = await assistants.findOneAndUpdate(leasedBy(held), renewal(held.token, fields, 1), AFTER);
    return row?.version ?? null;
  },

  renew: async (held) => (await assistants.updateOne(leasedBy(held), renewal(held.token))).matchedCount === 1,

  complete: async (held, { version, done, answers, total }) => {
    const { matchedCount } = await assistants.updateOne(
      { ...leasedBy(held), version },
      {
        $set: {
          'semantic.version': version,
          'semantic.done': done,
          'semantic.answers': answers,
          'semantic.total': total,
        },
        $unset: { 'semantic.stale': '', ...lease.ended },
        $inc: { 'semantic.revision': 1 },
      },
    );
    return matchedCount === 1;
  },

  release: async (held) => {
    await assistants.updateOne(leasedBy(held), { $unset: lease.ended });
  },

  markStale: async (assistantId) => {
    await assistants.updateOne({ _id: assistantId }, { $set: { 'semantic.stale': true } });
  },
});

/** The state of an assistant's semantic search, for operators. */
export type SemanticStatus = {
  state: 'ready' | 'making' | 'off';
  /** Why semantic search is off. Null in the other states. */
  reason: string | null;
  model: string | null;
  /** Entries with vectors. */
  done: number;
  total: number;
  /** Texts that are not searched by words, because the knowledge exceeds a worker's memory. */
  leftOut: number;
  /** Kinds of texts whose vectors are not used, because they exceed a worker's memory. */
  vectorsLeftOut: TextKind[];
};

/** True if all vectors of the current knowledge are made. `semantic.version` alone says only that they were begun. */
export const areVectorsMade = ({ version, semantic }: Pick<Assistant, 'version' | 'semantic'>): boolean =>
  semantic?.version === version && semantic.stale !== true;

const isReady = ({ version, semantic }: Assistant, total: number): boolean =>
  semantic?.stale !== true || (semantic.version === version && (semantic.done ?? 0) >= total);

type StatusSources = {
  getAssistant: (assistantId: string) => Promise<Assistant>;
  countKnowledge: (assistantId: string) => Promise<number>;
  embedders: Pick<Embedders, 'listRunning'>;
};

export const findSemanticStatus = async (assistants: StatusSources, assistantId: string): Promise<SemanticStatus> => {
  const [assistant, live, total] = await Promise.all([
    assistants.getAssistant(assistantId),
    assistants.embedders.listRunning(),
    assistants.countKnowledge(assistantId),
  ]);
  const { semantic, leftOut = 0, vectorsLeftOut = [] } = assistant;
  const held = { leftOut, vectorsLeftOut };
  const usable = live.filter(({ available, model }) => available && model !== null);
  const serving = usable.find(({ model }) => model === semantic?.model) ?? usable[0];
  if (!serving) {
    const reason = live[0]?.detail ?? 'no reply worker is running';
    return { state: 'off', reason, model: null, done: 0, total, ...held };
  }
  const begun = serving.model === semantic?.model;
  const done = begun ? Math.min(semantic?.done ?? 0, total) : 0;
  const state = begun && isReady(assistant, total) ? 'ready' : 'making';
  return { state, reason: null, model: serving.model, done: state === 'ready' ? total : done, total, ...held };
};

const grouped = new Intl.NumberFormat('en');

const describeSearch = ({ state, reason, done, total }: SemanticStatus): string => {
  if (state === 'off') return `Semantic search is off: ${reason}`;
  if (state === 'ready') return 'Semantic search: ready';
  return `Semantic search: ${grouped.format(done)} of ${grouped.format(total)} entries ready`;
};

/** Describes the state in a sentence for operators, and what exceeds the memory in another. */
export const describeSemanticStatus = (status: SemanticStatus): string =>
  [
    describeSearch(status),
    ...(status.leftOut > 0 ? [`${grouped.format(status.leftOut)} texts are too many to be searched by words`] : []),
    ...(status.vectorsLeftOut.length > 0 ? [`too many vectors, unused: ${status.vectorsLeftOut.join(', ')}`] : []),
  ].join('; ');
