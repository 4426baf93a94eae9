import { type Connection, Schema } from 'mongoose';
import { serverDate, serverNow } from '../process/clock.ts';
import { isUuid, prefixRange } from '../process/ids.ts';
import { withDeadline } from '../process/deadline.ts';
import { collectionOf, DURABLE, type Indexed } from '../mongo/mongo.ts';
import { conversationModels, type StoredConversation } from './conversation.ts';
import type { MessagePages } from './stored-pages.ts';

const FIRST_PURGE_MS = 60_000;
const LAST_PURGE_MS = 86_400_000;
/** After this time, another process repeats a purge that was begun and has not ended. */
const PURGE_LEASE_MS = 60_000;
/** The longest time that a caller waits for the purge. Most purges end sooner. */
const PURGED_WITHIN_MS = 1_000;

/** Records that a conversation was erased, so that late writes to it are deleted too. Contains no text. */
type StoredTombstone = { _id: string; assistantId?: string; erasedAt: Date; purgeAt: Date; purgesLeft: number };

/** The collection, whose inserts tell live updates of erasures. */
export const TOMBSTONES = 'tombstones';

const tombstoneSchema = new Schema<StoredTombstone>(
  {
    _id: { type: String, required: true },
    assistantId: { type: String },
    erasedAt: { type: Date, required: true },
    purgeAt: { type: Date, required: true },
    purgesLeft: { type: Number, required: true },
  },
  { collection: TOMBSTONES, versionKey: false },
);
tombstoneSchema.index({ purgeAt: 1 });

/** The assistant is missing in tombstones of earlier versions. */
export type ErasedConversation = { conversationId: string; assistantId?: string | undefined };

/**
 * Erases what other folders store for a conversation: its idempotency keys, and the texts of its deliveries. A later
 * purge says when the conversation was erased, because no request of that time is running any more.
 */
export type EraseElsewhere = (
  erased: ErasedConversation,
  when: { until: AbortSignal; unboundBefore?: Date },
) => Promise<void>;

type Dependencies = {
  connection: Connection;
  pages: MessagePages;
  eraseElsewhere: EraseElsewhere;
  /** After this signal, long purges stop in this process, and another process must finish them. */
  draining: AbortSignal;
};

/**
 * Deletes conversations for good (docs/contract.md, Erase). The conversation's document is deleted first, so that the
 * session can start again immediately.
 */
export type Erasure = {
  models: Indexed[];

  /**
   * Resolves once the document is deleted. `erased` is the deleted conversation, whose waiting callers must be told,
   * or null if it was already deleted. `purged` resolves when everything else is deleted, or after one second. The
   * tombstone ensures that a purge that fails or takes longer is repeated.
   */
  erase: (conversation: Pick<StoredConversation, '_id' | 'conversationId' | 'assistantId'>) => Promise<{
    erased: StoredConversation | null;
    purged: Promise<void>;
  }>;

  /**
   * Repeats due purges. Each conversation is purged again after a minute and after a day, because some writes were in
   * flight when it was erased. Resolves with the number of purges that this process made.
   */
  purgeAgain: () => Promise<number>;
};

export const createErasure = ({ connection, pages, eraseElsewhere, draining }: Dependencies): Erasure => {
  const model = connection.model<StoredTombstone>('Tombstone', tombstoneSchema);
  const tombstones = collectionOf<StoredTombstone>(model);
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const purge = async (erased: ErasedConversation, unboundBefore?: Date): Promise<void> => {
    await pages.erase(erased.conversationId, draining);
    await eraseElsewhere(erased, { until: draining, ...(unboundBefore && { unboundBefore }) });
  };

  const purgeDue = async ({ _id, assistantId, erasedAt, purgesLeft }: StoredTombstone): Promise<void> => {
    // If an erasure stopped before it deleted the document, this call deletes the document.
    if (isUuid(_id))
      await conversations.deleteOne({ _id: prefixRange(_id), conversationId: _id }, { writeConcern: DURABLE });
    await purge({ assistantId, conversationId: _id }, erasedAt);
    if (purgesLeft <= 1) await tombstones.deleteOne({ _id });
    else {
      const purgeAt = new Date(erasedAt.getTime() + LAST_PURGE_MS);
      await tombstones.updateOne({ _id }, { $set: { purgeAt, purgesLeft: purgesLeft - 1 } });
    }
  };

  /** False if another process makes this purge. */
  const lease = async ({ _id, purgeAt }: StoredTombstone): Promise<boolean> => {
    const leased = { $set: { purgeAt: new Date(serverNow() + PURGE_LEASE_MS) } };
    return (await tombstones.updateOne({ _id, purgeAt }, leased)).modifiedCount === 1;
  };

  const giveUp = ({ _id, purgeAt }: StoredTombstone) => tombstones.updateOne({ _id }, { $set: { purgeAt } });

  return {
    models: [model],

    erase: async ({ _id, conversationId, assistantId }) => {
      const now = serverNow();
      await tombstones.updateOne(
        { _id: conversationId },
        {
          $setOnInsert: {
            assistantId, // decides which operators learn of the erasure
            erasedAt: new Date(now),
            purgeAt: new Date(now + FIRST_PURGE_MS),
            purgesLeft: 2,
          },
        },
        { upsert: true, writeConcern: DURABLE },
      );
      const erased = await conversations.findOneAndDelete({ _id, conversationId }, { writeConcern: DURABLE });
      const purged = withDeadline(purge({ assistantId, conversationId }), PURGED_WITHIN_MS).catch(() => undefined);
      return { erased, purged };
    },

    purgeAgain: async () => {
      const due = await tombstones
        .find({ purgeAt: { $lte: serverDate() } })
        .limit(500)
        .toArray();
      let purged = 0;
      let failure: unknown;
      for (const one of due) {
        if (draining.aborted) break;
        // A purge that fails does not stop the other purges. It is due again a minute later, until it succeeds.
        try {
          if (!(await lease(one))) continue;
          await purgeDue(one);
          purged += 1;
        } catch (cause) {
          failure ??= cause;
          // Another process may continue at once.
          if (draining.aborted) await giveUp(one).catch(() => undefined);
        }
      }
      if (failure !== undefined && !draining.aborted) throw failure;
      return purged;
    },
  };
};
