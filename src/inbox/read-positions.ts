import { type Connection, Schema } from 'mongoose';
import { collectionOf, type Indexed } from '../mongo/mongo.ts';
import { inBatches } from '../mongo/batches.ts';

/** The last message that an operator has read in a conversation. */
type StoredReadPosition = { _id: string; seq: number };

const readPositionSchema = new Schema<StoredReadPosition>(
  { _id: { type: String, required: true }, seq: { type: Number, required: true } },
  { collection: 'readPositions', versionKey: false },
);

const idOf = (conversationId: string, operatorId: string): string => `${conversationId}:${operatorId}`;

/** The ids of a conversation's parts begin with the conversation's id. `;` is the character after `:`. */
export const partsOf = (conversationId: string) => ({ _id: { $gt: `${conversationId}:`, $lt: `${conversationId};` } });

export type ReadPositions = {
  models: Indexed[];

  /** Moves an operator's position forward, never back, and returns it. */
  advance: (conversationId: string, operatorId: string, seq: number) => Promise<number>;

  /** The positions of an operator in these conversations, by conversation. */
  find: (conversationIds: string[], operatorId: string) => Promise<Map<string, number>>;

  /** The positions of all operators in a conversation. */
  list: (conversationId: string) => Promise<{ operatorId: string; seq: number }[]>;

  erase: (conversationId: string, until?: AbortSignal) => Promise<void>;
};

export const createReadPositions = (connection: Connection): ReadPositions => {
  const model = connection.model<StoredReadPosition>('ReadPosition', readPositionSchema);
  const positions = collectionOf<StoredReadPosition>(model);
  return {
    models: [model],

    advance: async (conversationId, operatorId, seq) => {
      const moved = await positions.findOneAndUpdate(
        { _id: idOf(conversationId, operatorId) },
        { $max: { seq } },
        { upsert: true, returnDocument: 'after' },
      );
      return moved?.seq ?? seq;
    },

    find: async (conversationIds, operatorId) => {
      if (conversationIds.length === 0) return new Map();
      const ids = new Map(conversationIds.map((id) => [idOf(id, operatorId), id]));
      const rows = await positions.find({ _id: { $in: [...ids.keys()] } }).toArray();
      return new Map(rows.map(({ _id, seq }) => [ids.get(_id) ?? '', seq]));
    },

    list: async (conversationId) => {
      const rows = await positions.find(partsOf(conversationId)).toArray();
      return rows.map(({ _id, seq }) => ({ operatorId: _id.slice(conversationId.length + 1), seq }));
    },

    erase: (conversationId, until) =>
      inBatches({ collection: positions, filter: partsOf(conversationId), ...(until && { until }) }, (some) =>
        positions.deleteMany(some),
      ),
  };
};
