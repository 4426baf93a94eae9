import { truncateContent } from '../webhooks/event.ts';
import type { UpdateStatement } from '../platform/mongo.ts';
import { type ChannelName, MAX_PENDING, initialState, type OutboxEvent, type PendingTurn } from './conversation.ts';
import { newOutboxEvent, type ReceiversOf } from './announce.ts';

export type NewTurn = {
  key: string;
  /** Becomes the conversation's id if this turn opens it. */
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
  /** The turn id was reserved by an `Idempotency-Key`: by this request, or by an earlier one under the same key. */
  reservation: 'new' | 'known' | null;
  async: boolean;
  /** The Redis channel where a caller waits; null = nobody does. */
  replyTo: string | null;
  acceptedAt: Date;
};

/** The turn as a pending one. */
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

/** The conversation that this turn opens, if it opens one. */
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

/** Not pending already, by id or by content, and fewer than 20 are. Plain operators only: it is an upsert's filter. */
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

/** The turn accepted in one upsert; what its filter refuses is told by a duplicate key (docs/design.md, Accept). */
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

/** Whether an accepted turn may have put an event into the outbox: whoever did not write it cannot know which. */
export const mayAnnounce = (receiversOf: ReceiversOf): boolean =>
  receiversOf('message.received').length > 0 || receiversOf('conversation.created').length > 0;
