import { type Connection, Schema } from 'mongoose';
import { serverDate } from '../platform/clock.ts';
import { collectionOf } from '../platform/mongo.ts';
import type { assistantModels } from './assistant.ts';
import { visibleEntries } from './knowledge-positions.ts';
import { type KnowledgeText, textsOf } from './knowledge-texts.ts';

/** What went with its entry may serve an import that brings the same texts again; then it ends by itself. */
const REMOVED_KEPT_S = 600;
/** Documents read at a time: few enough to unpack that nothing else waits. */
const INFO_BATCH = 500;
const TEXTS_BATCH = 100;
const VECTORS_BATCH = 50;

export type StoredVectors = {
  /** The entry's id. */
  _id: string;
  assistantId: string;
  /** False once the entry was removed. */
  live: boolean;
  removedAt?: Date;
  model: string;
  /** Of the model and the texts below: what is up to date has the hash that its entry asks for. */
  hash: string;
  /** Kind and hash of each text, in the order of its vectors. */
  texts: string[];
  /** Those vectors one after the other, as float32, little-endian. */
  vectors: Buffer;
};

export type EntryVectors = Pick<StoredVectors, 'model' | 'hash' | 'texts'> & { entryId: string; vectors: Float32Array };
export type VectorsInfo = Pick<StoredVectors, 'live' | 'model' | 'hash'> & { entryId: string };
export type EntryTexts = { entryId: string; texts: KnowledgeText[] };

const schema = new Schema<StoredVectors>(
  {
    _id: { type: String, required: true },
    assistantId: { type: String, required: true },
    live: { type: Boolean, required: true },
    removedAt: { type: Date },
    model: { type: String, required: true },
    hash: { type: String, required: true },
    texts: { type: [String], required: true },
    vectors: { type: Buffer, required: true },
  },
  { collection: 'knowledgeVectors', versionKey: false, strictQuery: 'throw' },
);
// Holds all of a name: which vectors there are is told without touching them.
schema.index({ assistantId: 1, live: 1, model: 1, hash: 1, _id: 1 });
schema.index({ removedAt: 1 }, { expireAfterSeconds: REMOVED_KEPT_S });

/** A copy, since the driver gives a view of the whole message. */
const toFloats = (bytes: Buffer): Float32Array =>
  new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer);

const toBytes = ({ buffer, byteOffset, byteLength }: Float32Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

/** The vectors of knowledge entries, a document each, beside the entries. What makes and reads them is the workers'. */
export const createVectorStore = (
  connection: Connection,
  { assistants, knowledge }: ReturnType<typeof assistantModels>,
) => {
  const model = connection.model<StoredVectors>('KnowledgeVectors', schema);
  const stored = collectionOf(model);
  const entries = collectionOf(knowledge);

  return {
    model,

    /** Which vectors an assistant has: all, or those of living entries by one model. */
    async *list(assistantId: string, filterBy?: { model: string }): AsyncGenerator<VectorsInfo> {
      const filter = {
        assistantId,
        ...(filterBy ? { live: true, model: filterBy.model } : { live: { $in: [true, false] } }),
      };
      const projection = { _id: 1, live: 1, model: 1, hash: 1 };
      for await (const { _id, ...name } of stored.find(filter, { projection, batchSize: INFO_BATCH })) {
        yield { entryId: _id, live: name.live, model: name.model, hash: name.hash };
      }
    },

    /** What the entries ask to have vectors of, as they are now: all in their order, or those of these ids. */
    async *readTexts(assistantId: string, entryIds?: string[]): AsyncGenerator<EntryTexts> {
      const assistant = await assistants.findById(assistantId).select({ knowledgePlaces: 1 }).lean();
      const filter = {
        ...visibleEntries(assistantId, assistant?.knowledgePlaces ?? {}),
        ...(entryIds && { _id: { $in: entryIds } }),
      };
      const projection = { question: 1, variants: 1, answer: 1 };
      const rows = entries.find(filter, { projection, sort: { position: 1 }, batchSize: TEXTS_BATCH });
      for await (const row of rows) yield { entryId: row._id, texts: textsOf(row) };
    },

    async *read(entryIds: string[]): AsyncGenerator<EntryVectors> {
      for (let start = 0; start < entryIds.length; start += VECTORS_BATCH) {
        const some = { _id: { $in: entryIds.slice(start, start + VECTORS_BATCH) } };
        for (const row of await stored.find(some, { promoteBuffers: true }).toArray()) {
          const { _id, model: madeBy, hash, texts, vectors } = row;
          yield { entryId: _id, model: madeBy, hash, texts, vectors: toFloats(vectors) };
        }
      }
    },

    /** Of which texts they are, without the vectors. */
    async *readTextKeys(entryIds: string[]): AsyncGenerator<Pick<EntryVectors, 'entryId' | 'texts'>> {
      for (let start = 0; start < entryIds.length; start += INFO_BATCH) {
        const some = { _id: { $in: entryIds.slice(start, start + INFO_BATCH) } };
        for (const { _id, texts } of await stored.find(some, { projection: { texts: 1 } }).toArray()) {
          yield { entryId: _id, texts };
        }
      }
    },

    save: async (assistantId: string, rows: EntryVectors[]): Promise<void> => {
      if (rows.length === 0) return;
      const writes = rows.map(({ entryId, vectors, ...row }) => ({
        replaceOne: {
          filter: { _id: entryId },
          replacement: { assistantId, live: true, ...row, vectors: toBytes(vectors) },
          upsert: true,
        },
      }));
      await stored.bulkWrite(writes, { ordered: false });
    },

    /** They are no longer found from now on; what they were made of may be needed once more (see above). */
    retire: async (entryIds: string[]): Promise<void> => {
      const removed = { $set: { live: false, removedAt: serverDate() } };
      if (entryIds.length > 0) await stored.updateMany({ _id: { $in: entryIds }, live: true }, removed);
    },

    remove: async (entryIds: string[]): Promise<void> => {
      if (entryIds.length > 0) await stored.deleteMany({ _id: { $in: entryIds } });
    },
  };
};

export type VectorStore = ReturnType<typeof createVectorStore>;
