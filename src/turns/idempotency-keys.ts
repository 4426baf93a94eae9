import type { Connection, mongo } from 'mongoose';
import { serverDate } from '../platform/process/clock.ts';
import { isUuid, prefixRange } from '../platform/process/ids.ts';
import { collectionOf, DURABLE, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { inBatches } from '../platform/mongo/batches.ts';
import { dedupeKeyOf } from '../conversations/accept.ts';

const KEPT_S = 86_400;

type Reservation = { turnId: string; state: 'new' | 'known' } | { state: 'reused' };

/** What is stored for an `Idempotency-Key`: the message, its session, and the turn id that is reserved for it. */
type StoredKey = {
  _id: string;
  conversationKey: string;
  dedupeKey: string;
  turnId: string;
  conversationId: string | null;
  createdAt: Date;
};

const keySchema = schemaOf<StoredKey>('idempotencyKeys');
keySchema.index({ createdAt: 1 }, { expireAfterSeconds: KEPT_S });
keySchema.index({ conversationKey: 1 });

/**
 * Idempotency keys, kept for 24 h and separate for each assistant (docs/contract.md, Idempotency keys). A key is stored
 * before its turn is accepted.
 */
export type IdempotencyKeys = {
  models: Indexed[];
  reserve: (request: {
    assistantId: string;
    idempotencyKey: string;
    conversationKey: string;
    message: string;
    turnId: string;
  }) => Promise<Reservation>;

  /**
   * Links the key to the conversation that accepted its turn, so that both are erased together. Does not wait for
   * MongoDB.
   */
  bind: (assistantId: string, idempotencyKey: string, conversationId: string) => void;

  /**
   * Erases the keys of a conversation. With `unboundBefore`, also erases keys of its session that are older and belong
   * to no conversation, because their requests were refused. Give this time only once all requests before it have
   * ended.
   */
  erase: (conversationId: string, options: { until?: AbortSignal; unboundBefore?: Date }) => Promise<void>;
};

export const createIdempotencyKeys = (connection: Connection): IdempotencyKeys => {
  const model = connection.model<StoredKey>('IdempotencyKey', keySchema);
  const keys = collectionOf<StoredKey>(model);

  return {
    models: [model],

    reserve: async (request) => {
      const { assistantId, idempotencyKey, conversationKey, message, turnId } = request;
      const _id = `${assistantId}:${idempotencyKey}`;
      const dedupeKey = dedupeKeyOf(message);
      const createdAt = serverDate();
      try {
        await keys.insertOne(
          { _id, conversationKey, dedupeKey, turnId, conversationId: null, createdAt },
          { writeConcern: DURABLE },
        );
        return { turnId, state: 'new' };
      } catch (cause) {
        if (!isDuplicateKey(cause)) throw cause;
      }
      const known = await keys.findOne({ _id });
      // The key expired between the insert and the read, so this request counts as new.
      if (!known) return { turnId, state: 'new' };
      if (known.conversationKey !== conversationKey || known.dedupeKey !== dedupeKey) return { state: 'reused' };
      return { turnId: known.turnId, state: 'known' };
    },

    bind: (assistantId, idempotencyKey, conversationId) => {
      keys
        .updateOne({ _id: `${assistantId}:${idempotencyKey}`, conversationId: null }, { $set: { conversationId } })
        .catch(() => undefined);
    },

    erase: (conversationId, { until, unboundBefore }) => {
      if (!isUuid(conversationId)) return Promise.resolve();
      const filter: mongo.Filter<StoredKey> = {
        conversationKey: prefixRange(conversationId),
        $or: [
          { conversationId },
          ...(unboundBefore ? [{ conversationId: null, createdAt: { $lt: unboundBefore } }] : []),
        ],
      };
      return inBatches({ collection: keys, filter, ...(until && { until }) }, (some) => keys.deleteMany(some));
    },
  };
};
