import { type Connection, Schema } from 'mongoose';
import { serverDate, serverNow } from '../platform/clock.ts';
import { prefixRange } from '../platform/ids.ts';
import { withDeadline } from '../platform/deadline.ts';
import { collectionOf, DURABLE } from '../platform/mongo.ts';
import { conversationModels, type StoredConversation } from './conversation.ts';
import type { MessagePages } from './message-pages.ts';

const FIRST_PURGE_MS = 60_000;
const LAST_PURGE_MS = 86_400_000;
/** The caller waits at most this long for the purge. Most purges end sooner. */
const PURGED_WITHIN_MS = 1_000;

/** Records, without text, that a conversation was erased, so that late writes are deleted too. */
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

/** Erases what other folders store for a conversation: its idempotency keys, and the texts of its deliveries. */
export type EraseElsewhere = (conversationId: string, until: AbortSignal) => Promise<void>;

type Dependencies = {
  connection: Connection;
  pages: MessagePages;
  eraseElsewhere: EraseElsewhere;
  /** Once aborted, long purges are left to another process. */
  draining: AbortSignal;
};

/** Hard deletion (docs/contract.md, Erase). The document goes first, so that the session can start again at once. */
export const createErasure = ({ connection, pages, eraseElsewhere, draining }: Dependencies) => {
  const model = connection.model<StoredTombstone>('Tombstone', tombstoneSchema);
  const tombstones = collectionOf<StoredTombstone>(model);
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const purge = async (conversationId: string): Promise<void> => {
    await pages.erase(conversationId, draining);
    await eraseElsewhere(conversationId, draining);
  };

  const purgeDue = async ({ _id, erasedAt, purgesLeft }: StoredTombstone): Promise<void> => {
    // If the erasure stopped before it deleted the document, this finishes it.
    await conversations.deleteOne({ _id: prefixRange(_id), conversationId: _id }, { writeConcern: DURABLE });
    await purge(_id);
    if (purgesLeft <= 1) await tombstones.deleteOne({ _id });
    else {
      const purgeAt = new Date(erasedAt.getTime() + LAST_PURGE_MS);
      await tombstones.updateOne({ _id }, { $set: { purgeAt, purgesLeft: purgesLeft - 1 } });
    }
  };

  return {
    models: [model],

    /**
     * Resolves once the document is deleted. `erased` is the conversation as it was, so that its waiting callers can be
     * told; null if it was deleted before. `purged` resolves when the rest is deleted, or after one second. The
     * tombstone ensures that a purge which takes longer or fails is repeated.
     */
    erase: async ({
      _id,
      conversationId,
    }: Pick<StoredConversation, '_id' | 'conversationId'>): Promise<{
      erased: StoredConversation | null;
      purged: Promise<void>;
    }> => {
      const now = serverNow();
      await tombstones.updateOne(
        { _id: conversationId },
        { $setOnInsert: { erasedAt: new Date(now), purgeAt: new Date(now + FIRST_PURGE_MS), purgesLeft: 2 } },
        { upsert: true, writeConcern: DURABLE },
      );
      const erased = await conversations.findOneAndDelete({ _id, conversationId }, { writeConcern: DURABLE });
      const purged = withDeadline(purge(conversationId), PURGED_WITHIN_MS).catch(() => undefined);
      return { erased, purged };
    },

    /**
     * Repeats the purge after a minute and after a day, for writes that were in flight when the conversation was
     * erased.
     */
    purgeAgain: async (): Promise<number> => {
      const due = await tombstones
        .find({ purgeAt: { $lte: serverDate() } })
        .limit(500)
        .toArray();
      let failure: unknown;
      for (const one of due) {
        if (draining.aborted) break;
        // A purge that fails does not stop the others. It stays due until it succeeds.
        await purgeDue(one).catch((cause: unknown) => {
          failure ??= cause;
        });
      }
      if (failure !== undefined && !draining.aborted) throw failure;
      return due.length;
    },
  };
};

export type Erasure = ReturnType<typeof createErasure>;
