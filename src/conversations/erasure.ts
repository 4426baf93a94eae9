import { type Connection, Schema } from 'mongoose';
import type { DeliveryStore } from '../events/store.ts';
import { serverDate, serverNow } from '../platform/clock.ts';
import { homeRange } from '../platform/ids.ts';
import { collectionOf, DURABLE } from '../platform/mongo.ts';
import { conversationModels, type StoredConversation } from './conversation.ts';
import type { IdempotencyKeys } from './idempotency.ts';
import type { Messages } from './messages.ts';

const FIRST_PURGE_MS = 60_000;
const LAST_PURGE_MS = 86_400_000;

/** Text-free: that a conversation was erased, so that what a slow process still wrote goes too. */
type StoredTombstone = { _id: string; erasedAt: Date; purgeAt: Date; purgesLeft: number };

const tombstoneSchema = new Schema<StoredTombstone>(
  {
    _id: { type: String, required: true },
    erasedAt: { type: Date, required: true },
    purgeAt: { type: Date, required: true },
    purgesLeft: { type: Number, required: true },
  },
  { collection: 'tombstones', versionKey: false },
);
tombstoneSchema.index({ purgeAt: 1 });

type Dependencies = {
  connection: Connection;
  messages: Messages;
  idempotencyKeys: IdempotencyKeys;
  deliveries: DeliveryStore;
};

/** Hard deletion (contract §4): the document first, so that the session may begin anew at once. */
export const createErasure = ({ connection, messages, idempotencyKeys, deliveries }: Dependencies) => {
  const model = connection.model<StoredTombstone>('Tombstone', tombstoneSchema);
  const tombstones = collectionOf<StoredTombstone>(model);
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const purge = async (conversationId: string): Promise<void> => {
    await messages.erase(conversationId);
    await idempotencyKeys.erase(conversationId);
    await deliveries.eraseConversation(conversationId);
  };

  return {
    models: [model],

    /** Answers with the conversation as it was, whose waiting callers are to be told; null = gone already. */
    erase: async ({
      _id,
      conversationId,
    }: Pick<StoredConversation, '_id' | 'conversationId'>): Promise<StoredConversation | null> => {
      const now = serverNow();
      await tombstones.updateOne(
        { _id: conversationId },
        { $setOnInsert: { erasedAt: new Date(now), purgeAt: new Date(now + FIRST_PURGE_MS), purgesLeft: 2 } },
        { upsert: true, writeConcern: DURABLE },
      );
      const erased = await conversations.findOneAndDelete({ _id, conversationId }, { writeConcern: DURABLE });
      await purge(conversationId);
      return erased;
    },

    /** Again after a minute and after a day: for writes that were under way when the conversation was erased. */
    purgeAgain: async (): Promise<number> => {
      const due = await tombstones
        .find({ purgeAt: { $lte: serverDate() } })
        .limit(500)
        .toArray();
      for (const { _id, erasedAt, purgesLeft } of due) {
        // An erasure cut short before it removed the document is finished here.
        await conversations.deleteOne({ _id: homeRange(_id), conversationId: _id }, { writeConcern: DURABLE });
        await purge(_id);
        if (purgesLeft <= 1) await tombstones.deleteOne({ _id });
        else {
          const purgeAt = new Date(erasedAt.getTime() + LAST_PURGE_MS);
          await tombstones.updateOne({ _id }, { $set: { purgeAt, purgesLeft: purgesLeft - 1 } });
        }
      }
      return due.length;
    },
  };
};

export type Erasure = ReturnType<typeof createErasure>;
