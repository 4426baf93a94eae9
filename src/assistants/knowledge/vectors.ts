import type { Connection, Model } from 'mongoose';
import { inChunks, restIfSlow } from '../../platform/mongo/batches.ts';
import { serverDate } from '../../platform/process/clock.ts';
import { collectionOf, schemaOf } from '../../platform/mongo/mongo.ts';
import { type assistantModels, visibleEntries } from '../assistant.ts';
import { type KnowledgeText, textsOf } from './entry.ts';

/** Vectors of removed entries are kept for this time, because an import may add the same texts again. */
const REMOVED_KEPT_S = 600;
/** Documents per batch. The batch is small, so that decoding one batch does not delay other work. */
const INFO_BATCH = 500;
const TEXTS_BATCH = 100;
/** Entries per statement that reads or changes whole documents. With many variants, each has 80 KB. */
export const VECTORS_AT_ONCE = 50;

type StoredVectors = {
  /** The id of the entry. */
  _id: string;
  assistantId: string;
  /** False after the entry was removed. */
  live: boolean;
  removedAt?: Date;
  model: string;
  /** Hash of model and texts. It differs from the entry's current hash if the vectors are outdated. */
  hash: string;
  /** Kind and hash of each text, in the order of its vectors. */
  texts: string[];
  /** The vectors in sequence, as little-endian float32. */
  vectors: Buffer;
};

export type EntryVectors = Pick<StoredVectors, 'model' | 'hash' | 'texts'> & { entryId: string; vectors: Float32Array };
export type VectorsInfo = Pick<StoredVectors, 'live' | 'model' | 'hash'> & { entryId: string };
export type EntryTexts = { entryId: string; texts: KnowledgeText[] };

const schema = schemaOf<StoredVectors>('knowledgeVectors');
// A covering index, so that listing does not read the documents.
schema.index({ assistantId: 1, live: 1, model: 1, hash: 1, _id: 1 });
schema.index({ removedAt: 1 }, { expireAfterSeconds: REMOVED_KEPT_S });

/** Converts bytes to a vector. The bytes are copied, because the driver returns a view into the whole message. */
export const toFloats = (bytes: Buffer): Float32Array =>
  new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer);

export const toBytes = ({ buffer, byteOffset, byteLength }: Float32Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

/** The vectors of knowledge entries, one document per entry. Only workers make and read vectors. */
export type VectorStore = {
  model: Model<StoredVectors>;

  /** Lists an assistant's vectors: either all, or only those that `model` made for live entries. */
  list: (assistantId: string, filterBy?: { model: string }) => AsyncGenerator<VectorsInfo>;

  /** Reads the texts of current entries: of all entries in order, or only of the entries with the given ids. */
  readTexts: (assistantId: string, entryIds?: string[]) => AsyncGenerator<EntryTexts>;

  read: (entryIds: string[]) => AsyncGenerator<EntryVectors>;

  /**
   * Reads the text keys (see `textKeyOf`) of at most `VECTORS_AT_ONCE` entries, without the vectors. MongoDB still reads
   * whole documents.
   */
  readTextKeys: (entryIds: string[]) => Promise<Pick<EntryVectors, 'entryId' | 'texts'>[]>;

  save: (assistantId: string, rows: EntryVectors[]) => Promise<void>;

  /**
   * Marks the vectors of removed entries as not live. The vectors are deleted later, because an import may need them
   * again.
   */
  retire: (entryIds: string[]) => Promise<void>;

  /** Deletes the vectors of at most `VECTORS_AT_ONCE` entries. */
  remove: (entryIds: string[]) => Promise<void>;
};

export const createVectorStore = (
  connection: Connection,
  { assistants, knowledge }: ReturnType<typeof assistantModels>,
): VectorStore => {
  const model = connection.model<StoredVectors>('KnowledgeVectors', schema);
  const stored = collectionOf(model);
  const entries = collectionOf(knowledge);

  return {
    model,

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
      for (const ids of inChunks(entryIds, VECTORS_AT_ONCE)) {
        for (const row of await stored.find({ _id: { $in: ids } }, { promoteBuffers: true }).toArray()) {
          const { _id, model: madeBy, hash, texts, vectors } = row;
          yield { entryId: _id, model: madeBy, hash, texts, vectors: toFloats(vectors) };
        }
      }
    },

    readTextKeys: async (entryIds) => {
      const rows = await stored.find({ _id: { $in: entryIds } }, { projection: { texts: 1 } }).toArray();
      return rows.map(({ _id, texts }) => ({ entryId: _id, texts }));
    },

    save: async (assistantId, rows) => {
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

    retire: async (entryIds) => {
      const removed = { $set: { live: false, removedAt: serverDate() } };
      for (const ids of inChunks(entryIds, VECTORS_AT_ONCE)) {
        const since = performance.now();
        await stored.updateMany({ _id: { $in: ids }, live: true }, removed);
        await restIfSlow(since);
      }
    },

    remove: async (entryIds) => void (await stored.deleteMany({ _id: { $in: entryIds } })),
  };
};
