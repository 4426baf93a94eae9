import type { SuggestedAction } from '../assistants/suggested-action.ts';
import { newId } from '../platform/ids.ts';
import type { UpdateStatement } from '../platform/mongo.ts';
import type { Holding, Message, RecentTurn, StoredConversation, WaitingTurn } from './conversation.ts';
import { newOutboxEvent, type ReceiversOf } from './outbox.ts';

export type HandoffReason = 'user_requested' | 'low_confidence' | 'engine_error';

/** What an engine's reply leaves in the conversation. */
export type Answer = {
  text: string;
  language: string;
  suggestedActions: SuggestedAction[];
  why: Record<string, unknown>;
  lowConfidenceStreak: number;
  engineErrorStreak: number;
};

/**
 * How the head ends. `answered`: with the engine's reply. `handoff`: the assistant escalates, and the holding text is the
 * reply. `held`: the conversation is escalated already. `failed`: three tries by our fault; the line moves on.
 */
export type TurnEnd =
  | { kind: 'answered'; answer: Answer; leadScore: number; leadBecause: string[] }
  | {
      kind: 'handoff';
      reason: HandoffReason;
      holdingText: string;
      leadScore: number;
      leadBecause: string[];
      why: Record<string, unknown>;
    }
  | { kind: 'held'; holdingText: string; leadScore: number; leadBecause: string[] }
  | { kind: 'failed' };

/** A conversation as a worker reads it: of `waiting` the first two, of `recent` those a commit may let fall. */
export type AnswerableConversation = Omit<StoredConversation, 'sessionId' | 'outbox' | 'opening'> & {
  recentCount: number;
};

/** What a waiting caller is told: the chat response of contract §1, or that the turn failed. */
export type TurnReply =
  | { outcome: 'answered'; reply: string; suggestedActions?: SuggestedAction[]; messageId: string }
  | { outcome: 'failed' };

export type PreparedCommit = {
  statement: UpdateStatement;
  key: string;
  mark: RecentTurn;
  reply: TurnReply;
  announced: boolean;
  /** The next head: known, since a line moves at its head only, and one that is alone is committed only while it is. */
  nextTurnId: string | null;
};

const systemMessage = (content: string, createdAt: Date): Message => ({
  messageId: newId(),
  turnId: null,
  role: 'system',
  content,
  language: null,
  createdAt,
});

export const handoffMessage = (reason: string, createdAt: Date): Message =>
  systemMessage(`Handed off to a human: ${reason}`, createdAt);
export const handBackMessage = (createdAt: Date): Message => systemMessage('Handed back to the assistant', createdAt);

const replyMessageOf = (end: TurnEnd, turn: WaitingTurn, holding: Holding | null, createdAt: Date): Message | null => {
  const spoken = { messageId: newId(), turnId: turn.turnId, role: 'assistant' as const, createdAt };
  if (end.kind === 'answered') {
    const { text, language, suggestedActions, why } = end.answer;
    return { ...spoken, content: text, language, ...(suggestedActions.length > 0 && { suggestedActions }), why };
  }
  if (end.kind === 'handoff') return { ...spoken, content: end.holdingText, language: turn.language, why: end.why };
  // Stored once an escalation; later visitor messages are answered with that one.
  if (end.kind === 'held' && !holding) return { ...spoken, content: end.holdingText, language: turn.language };
  return null;
};

const replyOf = (end: TurnEnd, message: Message | null, holding: Holding | null): TurnReply => {
  if (end.kind === 'failed') return { outcome: 'failed' };
  if (message) {
    const { content, messageId, suggestedActions } = message;
    return { outcome: 'answered', reply: content, ...(suggestedActions && { suggestedActions }), messageId };
  }
  if (!holding) throw new Error('a held turn needs a holding text');
  return { outcome: 'answered', reply: holding.text, messageId: holding.messageId };
};

const stateAfter = (end: TurnEnd, now: Date): Record<string, unknown> => {
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
        lowConfidenceStreak: 0,
        engineErrorStreak: 0,
        leadScore: end.leadScore,
        leadBecause: end.leadBecause,
      };
    case 'held':
      return { leadScore: end.leadScore, leadBecause: end.leadBecause };
    case 'failed':
      return {};
  }
};

type CommitDetails = {
  receiversOf: ReceiversOf;
  storedSeqs: string[];
  keepRecent: number;
};

/**
 * The commit of the head as one update on the conversation as it was read. Everything the choice of the reply rested on is
 * in the filter, so that a handoff, an operator's message or a new waiter in between makes it match nothing.
 */
export const prepareCommit = (
  conversation: AnswerableConversation,
  end: TurnEnd,
  { receiversOf, storedSeqs, keepRecent }: CommitDetails,
): PreparedCommit => {
  const turn = conversation.waiting[0];
  if (!turn) throw new Error('a commit needs a head');
  const now = new Date();
  const { holding } = conversation;
  const reply = replyMessageOf(end, turn, holding, now);
  const heldBy = end.kind === 'held' && holding ? { messageId: holding.messageId, seq: holding.seq } : null;
  const visitor: Message | null =
    turn.seq === undefined
      ? {
          messageId: turn.messageId,
          turnId: turn.turnId,
          role: 'user',
          content: turn.message,
          language: turn.language,
          ...(heldBy && { heldBy }),
          createdAt: turn.acceptedAt,
        }
      : null;

  const entry = [visitor, reply].filter((message) => message !== null);
  const own = entry.length > 0 ? conversation.seq + 1 : conversation.seq;
  const entries: [number, Message[]][] = entry.length > 0 ? [[own, entry]] : [];
  if (end.kind === 'handoff') entries.push([own + 1, [handoffMessage(end.reason, now)]]);
  const newHolding: Holding | null =
    reply && (end.kind === 'handoff' || end.kind === 'held')
      ? { messageId: reply.messageId, seq: own, text: reply.content, language: turn.language }
      : null;

  const replySeq = reply ? own : heldBy?.seq;
  const replyMessageId = reply?.messageId ?? heldBy?.messageId;
  const mark: RecentTurn = {
    turnId: turn.turnId,
    messageId: turn.messageId,
    ...(turn.dedupeKey !== undefined && { dedupeKey: turn.dedupeKey }),
    outcome: end.kind === 'failed' ? 'failed' : 'answered',
    seq: turn.seq ?? own,
    ...(replySeq !== undefined && { replySeq }),
    ...(replyMessageId !== undefined && { replyMessageId }),
    finishedAt: now,
    ...(turn.async && { async: true }),
  };
  const escalated =
    end.kind === 'handoff'
      ? newOutboxEvent(
          {
            event: 'conversation.escalated',
            payload: { reason: end.reason, lead_score: end.leadScore, language: turn.language },
          },
          receiversOf,
          now,
        )
      : null;

  return {
    key: conversation._id,
    mark,
    reply: replyOf(end, reply, holding),
    announced: escalated !== null,
    nextTurnId: conversation.waiting[1]?.turnId ?? null,
    statement: {
      q: {
        _id: conversation._id,
        conversationId: conversation.conversationId,
        seq: conversation.seq,
        status: conversation.status,
        leadScore: conversation.leadScore,
        'waiting.0.turnId': turn.turnId,
        'waiting.0.replyTo': { $size: turn.replyTo.length },
        // Whoever came meanwhile was told that another is head: nobody but the next reading would find them.
        ...(conversation.waiting.length === 1 && { waiting: { $size: 1 } }),
      },
      u: {
        $set: {
          seq: entries.at(-1)?.[0] ?? conversation.seq,
          ...Object.fromEntries(entries.map(([seq, messages]) => [`texts.${seq}`, messages])),
          ...(newHolding && { holding: newHolding }),
          ...stateAfter(end, now),
        },
        ...(storedSeqs.length > 0 && { $unset: Object.fromEntries(storedSeqs.map((seq) => [`texts.${seq}`, 1])) }),
        $pop: { waiting: -1 },
        $push: {
          recent: { $each: [mark], $slice: -keepRecent },
          ...(escalated && { outbox: escalated }),
        },
        $currentDate: { updatedAt: true, headSince: true },
      },
    },
  };
};
