import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from 'mongoose';
import { inSlot } from '../platform/http/request-slots.ts';
import { collectionOf, DURABLE, type Update } from '../platform/mongo/mongo.ts';
import { serverDate } from '../platform/process/clock.ts';
import { ApiError, notFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { createSlots } from '../platform/process/slots.ts';
import { type Announce, type ReceiversOf, toOutbox } from './outbox.ts';
import { type Compact, updateWith } from './commit.ts';
import {
  type AttributeChange,
  conversationModels,
  type ConversationState,
  type StoredConversation,
  unchangedFilter,
  WITHOUT_CONTENTS,
} from './conversation.ts';
import type { MessagePages } from './history.ts';
import { act, type Effect, isVisible, type Moment, type TakeByEnd } from './state.ts';

const MAX_TRIES = 50;

/** `changed` is false if the conversation was already in the wanted state. */
type Changed = { conversation: ConversationState; announced: boolean; changed: boolean };

/** If `assistantId` is given, the conversation must belong to that assistant. */
type ConversationRef = { conversationId: string; assistantId?: string };

type Dependencies = {
  connection: Connection;
  update: Update;
  pages: MessagePages;
  compact: Compact;
  announce: Announce;
  findState: (conversationId: string, assistantId?: string) => Promise<ConversationState | null>;
  findTakeBy: TakeBy['findTakeBy'];
};

/**
 * Changes a conversation by compare-and-set: reads it, asks `changeOf` what to change, and writes that only if the
 * conversation is still as it was read. Otherwise it begins again. `changeOf` returns null if nothing is to be changed.
 * Changes of one conversation take turns in a process. A hundred at once would make each other begin again.
 */
type ChangeConversation = (
  where: ConversationRef,
  changeOf: (conversation: ConversationState) => Effect | null | Promise<Effect | null>,
) => Promise<Changed>;

export const createChangeConversation = (dependencies: Dependencies): ChangeConversation => {
  const { connection, update, pages, compact, announce, findState, findTakeBy } = dependencies;
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const write = async (read: ConversationState, effect: Effect, receiversOf: ReceiversOf): Promise<Changed | null> => {
    const { entries, dependsOn } = effect;
    const compaction = entries.length > 0 ? await compact(read, 0) : null;
    if (compaction === 'changed') return null;
    const at = entries[0]?.messages[0]?.createdAt ?? serverDate();
    const events = toOutbox(effect.events, receiversOf, { key: read._id, at });
    const { _id, assistantId, conversationId, seq, status, leadScore, tags } = read;
    const conversation = await update([_id, assistantId], () =>
      conversations.findOneAndUpdate(
        { _id, conversationId, seq, status, leadScore, tags, ...unchangedFilter(read, dependsOn) },
        {
          ...updateWith({ ...effect, events, compaction }),
          ...(isVisible(effect) && { $currentDate: { updatedAt: true } }),
        },
        { projection: WITHOUT_CONTENTS, returnDocument: 'after', writeConcern: DURABLE },
      ),
    );
    if (conversation) return { conversation, announced: events.length > 0, changed: true };
    if (compaction) await pages.eraseIfGone(read);
    return null;
  };

  /** With the take-by time of an escalation that somebody must take. Null if nothing changes. */
  const timed = async (read: ConversationState, effect: Effect | null): Promise<Effect | null> => {
    if (!effect?.mustBeTaken) return effect;
    const takeBy = await findTakeBy({ ...read, ...effect.changes }, effect.changes.escalatedAt ?? serverDate());
    if (takeBy) return { ...effect, changes: { ...effect.changes, takeBy } };
    return Object.keys(effect.changes).length > 0 ? effect : null;
  };

  const turns = createSlots(({ own }) => own < 1);
  const change: ChangeConversation = async ({ conversationId, assistantId }, changeOf) => {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const read = await findState(conversationId, assistantId);
      if (!read) throw notFound();
      const wanted = await timed(read, await changeOf(read));
      if (!wanted) return { conversation: read, announced: false, changed: false };
      const changed = await announce(read, (receiversOf) => write(read, wanted, receiversOf));
      if (changed) return changed;
      await sleep(tries);
    }
    throw new ApiError('internal_error', {
      cause: new Error('a conversation changed faster than it could be written'),
    });
  };

  return (where, changeOf) => inSlot(turns, where.conversationId, () => change(where, changeOf));
};

type Escalated = Pick<StoredConversation, 'assistantId' | 'channel' | 'assigneeId'>;

/** Who has a conversation depends on operators, whom this folder does not know (src/inbox/assignees.ts). */
export type TakeBy = {
  /** True if somebody has it: its assignee is enabled and may use the assistant. */
  isTaken: (conversation: Escalated) => Promise<boolean>;
  /** The take-by time of an escalation that begins at `at`. Null if somebody has it, or if there is no limit. */
  findTakeBy: (conversation: Escalated, at: Date) => Promise<Date | null>;
};

/** The present moment, with ids for two messages. */
export const momentNow = (): Moment => ({ at: serverDate(), ids: [newId(), newId()] });

/**
 * Changes that people make to a conversation (docs/contract.md, States). Each change is one compare-and-set on the
 * conversation as it was read. If a change adds messages, the same write gives them the next numbers. If the
 * conversation is already in the target state, nothing is changed or announced.
 */
export type Transitions = {
  /**
   * Escalates a conversation. If the conversation is already escalated, its first reason is kept. A given lead score
   * replaces the stored score. A resolved conversation becomes escalated too.
   */
  escalate: (where: ConversationRef, input: { reason?: string; leadScore?: number }) => Promise<Changed>;

  handBack: (where: ConversationRef) => Promise<Changed>;

  /**
   * Ends the take-by time of an escalation that nobody took. Only one caller ends it: the write requires the time that
   * was read, and removes it.
   */
  endTakeBy: (where: ConversationRef, end: TakeByEnd) => Promise<Changed>;

  /** Gives an escalation whose assignee can no longer take it a take-by time, as if it had been escalated now. */
  startTakeBy: (where: ConversationRef) => Promise<Changed>;

  /** Assigns the conversation to nobody. An escalation must then be taken again. */
  unassign: (where: ConversationRef) => Promise<Changed>;

  resolve: (where: ConversationRef, operatorId: string) => Promise<Changed>;
  reopen: (where: ConversationRef) => Promise<Changed>;
  addTag: (where: ConversationRef, tag: { tag: string; color: string | null }) => Promise<Changed>;
  removeTag: (where: ConversationRef, tag: string) => Promise<Changed>;

  /** Sets and removes attributes. They are announced to nobody. */
  setAttributes: (where: ConversationRef, changes: AttributeChange[]) => Promise<Changed>;

  /** Adds a message of an operator. The visitor no longer waits; the status does not change. */
  replyAsOperator: (where: ConversationRef, content: string) => Promise<Changed & { messageId: string; seq: number }>;
};

export const createTransitions = (apply: ChangeConversation, isTaken: TakeBy['isTaken']): Transitions => ({
  escalate: (where, input) => apply(where, (read) => act.escalate(read, input, momentNow())),
  handBack: (where) => apply(where, (read) => act.handBack(read, {}, momentNow())),
  endTakeBy: (where, end) =>
    apply(where, async (read) => act.endTakeBy(read, { end, isTaken: await isTaken(read) }, momentNow())),
  startTakeBy: (where) => apply(where, act.startTakeBy),
  unassign: (where) => apply(where, act.unassign),
  resolve: (where, operatorId) => apply(where, (read) => act.resolve(read, operatorId, momentNow())),
  reopen: (where) => apply(where, act.reopen),
  addTag: (where, tag) => apply(where, (read) => act.addTag(read, tag)),
  removeTag: (where, tag) => apply(where, (read) => act.removeTag(read, tag)),
  setAttributes: (where, changes) => apply(where, (read) => act.setAttributes(read, changes)),

  replyAsOperator: async (where, content) => {
    const moment = momentNow();
    const changed = await apply(where, (read) => act.reply(read, content, moment));
    return { ...changed, messageId: moment.ids[0], seq: changed.conversation.seq };
  },
});
