import type { Connection, mongo } from 'mongoose';
import { prefixRange, isUuid } from '../platform/ids.ts';
import { collectionOf, timeLimit } from '../platform/mongo.ts';
import { conversationModels, type Status, type StoredConversation } from '../conversations/conversation.ts';

/** A search that takes longer than this is ended. The operator then has to search for less. */
const WITHIN_MS = 3_000;
const LIST_FIELDS = { outbox: 0, opening: 0, texts: 0, recent: 0, waiting: 0 } as const;

export type ConversationIdentity = Pick<StoredConversation, 'assistantId' | 'channel' | 'sessionId'>;

export type InboxFilter = {
  assistantId: string;
  status?: Status;
  tag?: string;
  /** A conversationId, or a part of a `session_id`. */
  search?: string;
  sessionId?: string;
  after?: { at: Date; id: string };
  limit: number;
};

/** Escapes the search text, so that no character in it acts as a pattern. */
const escapeRegExp = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

const queryOf = ({
  assistantId,
  status,
  tag,
  search,
  sessionId,
  after,
}: InboxFilter): mongo.Filter<StoredConversation> => ({
  assistantId,
  channel: { $ne: 'playground' },
  ...(status && { status }),
  ...(tag !== undefined && { 'tags.tag': tag }),
  ...(search !== undefined &&
    (isUuid(search)
      ? { _id: prefixRange(search), conversationId: search }
      : { sessionId: { $regex: escapeRegExp(search), $options: 'i' } })),
  ...(sessionId !== undefined && { $and: [{ sessionId }] }),
  ...(after && {
    $or: [{ updatedAt: { $lt: after.at } }, { updatedAt: after.at, _id: { $lt: after.id } }],
  }),
});

/** Conversations for operators, ordered by latest change. Playground conversations are excluded. */
export const createInbox = (connection: Connection) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  return {
    /** The assistant, channel and session of a conversation, without its messages. */
    findOwner: async (conversationId: string): Promise<ConversationIdentity | null> => {
      if (!isUuid(conversationId)) return null;
      const filter = { _id: prefixRange(conversationId), conversationId };
      return conversations.findOne<ConversationIdentity>(filter, {
        projection: { assistantId: 1, channel: 1, sessionId: 1 },
      });
    },

    list: async (filter: InboxFilter) => {
      const rows = await conversations
        .find(queryOf(filter), { projection: LIST_FIELDS, ...timeLimit(WITHIN_MS) })
        .sort({ updatedAt: -1, _id: -1 })
        .limit(filter.limit + 1)
        .toArray();
      const page = rows.slice(0, filter.limit);
      const last = rows.length > filter.limit ? page.at(-1) : undefined;
      return { conversations: page, next: last ? { at: last.updatedAt, id: last._id } : null };
    },

    /** Counts conversations that changed at or after `since`, by status. */
    countStatuses: async (assistantId: string, since: Date): Promise<Partial<Record<Status, number>>> => {
      const rows = await conversations
        .aggregate<{ _id: Status; count: number }>(
          [
            { $match: { assistantId, updatedAt: { $gte: since }, channel: { $ne: 'playground' } } },
            { $group: { _id: '$status', count: { $sum: 1 } } },
          ],
          timeLimit(WITHIN_MS),
        )
        .toArray();
      return Object.fromEntries(rows.map(({ _id, count }) => [_id, count]));
    },
  };
};

export type Inbox = ReturnType<typeof createInbox>;
