import { type Connection, Schema } from 'mongoose';
import { serverDate, serverNow } from '../platform/clock.ts';
import { prefixRange } from '../platform/ids.ts';
import { withDeadline } from '../platform/deadline.ts';
import { collectionOf, DURABLE } from '../platform/mongo.ts';
import { conversationModels, type StoredConversation } from './conversation.ts';
import type { MessagePages } from './message-pages.ts';

const FIRST_PURGE_MS = 60_000;
const LAST_PURGE_MS = 86_400_000;
/** Most conversations are gone altogether by then, and their caller hears so; none waits longer. */
const PURGED_WITHIN_MS = 1_000;

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

/** Erases what other folders keep of a conversation: its idempotency keys, and the texts of its deliveries. */
export type EraseElsewhere = (conversationId: string, until: AbortSignal) => Promise<void>;

type Dependencies = {
  connection: Connection;
  pages: MessagePages;
  eraseElsewhere: EraseElsewhere;
  /** From then on what takes long is left to another process. */
  draining: AbortSignal;
};

/** Hard deletion (docs/contract.md, Erase): the document first, so that the session may begin anew at once. */
export const createErasure = ({ connection, pages, eraseElsewhere, draining }: Dependencies) => {
  const model = connection.model<StoredTombstone>('Tombstone', tombstoneSchema);
  const tombstones = collectionOf<StoredTombstone>(model);
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const purge = async (conversationId: string): Promise<void> => {
    await pages.erase(conversationId, draining);
    await eraseElsewhere(conversationId, draining);
  };

  const purgeDue = async ({ _id, erasedAt, purgesLeft }: StoredTombstone): Promise<void> => {
    // An erasure cut short before it removed the document is finished here.
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
     * Answers once the document is gone, with the conversation as it was, whose waiting callers are to be told; null = gone
     * already. The rest goes next: `purged` waits for it, but not for what takes long, and where that breaks off the
     * tombstone has it done.
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

    /** Again after a minute and after a day: for writes that were under way when the conversation was erased. */
    purgeAgain: async (): Promise<number> => {
      const due = await tombstones
        .find({ purgeAt: { $lte: serverDate() } })
        .limit(500)
        .toArray();
      let failure: unknown;
      for (const one of due) {
        if (draining.aborted) break;
        // One that fails does not keep the others waiting; it is due until it succeeds.
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
