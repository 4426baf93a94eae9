import { truncateContent } from '../webhooks/event.ts';
import type { UpdateStatement } from '../platform/mongo.ts';
import { type ChannelName, MAX_PENDING, initialState, type OutboxEvent, type PendingTurn } from './conversation.ts';
import { newOutboxEvent, type ReceiversOf } from './announce.ts';

export type NewTurn = {
  key: string;
  /** The conversation's id, if this turn creates the conversation. */
  conversationId: string;
  assistantId: string;
  sessionId: string;
  channel: ChannelName;
  turnId: string;
  messageId: string;
  message: string;
  language: string;
  languageBy?: string;
  dedupeKey: string | null;
  /** Whether an `Idempotency-Key` reserved the turn id: `new` by this request, `known` by an earlier one. */
  reservation: 'new' | 'known' | null;
  async: boolean;
  /** The Redis channel where the caller waits. Null: nobody waits. */
  replyTo: string | null;
  acceptedAt: Date;
};

/** The turn as it is stored in `waiting`. */
export const toPending = (turn: NewTurn): PendingTurn => ({
  turnId: turn.turnId,
  messageId: turn.messageId,
  message: turn.message,
  language: turn.language,
  ...(turn.languageBy !== undefined && { languageBy: turn.languageBy }),
  ...(turn.dedupeKey !== null && { dedupeKey: turn.dedupeKey }),
  replyTo: turn.replyTo === null ? [] : [turn.replyTo],
  acceptedAt: turn.acceptedAt,
  ...(turn.async && { async: true }),
});

export const newReceivedEvent = (
  { message, language, acceptedAt }: NewTurn,
  receiversOf: ReceiversOf,
): OutboxEvent | null =>
  newOutboxEvent(
    { event: 'message.received', payload: { role: 'user', content: truncateContent(message), language } },
    receiversOf,
    acceptedAt,
  );

/** The fields of the conversation, if this turn creates it. */
const initialConversation = (turn: NewTurn, receiversOf: ReceiversOf) => {
  const createdEvent = newOutboxEvent(
    { event: 'conversation.created', payload: { language: turn.language } },
    receiversOf,
    turn.acceptedAt,
  );
  const { conversationId, assistantId, sessionId, channel, acceptedAt } = turn;
  return {
    conversationId,
    assistantId,
    sessionId,
    channel,
    ...initialState(),
    headSince: acceptedAt,
    createdAt: acceptedAt,
    ...(createdEvent && { opening: createdEvent }),
  };
};

/**
 * Matches if the turn is not pending already, by id or content, and there is room for one more. An upsert's filter may
 * not use other operators.
 */
export const notPendingFilter = ({ turnId, dedupeKey }: NewTurn) => ({
  'waiting.turnId': { $ne: turnId },
  ...(dedupeKey !== null && { 'waiting.dedupeKey': { $ne: dedupeKey } }),
  [`waiting.${MAX_PENDING - 1}`]: { $exists: false },
});

/** Adds the turn to the pending ones and its event to the outbox, in one write. */
export const pushTurn = (waiting: PendingTurn, announcement: OutboxEvent | null) => ({
  $push: { waiting, ...(announcement && { outbox: announcement }) },
  $currentDate: { updatedAt: true },
});

/**
 * Accepts the turn in one upsert. If its filter does not match an existing conversation, the upsert fails with a
 * duplicate key (docs/design.md, Accept).
 */
export const acceptStatement = (turn: NewTurn, receiversOf: ReceiversOf): UpdateStatement => {
  const { $push, $currentDate } = pushTurn(toPending(turn), newReceivedEvent(turn, receiversOf));
  return {
    q: {
      _id: turn.key,
      ...notPendingFilter(turn),
      'recent.turnId': { $ne: turn.turnId },
      ...(turn.dedupeKey !== null && { 'recent.dedupeKey': { $ne: turn.dedupeKey } }),
      status: { $ne: 'resolved' },
    },
    u: { $push, $set: { language: turn.language }, $setOnInsert: initialConversation(turn, receiversOf), $currentDate },
    upsert: true,
  };
};

/**
 * Whether an accepted turn may have put an event into the outbox. Which event is not known here, since the conversation
 * may be new or not.
 */
export const mayAnnounce = (receiversOf: ReceiversOf): boolean =>
  receiversOf('message.received').length > 0 || receiversOf('conversation.created').length > 0;
