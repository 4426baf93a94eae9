import { isDeepStrictEqual } from 'node:util';
import { serverDate } from '../platform/clock.ts';
import { invalid } from '../platform/errors.ts';
import { newId } from '../platform/ids.ts';
import { type AttributeChange, mergeAttributes } from './attributes.ts';
import type { Change, ChangeConversation, ConversationRef } from './change-conversation.ts';
import { type Message, REOPENED } from './conversation.ts';
import { withResolution } from './resolutions.ts';
import { handBackMessage, handoffMessage, notTakenMessage } from './system-messages.ts';

const MAX_TAGS = 50;

export const DEFAULT_ESCALATION_REASON = 'manual';

/** Until when an escalation of this moment must be taken. Null if there is no limit. */
export type FindTakeBy = (assistantId: string, at: Date) => Promise<Date | null>;

/** What happens to an escalation that nobody took in time. `said` is the sentence for the visitor. */
export type TakeByEnd = { how: 'remind' | 'stay' } | { how: 'hand_back'; said: string };

/**
 * Changes that people make to a conversation (docs/contract.md, States). Each change is one compare-and-set on the
 * conversation as it was read. If a change adds messages, the same write gives them the next numbers. If the
 * conversation is already in the target state, nothing is changed or announced.
 */
export const createTransitions = (apply: ChangeConversation, findTakeBy: FindTakeBy) => ({
  /**
   * Escalates a conversation. If the conversation is already escalated, its first reason is kept. A given lead score
   * replaces the stored score. A resolved conversation becomes escalated too.
   */
  escalate: (where: ConversationRef, input: { reason?: string; leadScore?: number }) =>
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
      const isTaken = read.status === 'open' && read.assigneeId !== undefined;
      const takeBy = read.channel === 'playground' || isTaken ? null : await findTakeBy(read.assistantId, now);
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
        when: { assigneeId: read.assigneeId ?? { $exists: false } },
        messages: [handoffMessage(reason, now)],
        event: {
          event: 'conversation.escalated',
          payload: { reason, lead_score: leadScore, language: read.language },
        },
      };
    }),

  handBack: (where: ConversationRef) =>
    apply(where, (read) => {
      if (read.status === 'open') return null;
      if (read.status === 'resolved') throw invalid('status', 'not_escalated', 'must be escalated before a hand-back');
      return { set: REOPENED, takeBy: 'taken', unassign: true, messages: [handBackMessage(serverDate())] };
    }),

  /**
   * Ends the take-by time of an escalation that nobody took. Only one caller ends it: the write requires the time that
   * was read, and removes it. An assigned conversation counts as taken.
   */
  endTakeBy: (where: ConversationRef, end: TakeByEnd) =>
    apply(where, (read): Change | null => {
      const now = serverDate();
      const { takeBy, assigneeId } = read;
      if (!takeBy || takeBy > now) return null;
      const when = { takeBy, assigneeId: assigneeId ?? { $exists: false } };
      if (read.status !== 'escalated' || assigneeId || end.how === 'stay') return { takeBy: 'taken', when };
      if (end.how !== 'hand_back') return { set: { remindedAt: now }, takeBy: 'reminded', when };
      const messages = [handBackMessage(now), notTakenMessage(end.said, read, now)];
      return { set: REOPENED, takeBy: 'taken', messages, when };
    }),

  resolve: (where: ConversationRef, operatorId: string) =>
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

  reopen: (where: ConversationRef) =>
    apply(where, (read) => (read.status === 'resolved' ? { set: REOPENED, unassign: true } : null)),

  addTag: (where: ConversationRef, { tag, color }: { tag: string; color: string | null }) =>
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

  removeTag: (where: ConversationRef, tag: string) =>
    apply(where, (read) =>
      read.tags.some((one) => one.tag === tag) ? { set: { tags: read.tags.filter((one) => one.tag !== tag) } } : null,
    ),

  /** Sets and removes attributes. They are announced to nobody. */
  setAttributes: (where: ConversationRef, changes: AttributeChange[]) =>
    apply(where, (read) => {
      const attributes = mergeAttributes(read.attributes ?? [], changes);
      if (isDeepStrictEqual(attributes, read.attributes ?? [])) return null;
      return { set: { attributes }, when: { attributes: read.attributes ?? { $exists: false } } };
    }),

  /** Adds a message of an operator. The visitor no longer waits; the status does not change. */
  replyAsOperator: async (where: ConversationRef, content: string) => {
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

export type Transitions = ReturnType<typeof createTransitions>;
