import { findContactDetails } from '@parley/understanding';
import type { Assistant } from '../../src/assistants/assistant.ts';
import { closedText, nextOpening } from '../../src/assistants/opening-hours.ts';
import { MAX_SUGGESTED_ACTIONS, type ReplySource, SuggestedAction } from '../../src/assistants/suggested-action.ts';
import type { AnswerableConversation, TurnCommit } from '../../src/conversations/commit.ts';
import type { Entry, Holding, Message, PendingTurn, StoredConversation } from '../../src/conversations/conversation.ts';
import { handoffMessage } from '../../src/conversations/transitions.ts';
import { serverDate } from '../../src/process/clock.ts';
import { newId } from '../../src/process/ids.ts';
import { apologyText, type EngineReply, holdingText } from './engines/engine.ts';

type HandoffReason = 'user_requested' | 'low_confidence' | 'engine_error' | 'budget_used_up' | 'contact_details';

/** An engine's reply, and the state that it leaves in the conversation. */
type Answer = {
  text: string;
  language: string;
  suggestedActions: SuggestedAction[];
  sources?: ReplySource[];
  why: Record<string, unknown>;
  lowConfidenceStreak: number;
  engineErrorStreak: number;
};

/**
 * How the head ends. `answered`: with the engine's reply. `handoff`: the assistant escalates, and the holding text is
 * the reply; with an `answer`, this is the reply, and the holding text comes with the visitor's next message. `held`: the
 * conversation is already escalated. `failed`: three tries failed because of errors in this service, and the next turn
 * becomes the head.
 */
export type TurnEnd =
  | { kind: 'answered'; answer: Answer; leadScore: number; leadBecause: string[] }
  | {
      kind: 'handoff';
      reason: HandoffReason;
      holdingText: string;
      answer?: Answer;
      leadScore: number;
      leadBecause: string[];
      why: Record<string, unknown>;
    }
  | { kind: 'held'; holdingText: string; leadScore: number; leadBecause: string[] }
  | { kind: 'failed' };

/**
 * The result for a waiting caller: the chat response (docs/contract.md, Response), or the fact that the turn failed.
 */
type TurnReply =
  | {
      outcome: 'answered';
      reply: string;
      suggestedActions?: SuggestedAction[];
      sources?: ReplySource[];
      messageId: string;
    }
  | { outcome: 'failed' };

/** A head that has ended, but whose end is not stored yet. */
export type EndedTurn = TurnCommit & { end: TurnEnd; reply: TurnReply };

const replyMessageOf = (end: TurnEnd, turn: PendingTurn, holding: Holding | null, createdAt: Date): Message | null => {
  // The visitor's message of a resumed turn is in another entry.
  const key = turn.seq !== undefined && turn.keyId !== undefined ? { keyId: turn.keyId } : {};
  const spoken = { messageId: newId(), turnId: turn.turnId, role: 'assistant' as const, createdAt, ...key };
  const answer = end.kind === 'answered' || end.kind === 'handoff' ? end.answer : undefined;
  if (answer) {
    const { text, language, suggestedActions, sources = [], why } = answer;
    return {
      ...spoken,
      content: text,
      language,
      ...(suggestedActions.length > 0 && { suggestedActions }),
      ...(sources.length > 0 && { sources }),
      why,
    };
  }
  if (end.kind === 'handoff') return { ...spoken, content: end.holdingText, language: turn.language, why: end.why };
  // The holding text is stored once for each escalation. This text also answers later visitor messages.
  if (end.kind === 'held' && !holding) return { ...spoken, content: end.holdingText, language: turn.language };
  return null;
};

const replyOf = (end: TurnEnd, message: Message | null, holding: Holding | null): TurnReply => {
  if (end.kind === 'failed') return { outcome: 'failed' };
  if (message) {
    const { content, messageId, suggestedActions, sources } = message;
    return {
      outcome: 'answered',
      reply: content,
      ...(suggestedActions && { suggestedActions }),
      ...(sources && { sources }),
      messageId,
    };
  }
  if (!holding) throw new Error('a held turn needs a holding text');
  return { outcome: 'answered', reply: holding.text, messageId: holding.messageId };
};

const stateAfter = (
  end: TurnEnd,
  { now, waitingSince, takeBy }: { now: Date; waitingSince: Date; takeBy: Date | null },
): Partial<StoredConversation> => {
  switch (end.kind) {
    case 'answered': {
      const { lowConfidenceStreak, engineErrorStreak } = end.answer;
      return { lowConfidenceStreak, engineErrorStreak, leadScore: end.leadScore, leadBecause: end.leadBecause };
    }
    case 'handoff':
      return {
        status: 'escalated',
        escalatedAt: now,
        escalationReason: end.reason,
        waitingSince,
        ...(takeBy && { takeBy }),
        lowConfidenceStreak: 0,
        engineErrorStreak: 0,
        leadScore: end.leadScore,
        leadBecause: end.leadBecause,
      };
    case 'held':
      return { waitingSince, leadScore: end.leadScore, leadBecause: end.leadBecause };
    case 'failed':
      return {};
  }
};

/** The visitor's message, or null for a resumed turn, whose message is already stored. */
const visitorMessageOf = (turn: PendingTurn, heldBy: Message['heldBy'] | null): Message | null =>
  turn.seq === undefined
    ? {
        messageId: turn.messageId,
        turnId: turn.turnId,
        role: 'user',
        content: turn.message,
        language: turn.language,
        ...(turn.keyId !== undefined && { keyId: turn.keyId }),
        ...(heldBy && { heldBy }),
        createdAt: turn.acceptedAt,
      }
    : null;

/**
 * Ends the head: gives its messages the next number, and computes the finished turn, the new state and, if needed, an
 * escalation, which somebody must take by `takeBy`.
 */
export const endTurn = (conversation: AnswerableConversation, end: TurnEnd, takeBy: Date | null = null): EndedTurn => {
  const turn = conversation.waiting[0];
  if (!turn) throw new Error('only a head can end');
  const now = serverDate();
  const { holding } = conversation;
  const reply = replyMessageOf(end, turn, holding, now);
  const heldBy = end.kind === 'held' && holding ? { messageId: holding.messageId, seq: holding.seq } : null;
  const spoken = [visitorMessageOf(turn, heldBy), reply].filter((message) => message !== null);
  const own = spoken.length > 0 ? conversation.seq + 1 : conversation.seq;
  const entries: Entry[] = spoken.length > 0 ? [{ seq: own, messages: spoken }] : [];
  if (end.kind === 'handoff') entries.push({ seq: own + 1, messages: [handoffMessage(end.reason, now)] });
  const isHolding = end.kind === 'held' || (end.kind === 'handoff' && !end.answer);
  const newHolding: Holding | null =
    reply && isHolding ? { messageId: reply.messageId, seq: own, text: reply.content, language: turn.language } : null;

  const replySeq = reply ? own : heldBy?.seq;
  const replyMessageId = reply?.messageId ?? heldBy?.messageId;
  const changes = {
    seq: entries.at(-1)?.seq ?? conversation.seq,
    ...(newHolding && { holding: newHolding }),
    ...stateAfter(end, { now, waitingSince: conversation.waitingSince ?? turn.acceptedAt, takeBy }),
  };
  return {
    end,
    entries,
    language: turn.language,
    finished: {
      turnId: turn.turnId,
      messageId: turn.messageId,
      ...(turn.dedupeKey !== undefined && { dedupeKey: turn.dedupeKey }),
      outcome: end.kind === 'failed' ? 'failed' : 'answered',
      seq: turn.seq ?? own,
      ...(replySeq !== undefined && { replySeq }),
      ...(replyMessageId !== undefined && { replyMessageId }),
      finishedAt: now,
      ...(turn.async && { async: true }),
    },
    reply: replyOf(end, reply, holding),
    ...(turn.trace !== undefined && { trace: turn.trace }),
    changes,
    event:
      end.kind === 'handoff'
        ? {
            event: 'conversation.escalated',
            payload: { reason: end.reason, lead_score: end.leadScore, language: turn.language },
          }
        : null,
    after: { ...conversation, ...changes, waiting: conversation.waiting.slice(1) },
  };
};

/**
 * This many low-confidence replies or engine errors in a row cause an escalation (docs/contract.md, Escalation by the
 * assistant).
 */
const STREAK_TO_HAND_OFF = 2;

type Lead = { leadScore: number; leadBecause: string[] };
type Streaks = Pick<StoredConversation, 'lowConfidenceStreak' | 'engineErrorStreak'>;

/**
 * Everything except the engine's answer that decides how a turn ends. A conversation that was resolved in the meantime
 * is not handed off.
 */
type Circumstances = {
  assistant: Assistant;
  turn: PendingTurn;
  status: StoredConversation['status'];
  streaks: Streaks;
  lead: Lead;
};

/** The holding text. Outside opening hours it also says when somebody answers. */
export const holdingTextOf = ({ holdingText: own, openingHours }: Assistant, language: string): string => {
  const held = own ?? holdingText(language);
  const opening = nextOpening(openingHours, serverDate());
  return opening && openingHours ? `${held} ${closedText(language, opening, openingHours.timeZone)}` : held;
};

const handOff = (
  { assistant, turn, lead }: Pick<Circumstances, 'assistant' | 'turn' | 'lead'>,
  { reason, why }: { reason: HandoffReason; why: Record<string, unknown> },
): Extract<TurnEnd, { kind: 'handoff' }> => ({
  kind: 'handoff',
  reason,
  holdingText: holdingTextOf(assistant, turn.language),
  why,
  ...lead,
});

/** Ends a turn with an answer. Contact details beside the question may hand the conversation to a person. */
const endAnswered = (answer: Answer, { assistant, turn, status, lead }: Circumstances): TurnEnd => {
  const raises = assistant.contactsEscalate && status === 'open' && findContactDetails(turn.message) !== null;
  if (!raises) return { kind: 'answered', answer, ...lead };
  return { ...handOff({ assistant, turn, lead }, { reason: 'contact_details', why: answer.why }), answer };
};

const handoffReasonOf = (
  reply: EngineReply,
  { lowConfidenceStreak }: Streaks,
  canKnow: boolean,
): HandoffReason | null => {
  if (reply.escalate) return reply.escalate;
  return canKnow && reply.low && lowConfidenceStreak + 1 >= STREAK_TO_HAND_OFF ? 'low_confidence' : null;
};

/**
 * Keeps at most five of an engine's suggested actions, and only safe ones, as the rules for knowledge require
 * (docs/contract.md, Suggested actions).
 */
const safeActions = (actions: SuggestedAction[]): SuggestedAction[] =>
  actions.filter((action) => SuggestedAction.safeParse(action).success).slice(0, MAX_SUGGESTED_ACTIONS);

/** Ends a turn with the engine's answer, or with a handoff. */
export const endWithReply = (reply: EngineReply, circumstances: Circumstances & { canKnow: boolean }): TurnEnd => {
  const { assistant, turn, status, streaks, canKnow, lead } = circumstances;
  const reason = status === 'resolved' ? null : handoffReasonOf(reply, streaks, canKnow);
  if (reason) return handOff({ assistant, turn, lead }, { reason, why: reply.why });
  const answer: Answer = {
    text: reply.text,
    language: reply.language,
    suggestedActions: safeActions(reply.suggestedActions),
    ...(reply.sources && { sources: reply.sources }),
    why: reply.why,
    lowConfidenceStreak: canKnow && reply.low ? streaks.lowConfidenceStreak + 1 : 0,
    engineErrorStreak: 0,
  };
  return endAnswered(answer, circumstances);
};

/**
 * Ends a turn after both the engine and its fall-back failed. The visitor gets an apology. The second such turn in a
 * row causes a handoff.
 */
export const endWithApology = (circumstances: Circumstances): TurnEnd => {
  const { assistant, turn, status, streaks, lead } = circumstances;
  const why = { engine: 'none', error: 'engine_error' };
  if (status !== 'resolved' && streaks.engineErrorStreak + 1 >= STREAK_TO_HAND_OFF) {
    return handOff({ assistant, turn, lead }, { reason: 'engine_error', why });
  }
  const answer: Answer = {
    text: apologyText(turn.language),
    language: turn.language,
    suggestedActions: [],
    why,
    lowConfidenceStreak: streaks.lowConfidenceStreak,
    engineErrorStreak: streaks.engineErrorStreak + 1,
  };
  return endAnswered(answer, circumstances);
};
