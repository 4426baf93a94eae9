import type { Connection } from 'mongoose';
import { conversationModels, type Status, type StoredConversation } from '../conversations/conversation.ts';
import type { FindByWords } from '../insights/conversation-search.ts';
import type { OperatorStore } from '../operators/store.ts';
import { serverDate } from '../platform/clock.ts';
import { notFound } from '../platform/errors.ts';
import { isUuid, prefixRange } from '../platform/ids.ts';
import { collectionOf, timeLimit } from '../platform/mongo.ts';
import { createReadAssignees } from './assignees.ts';
import { createInboxChanges } from './changes.ts';
import { createInboxList } from './list.ts';
import type { InboxRecords } from './records.ts';
import { handlingOf, type InboxRow, toInboxRow } from './row.ts';

const COUNT_WITHIN_MS = 3_000;

export type ConversationIdentity = Pick<StoredConversation, 'assistantId' | 'channel' | 'sessionId'>;

type Dependencies = {
  connection: Connection;
  operators: OperatorStore;
  records: InboxRecords;
  findByWords: FindByWords;
};

/** The conversations as operators see and handle them. */
export const createInbox = ({ connection, operators, records, findByWords }: Dependencies) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);
  const readAssignees = createReadAssignees(operators);
  const { readPositions, notes } = records;

  return {
    ...createInboxChanges(connection, readAssignees),
    list: createInboxList(connection, readAssignees, findByWords),
    readAssignees,

    /** Stores how far an operator has read, at most up to the last message. The position never goes back. */
    markRead: async (conversationId: string, operatorId: string, seq: number): Promise<number> => {
      const filter = { _id: prefixRange(conversationId), conversationId };
      const found = await conversations.findOne(filter, { projection: { seq: 1 } });
      if (!found) throw notFound();
      return readPositions.advance(conversationId, operatorId, Math.min(seq, found.seq));
    },

    /** Turns conversations into rows. Without an operator, the rows have no read position. */
    toRows: async (some: StoredConversation[], operatorId: string | null): Promise<InboxRow[]> => {
      const ids = some.map(({ conversationId }) => conversationId);
      const [assignees, positions] = await Promise.all([
        readAssignees(),
        operatorId === null ? new Map<string, number>() : readPositions.find(ids, operatorId),
      ]);
      const now = serverDate();
      return some.map((one) => toInboxRow(one, { assignees, now, readSeq: positions.get(one.conversationId) ?? null }));
    },

    /** Everything that operators see beside the messages of a conversation. */
    readDetails: async (conversation: StoredConversation, operatorId: string) => {
      const { conversationId } = conversation;
      const [assignees, positions, noted] = await Promise.all([
        readAssignees(),
        readPositions.find([conversationId], operatorId),
        notes.list(conversationId),
      ]);
      return {
        ...handlingOf(conversation, { assignees, now: serverDate() }),
        readSeq: positions.get(conversationId) ?? null,
        notes: noted,
      };
    },

    /** The assistant, channel and session of a conversation, without its messages. */
    findOwner: async (conversationId: string): Promise<ConversationIdentity | null> => {
      if (!isUuid(conversationId)) return null;
      const filter = { _id: prefixRange(conversationId), conversationId };
      return conversations.findOne<ConversationIdentity>(filter, {
        projection: { assistantId: 1, channel: 1, sessionId: 1 },
      });
    },

    /** Counts conversations that changed at or after `since`, by status. */
    countStatuses: async (assistantId: string, since: Date): Promise<Partial<Record<Status, number>>> => {
      const rows = await conversations
        .aggregate<{ _id: Status; count: number }>(
          [
            { $match: { assistantId, updatedAt: { $gte: since }, channel: { $ne: 'playground' } } },
            { $group: { _id: '$status', count: { $sum: 1 } } },
          ],
          timeLimit(COUNT_WITHIN_MS),
        )
        .toArray();
      return Object.fromEntries(rows.map(({ _id, count }) => [_id, count]));
    },
  };
};

export type Inbox = ReturnType<typeof createInbox>;
