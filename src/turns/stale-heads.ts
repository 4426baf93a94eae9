import type { Connection } from 'mongoose';
import { conversationModels, type StoredConversation } from '../conversations/conversation.ts';
import { collectionOf, updateMany } from '../platform/mongo.ts';

/** The head of a session's pending turns, and when a job for it was last added. */
export type StaleHead = { key: string; turnId: string; headSince: Date; queuedAt: Date };

/** Finds heads that have waited for so long that their job may be lost. */
export const createStaleHeads = (connection: Connection) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  return {
    /** Finds heads that have waited longer than `olderThanMs`, by MongoDB's clock. */
    find: async (olderThanMs: number, limit: number): Promise<StaleHead[]> => {
      const older = (path: string | object) => ({ $lt: [path, { $subtract: ['$$NOW', olderThanMs] }] });
      const rows = await conversations
        .find(
          {
            'waiting.0': { $exists: true },
            $expr: { $and: [older('$headSince'), older({ $arrayElemAt: ['$waiting.acceptedAt', 0] })] },
          },
          { projection: { conversationId: 1, headSince: 1, 'waiting.turnId': 1, 'waiting.acceptedAt': 1 } },
        )
        .hint('waiting_heads')
        .limit(limit)
        .toArray();
      return rows.flatMap(({ _id: key, headSince, waiting: [head] }) =>
        head
          ? [{ key, turnId: head.turnId, headSince, queuedAt: new Date(Math.max(+headSince, +head.acceptedAt)) }]
          : [],
      );
    },

    /**
     * Records that a job is being added for these heads. If several sweeps record this concurrently, only one of them
     * changes the document.
     */
    renew: async (heads: StaleHead[]): Promise<void> => {
      if (heads.length === 0) return;
      await updateMany(
        connection,
        'conversations',
        heads.map(({ key, turnId, headSince }) => ({
          q: { _id: key, 'waiting.0.turnId': turnId, headSince },
          u: { $currentDate: { headSince: true } },
        })),
      );
    },
  };
};

export type StaleHeads = ReturnType<typeof createStaleHeads>;
