import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection, mongo } from 'mongoose';
import type { ConversationEvent } from '../webhooks/event.ts';
import { serverDate } from '../process/clock.ts';
import { ApiError, notFound } from '../process/errors.ts';
import { collectionOf, DURABLE } from '../mongo/mongo.ts';
import { type Announce, newOutboxEvent, type ReceiversOf, sentEvents } from './announce.ts';
import { type Compact, pushFinished, trimmedFields } from './commit.ts';
import { conversationModels, type Message, type StoredConversation } from './conversation.ts';
import type { MessagePages } from './stored-pages.ts';

const MAX_TRIES = 50;

/** Fields that only operators see. Callers list conversations by `updatedAt`, so a change of these leaves it. */
const INTERNAL: ReadonlySet<string> = new Set<keyof StoredConversation>(['remindedAt', 'takeBy', 'waitingSince']);

/** What a transition writes: fields, messages and an event. `when` is what it has read beside the usual fields. */
export type Change = {
  set?: Partial<StoredConversation>;
  /** Each message gets the next `seq`. */
  messages?: Message[];
  event?: ConversationEvent;
  /** `taken`: the take-by time and the reminder are removed. `reminded`: only the take-by time. */
  takeBy?: 'taken' | 'reminded';
  /** True if the assignment ends. */
  unassign?: boolean;
  when?: mongo.Filter<StoredConversation>;
};

/** `changed` is false if the conversation was already in the wanted state. */
export type Changed = { conversation: StoredConversation; announced: boolean; changed: boolean };

/** If `assistantId` is given, the conversation must belong to that assistant. */
export type ConversationRef = { conversationId: string; assistantId?: string };

type Dependencies = {
  connection: Connection;
  pages: MessagePages;
  compact: Compact;
  announce: Announce;
  findById: (conversationId: string, assistantId?: string) => Promise<StoredConversation | null>;
};

/**
 * Changes a conversation by compare-and-set: reads it, asks `changeOf` what to change, and writes that only if the
 * conversation is still as it was read. Otherwise it begins again. `changeOf` returns null if nothing is to be changed.
 */
export type ChangeConversation = (
  where: ConversationRef,
  changeOf: (conversation: StoredConversation) => Change | null | Promise<Change | null>,
) => Promise<Changed>;

export const createChangeConversation = ({
  connection,
  pages,
  compact,
  announce,
  findById,
}: Dependencies): ChangeConversation => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const write = async (read: StoredConversation, change: Change, receiversOf: ReceiversOf): Promise<Changed | null> => {
    const { set = {}, messages = [], event, takeBy, unassign, when } = change;
    const compaction = messages.length > 0 ? await compact(read, 0) : null;
    if (compaction === 'changed') return null;
    const entries = messages.map((message, nth) => ({ seq: read.seq + 1 + nth, message }));
    const now = messages[0]?.createdAt ?? serverDate();
    const isVisible = messages.length > 0 || Object.keys(set).some((field) => !INTERNAL.has(field));
    const sent = entries.flatMap(({ seq, message }) => sentEvents([message], seq, read.language));
    const events = [...(event ? [event] : []), ...sent]
      .map((one) => newOutboxEvent(one, receiversOf, now))
      .filter((one) => one !== null);
    const conversation = await conversations.findOneAndUpdate(
      {
        _id: read._id,
        conversationId: read.conversationId,
        seq: read.seq,
        status: read.status,
        leadScore: read.leadScore,
        tags: read.tags,
        ...when,
      },
      {
        $set: {
          ...set,
          ...(entries.length > 0 && { seq: read.seq + entries.length }),
          ...Object.fromEntries(entries.map(({ seq, message }) => [`texts.${seq}`, [message]])),
          ...(compaction && { storedTo: compaction.storedTo }),
        },
        $unset: {
          ...(compaction && trimmedFields(compaction)),
          ...(takeBy && { takeBy: 1 }),
          ...(takeBy === 'taken' && { remindedAt: 1 }),
          ...(unassign && { assigneeId: 1 }),
        },
        $push: {
          ...(compaction && { recent: pushFinished([], compaction) }),
          ...(events.length > 0 && { outbox: { $each: events } }),
        },
        ...(isVisible && { $currentDate: { updatedAt: true } }),
      },
      { returnDocument: 'after', writeConcern: DURABLE },
    );
    if (conversation) return { conversation, announced: events.length > 0, changed: true };
    if (compaction) await pages.eraseIfGone(read);
    return null;
  };

  return async ({ conversationId, assistantId }, changeOf) => {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const read = await findById(conversationId, assistantId);
      if (!read) throw notFound();
      const change = await changeOf(read);
      if (!change) return { conversation: read, announced: false, changed: false };
      const changed = await announce(read, (receiversOf) => write(read, change, receiversOf));
      if (changed) return changed;
      await sleep(tries);
    }
    throw new ApiError('internal_error', {
      cause: new Error('a conversation changed faster than it could be written'),
    });
  };
};
