import { type Connection, Schema, type Model } from 'mongoose';
import { collectionOf } from '../mongo/mongo.ts';

export const REGISTER_EVERY_MS = 2_000;
/** A crashed worker counts as gone after this time. */
const EXPIRES_AFTER_MS = 12_000;
const KEPT_S = 3_600;

/** The embedding model of a reply worker, and whether it works. */
type EmbedderInfo = { model: string | null; available: boolean; detail: string };

type StoredEmbedder = EmbedderInfo & { _id: string; seenAt: Date };

const schema = new Schema<StoredEmbedder>(
  {
    _id: { type: String, required: true },
    model: { type: String, default: null },
    available: { type: Boolean, required: true },
    detail: { type: String, default: '' },
    seenAt: { type: Date, required: true },
  },
  { collection: 'embedders', versionKey: false, strictQuery: 'throw' },
);
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
