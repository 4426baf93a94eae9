import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Connection, mongo } from 'mongoose';
import { inSlot } from '../http/shares.ts';
import { collectionOf, DURABLE } from '../mongo/mongo.ts';
import { serverDate } from '../process/clock.ts';
import { ApiError, invalid, notFound } from '../process/errors.ts';
import { newId } from '../process/ids.ts';
import { createSlots } from '../process/slots.ts';
import type { ConversationEvent } from '../webhooks/event.ts';
import { type Announce, countAnnounced, newOutboxEvent, type ReceiversOf, sentEvents } from './outbox.ts';
import { type Compact, pushFinished, trimmedFields } from './commit.ts';
import {
  assigneeOf,
  type AttributeChange,
  conversationModels,
  type ConversationState,
  mergeAttributes,
  type Message,
  REOPENED,
  type StoredConversation,
  WITHOUT_CONTENTS,
} from './conversation.ts';
import type { MessagePages } from './history.ts';

const MAX_TRIES = 50;

/** Fields that only operators see. Changing them does not set `updatedAt`, because callers list conversations by it. */
const INTERNAL: ReadonlySet<string> = new Set<keyof StoredConversation>(['remindedAt', 'takeBy', 'waitingSince']);

/** What a transition writes: fields, messages and an event. `when`: what must be unchanged beside the usual fields. */
type Change = {
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
type Changed = { conversation: ConversationState; announced: boolean; changed: boolean };

/** If `assistantId` is given, the conversation must belong to that assistant. */
type ConversationRef = { conversationId: string; assistantId?: string };

type Dependencies = {
  connection: Connection;
  pages: MessagePages;
  compact: Compact;
  announce: Announce;
  findState: (conversationId: string, assistantId?: string) => Promise<ConversationState | null>;
};

/**
 * Changes a conversation by compare-and-set: reads it, asks `changeOf` what to change, and writes that only if the
 * conversation is still as it was read. Otherwise it begins again. `changeOf` returns null if nothing is to be changed.
 * Changes of one conversation take turns in a process. A hundred at once would make each other begin again.
 */
type ChangeConversation = (
  where: ConversationRef,
  changeOf: (conversation: ConversationState) => Change | null | Promise<Change | null>,
) => Promise<Changed>;

export const createChangeConversation = ({
  connection,
  pages,
  compact,
  announce,
  findState,
}: Dependencies): ChangeConversation => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const write = async (read: ConversationState, change: Change, receiversOf: ReceiversOf): Promise<Changed | null> => {
    const { set = {}, messages = [], event, takeBy, unassign, when } = change;
    const compaction = messages.length > 0 ? await compact(read, 0) : null;
    if (compaction === 'changed') return null;
    const entries = messages.map((message, nth) => ({ seq: read.seq + 1 + nth, message }));
    const now = messages[0]?.createdAt ?? serverDate();
    const isVisible = messages.length > 0 || Object.keys(set).some((field) => !INTERNAL.has(field));
    const sent = entries.flatMap(({ seq, message }) => sentEvents([message], seq, read.language));
    const events = [...(event ? [event] : []), ...sent]
      .map((one) => newOutboxEvent(one, receiversOf, { at: now }))
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
        ...countAnnounced(events),
        ...(isVisible && { $currentDate: { updatedAt: true } }),
      },
      { projection: WITHOUT_CONTENTS, returnDocument: 'after', writeConcern: DURABLE },
    );
    if (conversation) return { conversation, announced: events.length > 0, changed: true };
    if (compaction) await pages.eraseIfGone(read);
    return null;
  };

  const turns = createSlots(({ own }) => own < 1);
  const change: ChangeConversation = async ({ conversationId, assistantId }, changeOf) => {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const read = await findState(conversationId, assistantId);
      if (!read) throw notFound();
      const wanted = await changeOf(read);
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

const systemMessage = (content: string, createdAt: Date): Message => ({
  messageId: newId(),
  turnId: null,
  role: 'system',
  content,
  language: null,
  createdAt,
});

const HANDOFF = 'Handed off to a human: ';
const HAND_BACK = 'Handed back to the assistant';

export const handoffMessage = (reason: string, createdAt: Date): Message =>
  systemMessage(`${HANDOFF}${reason}`, createdAt);
const handBackMessage = (createdAt: Date): Message => systemMessage(HAND_BACK, createdAt);

/** What a system message records. */
export const readSystemMessage = (
  content: string,
): { kind: 'handoff'; reason: string } | { kind: 'handBack' } | null => {
  if (content.startsWith(HANDOFF)) return { kind: 'handoff', reason: content.slice(HANDOFF.length) };
  return content.startsWith(HAND_BACK) ? { kind: 'handBack' } : null;
};

/** What the visitor reads when the assistant answers again because nobody took the conversation in time. */
const notTakenMessage = (
  content: string,
  { language }: Pick<StoredConversation, 'language'>,
  createdAt: Date,
): Message => ({ messageId: newId(), turnId: null, role: 'assistant', content, language, createdAt });

/** How many resolutions are kept: more than happen between two rounds of the projection, which counts them. */
const KEPT = 20;

/** Adds a resolution. Its time is later than all earlier ones, because the projection counts only later times. */
const withResolution = ({ resolutions: before = [] }: Pick<StoredConversation, 'resolutions'>, now: Date): Date[] => {
  const last = before.at(-1)?.getTime() ?? 0;
  return [...before, new Date(Math.max(now.getTime(), last + 1))].slice(-KEPT);
};

const MAX_TAGS = 50;

const DEFAULT_ESCALATION_REASON = 'manual';

type Held = Pick<StoredConversation, 'assistantId' | 'channel' | 'assigneeId'>;

/** Who has a conversation depends on operators, whom this folder does not know (src/inbox/assignees.ts). */
export type TakeBy = {
  /** True if somebody has it: its assignee is enabled and may use the assistant. */
  isTaken: (conversation: Held) => Promise<boolean>;
  /** The take-by time of an escalation that begins at `at`. Null if somebody has it, or if there is no limit. */
  findTakeBy: (conversation: Held, at: Date) => Promise<Date | null>;
};

const withoutAssignee = ({ assigneeId: _ended, ...rest }: ConversationState): Held => rest;

/** What happens to an escalation that nobody took in time. `said` is the sentence for the visitor. */
export type TakeByEnd = { how: 'remind' | 'stay' } | { how: 'hand_back'; said: string };

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

export const createTransitions = (apply: ChangeConversation, { isTaken, findTakeBy }: TakeBy): Transitions => ({
  escalate: (where, input) =>
    apply(where, async (read) => {
      if (read.status === 'escalated') {
        return input.leadScore === undefined || input.leadScore === read.leadScore
          ? null
          : { set: { leadScore: input.leadScore } };
      }
      const now = serverDate();
      const reason = input.reason ?? DEFAULT_ESCALATION_REASON;
      const leadScore = input.leadScore ?? read.leadScore;
      // Somebody who was assigned while the conversation was open has taken it.
      const takeBy = await findTakeBy(read.status === 'resolved' ? withoutAssignee(read) : read, now);
      return {
        set: {
          ...REOPENED,
          status: 'escalated',
          escalatedAt: now,
          escalationReason: reason,
          leadScore,
          waitingSince: now,
          ...(takeBy && { takeBy }),
        },
        unassign: read.status === 'resolved',
        when: assigneeOf(read),
        messages: [handoffMessage(reason, now)],
        event: {
          event: 'conversation.escalated',
          payload: { reason, lead_score: leadScore, language: read.language },
        },
      };
    }),

  handBack: (where) =>
    apply(where, (read) => {
      if (read.status === 'open') return null;
      if (read.status === 'resolved') throw invalid('status', 'not_escalated', 'must be escalated before a hand-back');
      return { set: REOPENED, takeBy: 'taken', unassign: true, messages: [handBackMessage(serverDate())] };
    }),

  endTakeBy: (where, end) =>
    apply(where, async (read): Promise<Change | null> => {
      const now = serverDate();
      const { takeBy } = read;
      if (!takeBy || takeBy > now) return null;
      const when = { takeBy, ...assigneeOf(read) };
      if (read.status !== 'escalated' || end.how === 'stay' || (await isTaken(read))) return { takeBy: 'taken', when };
      if (end.how !== 'hand_back') return { set: { remindedAt: now }, takeBy: 'reminded', when };
      const messages = [handBackMessage(now), notTakenMessage(end.said, read, now)];
      return { set: REOPENED, takeBy: 'taken', unassign: true, messages, when };
    }),

  startTakeBy: (where) =>
    apply(where, async (read) => {
      if (read.status !== 'escalated' || read.takeBy || read.remindedAt) return null;
      const takeBy = await findTakeBy(read, serverDate());
      return takeBy && { set: { takeBy }, when: { takeBy: { $exists: false }, ...assigneeOf(read) } };
    }),

  unassign: (where) =>
    apply(where, async (read) => {
      if (read.assigneeId === undefined) return null;
      const takeBy = read.status === 'escalated' ? await findTakeBy(withoutAssignee(read), serverDate()) : null;
      return { set: { ...(takeBy && { takeBy }) }, unassign: true, when: assigneeOf(read) };
    }),

  resolve: (where, operatorId) =>
    apply(where, (read) => {
      if (read.status === 'resolved') return null;
      const now = serverDate();
      return {
        set: {
          status: 'resolved',
          resolvedAt: now,
          resolvedBy: operatorId,
          waitingSince: null,
          resolutions: withResolution(read, now),
        },
        when: { resolutions: read.resolutions ?? { $exists: false } },
        takeBy: 'taken',
        unassign: true,
        event: { event: 'conversation.resolved', payload: { resolved_by: operatorId } },
      };
    }),

  reopen: (where) => apply(where, (read) => (read.status === 'resolved' ? { set: REOPENED, unassign: true } : null)),

  addTag: (where, { tag, color }) =>
    apply(where, (read) => {
      const known = read.tags.find((one) => one.tag === tag);
      if (known && known.color === color) return null;
      if (known) return { set: { tags: read.tags.map((one) => (one.tag === tag ? { tag, color } : one)) } };
      if (read.tags.length >= MAX_TAGS) throw invalid('tag', 'too_many', `a conversation has at most ${MAX_TAGS} tags`);
      return {
        set: { tags: [...read.tags, { tag, color }] },
        event: { event: 'tag.added', payload: { tag, color } },
      };
    }),

  removeTag: (where, tag) =>
    apply(where, (read) =>
      read.tags.some((one) => one.tag === tag) ? { set: { tags: read.tags.filter((one) => one.tag !== tag) } } : null,
    ),

  setAttributes: (where, changes) =>
    apply(where, (read) => {
      const attributes = mergeAttributes(read.attributes ?? [], changes);
      if (isDeepStrictEqual(attributes, read.attributes ?? [])) return null;
      return { set: { attributes }, when: { attributes: read.attributes ?? { $exists: false } } };
    }),

  replyAsOperator: async (where, content) => {
    const message: Message = {
      messageId: newId(),
      turnId: null,
      role: 'operator',
      content,
      language: null,
      createdAt: serverDate(),
    };
    const changed = await apply(where, () => ({ set: { waitingSince: null }, takeBy: 'taken', messages: [message] }));
    return { ...changed, messageId: message.messageId, seq: changed.conversation.seq };
  },
});
