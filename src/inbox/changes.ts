import type { Connection, mongo } from 'mongoose';
import { type ChannelName, conversationModels, type StoredConversation } from '../conversations/conversation.ts';
import { serverDate } from '../platform/clock.ts';
import { invalid, notFound } from '../platform/errors.ts';
import { isUuid, prefixRange } from '../platform/ids.ts';
import { collectionOf, DURABLE } from '../platform/mongo.ts';
import type { ReadAssignees } from './assignees.ts';
import { snoozedUntilOf } from './snooze.ts';

const NO_PLAYGROUND: { $ne: ChannelName } = { $ne: 'playground' };
const SNOOZE_MAX_MS = 366 * 86_400_000;

type Update = Pick<mongo.UpdateFilter<StoredConversation>, '$set' | '$unset'>;

/**
 * Changes that only operators see. They do not change `updatedAt`: callers list conversations by it, and nothing that a
 * caller can see has changed.
 */
export const createInboxChanges = (connection: Connection, readAssignees: ReadAssignees) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const change = async (conversationId: string, update: Update): Promise<StoredConversation> => {
    const changed =
      isUuid(conversationId) &&
      (await conversations.findOneAndUpdate(
        { _id: prefixRange(conversationId), conversationId, channel: NO_PLAYGROUND },
        update,
        { returnDocument: 'after', writeConcern: DURABLE, projection: { texts: 0, outbox: 0, opening: 0 } },
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
        await change(conversationId, { $unset: { assigneeId: 1 } });
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
