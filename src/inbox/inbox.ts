import type { Connection, mongo } from 'mongoose';
import {
  type ChannelName,
  conversationModels,
  type Status,
  type StoredConversation,
} from '../conversations/conversation.ts';
import type { Transitions } from '../conversations/transitions.ts';
import type { FindByWords } from '../insights/conversation-search.ts';
import type { OperatorStore } from '../operators/store.ts';
import { serverDate } from '../process/clock.ts';
import { invalid, notFound } from '../process/errors.ts';
import { isUuid, prefixRange } from '../process/ids.ts';
import { collectionOf, DURABLE, timeLimit } from '../mongo/mongo.ts';
import { createReadAssignees, type ReadAssignees } from './assignees.ts';
import { createInboxList, handlingOf, type InboxRow, snoozedUntilOf, toInboxRow } from './list.ts';
import type { InboxRecords } from './records.ts';

const NO_PLAYGROUND: { $ne: ChannelName } = { $ne: 'playground' };
const SNOOZE_MAX_MS = 366 * 86_400_000;

type Update = Pick<mongo.UpdateFilter<StoredConversation>, '$set' | '$unset'>;

/**
 * Changes that only operators see. They do not change `updatedAt`: callers list conversations by it, and nothing that a
 * caller can see has changed.
 */
const createInboxChanges = (
  connection: Connection,
  { readAssignees, unassign }: { readAssignees: ReadAssignees; unassign: Transitions['unassign'] },
) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const change = async (conversationId: string, update: Update): Promise<StoredConversation> => {
    const changed =
      isUuid(conversationId) &&
      (await conversations.findOneAndUpdate(
        { _id: prefixRange(conversationId), conversationId, channel: NO_PLAYGROUND },
        update,
        { returnDocument: 'after', writeConcern: DURABLE, projection: { texts: 0, outbox: 0 } },
      ));
    if (!changed) throw notFound();
    return changed;
  };

  return {
    /** Assigns the conversation to an operator, or to nobody. An assigned conversation counts as taken. */
    assign: async (
      { conversationId, assistantId }: Pick<StoredConversation, 'conversationId' | 'assistantId'>,
      operatorId: string | null,
    ): Promise<void> => {
      if (operatorId === null) {
        await unassign({ conversationId, assistantId });
        return;
      }
      const assignees = await readAssignees();
      if (!assignees.find(operatorId, assistantId))
        throw invalid('operatorId', 'unknown', 'must be an enabled operator who may use this assistant');
      await change(conversationId, { $set: { assigneeId: operatorId }, $unset: { takeBy: 1, remindedAt: 1 } });
    },

    /** Marks that the notes have changed, for live updates. */
    markNoted: async (conversationId: string): Promise<void> => {
      await change(conversationId, { $set: { notedAt: serverDate() } });
    },

    /** Hides the conversation until a time or until the visitor writes. Null ends the snooze. */
    snooze: async (conversationId: string, until: Date | null): Promise<Date | null> => {
      const now = serverDate();
      if (until !== null && (until <= now || until.getTime() > now.getTime() + SNOOZE_MAX_MS))
        throw invalid('until', 'out_of_range', 'must be in the future, and within a year');
      const update = until
        ? { $set: { snoozedUntil: until, snoozedAt: now } }
        : { $unset: { snoozedUntil: 1 as const, snoozedAt: 1 as const } };
      return snoozedUntilOf(await change(conversationId, update), now);
    },
  };
};

const COUNT_WITHIN_MS = 3_000;

type ConversationIdentity = Pick<StoredConversation, 'assistantId' | 'channel' | 'sessionId'>;

type Dependencies = {
  connection: Connection;
  operators: OperatorStore;
  records: InboxRecords;
  findByWords: FindByWords;
  unassign: Transitions['unassign'];
};

/** The conversations as operators see and handle them. */
export const createInbox = ({ connection, operators, records, findByWords, unassign }: Dependencies) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);
  const readAssignees = createReadAssignees(operators);
  const { readPositions } = records;

  return {
    ...createInboxChanges(connection, { readAssignees, unassign }),
    list: createInboxList(connection, readAssignees, findByWords),
    readAssignees,

    /** Stores how far an operator has read, at most up to the last message. The position never goes back. */
    markRead: async (conversationId: string, operatorId: string, seq: number): Promise<number> => {
      if (!isUuid(conversationId)) throw notFound();
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

    /** What operators see beside the messages and notes of a conversation. */
    readDetails: async (conversation: StoredConversation, operatorId: string) => {
      const { conversationId } = conversation;
      const [assignees, positions] = await Promise.all([
        readAssignees(),
        readPositions.find([conversationId], operatorId),
      ]);
      return {
        ...handlingOf(conversation, { assignees, now: serverDate() }),
        readSeq: positions.get(conversationId) ?? null,
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
