import type { Connection } from 'mongoose';
import { collectionOf, timeLimit } from '../platform/mongo.ts';
import { exceededTimeLimit } from '../platform/mongo-failures.ts';
import { conversationModels, type StoredConversation } from '../conversations/conversation.ts';
import { type Outbox, OUTBOX_FIELDS } from './outbox.ts';

const LIST_WITHIN_MS = 2_000;

/** Finds pending events that operators see: lists, counts and single events. */
export const createPending = (connection: Connection) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  return {
    /** The outboxes with pending events, of an assistant or of one of its conversations. */
    find: async (
      { assistantId, conversationId }: { assistantId: string; conversationId?: string | undefined },
      limit: number,
    ): Promise<Outbox[]> => {
      const owner = { assistantId, ...(conversationId !== undefined && { conversationId }) };
      const findHaving = (having: object, hint: string) =>
        conversations
          .find({ ...owner, ...having }, { projection: OUTBOX_FIELDS, ...timeLimit(LIST_WITHIN_MS) })
          .hint(hint)
          .limit(limit)
          .toArray();
      const rows = await Promise.all([
        findHaving({ 'outbox.0': { $exists: true } }, 'outbox_heads'),
        findHaving({ opening: { $exists: true } }, 'openings'),
      ]);
      return [...new Map(rows.flat().map((row) => [row._id, row as Outbox])).values()];
    },

    /**
     * The number of pending events in the first `limit` conversations. An event counts once for each of its endpoints.
     */
    count: async (assistantId: string, limit: number): Promise<number> => {
      const sizeOfEach = (event: string) => ({ $size: { $ifNull: [event, []] } });
      const sum = async (having: object, size: object, hint: string): Promise<number> => {
        const stages = [
          { $match: { assistantId, ...having } },
          { $limit: limit },
          { $group: { _id: null, count: { $sum: size } } },
        ];
        const rows = await conversations
          .aggregate<{ count: number }>(stages, { hint, ...timeLimit(LIST_WITHIN_MS) })
          .toArray();
        return rows[0]?.count ?? 0;
      };
      const [openings, outboxes] = await Promise.all([
        sum({ opening: { $exists: true } }, sizeOfEach('$opening.endpoints'), 'openings'),
        sum(
          { 'outbox.0': { $exists: true } },
          { $reduce: { input: '$outbox', initialValue: 0, in: { $add: ['$$value', sizeOfEach('$$this.endpoints')] } } },
          'outbox_heads',
        ),
      ]);
      return openings + outboxes;
    },

    /** The outbox in which this event is pending. */
    findByEvent: async (eventId: string): Promise<Outbox | null> => {
      const findHaving = (having: object, hint: string) =>
        conversations
          .find(having, { projection: OUTBOX_FIELDS, ...timeLimit(LIST_WITHIN_MS) })
          .hint(hint)
          .limit(1)
          .toArray()
          .catch((cause: unknown) => {
            // With very many pending events, the search takes too long. The event then counts as not found.
            if (exceededTimeLimit(cause)) return [];
            throw cause;
          });
      const [openings, outboxes] = await Promise.all([
        findHaving({ opening: { $exists: true }, 'opening.eventId': eventId }, 'openings'),
        findHaving({ 'outbox.0': { $exists: true }, 'outbox.eventId': eventId }, 'outbox_heads'),
      ]);
      return openings[0] ?? outboxes[0] ?? null;
    },
  };
};

export type Pending = ReturnType<typeof createPending>;
