import { truncateContent } from '../webhooks/event.ts';
import type { UpdateStatement } from '../platform/mongo.ts';
import { type ChannelName, MAX_PENDING, initialState, type OutboxEvent, type PendingTurn } from './conversation.ts';
import { newOutboxEvent, type ReceiversOf } from './announce.ts';

export type NewTurn = {
  key: string;
  /** The id that the conversation gets if this turn creates it. */
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
  /** The Redis channel where the caller waits, or null if nobody waits. */
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

const newCreatedEvent = ({ language, acceptedAt }: NewTurn, receiversOf: ReceiversOf): OutboxEvent | null =>
  newOutboxEvent({ event: 'conversation.created', payload: { language } }, receiversOf, acceptedAt);

/** The fields of the conversation if this turn creates it. */
const initialConversation = ({ conversationId, assistantId, sessionId, channel, acceptedAt }: NewTurn) => ({
  conversationId,
  assistantId,
  sessionId,
  channel,
  ...initialState(),
  headSince: acceptedAt,
  createdAt: acceptedAt,
});

/**
 * Matches if no turn with this id or content is pending, and one more turn may be pending. The filter uses only
 * operators that an upsert allows.
 */
export const notPendingFilter = ({ turnId, dedupeKey }: NewTurn) => ({
  'waiting.turnId': { $ne: turnId },
  ...(dedupeKey !== null && { 'waiting.dedupeKey': { $ne: dedupeKey } }),
  [`waiting.${MAX_PENDING - 1}`]: { $exists: false },
});

/** Adds the turn to the pending turns and its event to the outbox, in one write. */
export const pushTurn = (waiting: PendingTurn, announcement: OutboxEvent | null) => ({
  $push: { waiting, ...(announcement && { outbox: announcement }) },
  $currentDate: { updatedAt: true },
});

const IS_NEW = { $eq: [{ $type: '$createdAt' }, 'missing'] };
/** A value from outside, which MongoDB must not read as an expression. */
const literal = (value: unknown) => ({ $literal: value });
const append = (list: string, items: unknown[], { ifNew = [] }: { ifNew?: unknown[] } = {}) => ({
  $concatArrays: [{ $cond: [IS_NEW, literal(ifNew), { $ifNull: [list, []] }] }, literal(items)],
});
const oneOrNone = <Value>(value: Value | null): Value[] => (value === null ? [] : [value]);

/**
 * Accepts the turn in one upsert. If the conversation exists but does not match the filter, the upsert fails with a
 * duplicate-key error (docs/design.md, Accept). The update is a pipeline, because only a pipeline can put the created
 * event before the received event in a new document, and add to the list in an existing one. It costs MongoDB as much
 * as operators do.
 */
export const acceptStatement = (turn: NewTurn, receiversOf: ReceiversOf): UpdateStatement => {
  const created = oneOrNone(newCreatedEvent(turn, receiversOf));
  const received = oneOrNone(newReceivedEvent(turn, receiversOf));
  const changed = {
    language: literal(turn.language),
    updatedAt: '$$NOW',
    waiting: append('$waiting', [toPending(turn)]),
    ...((created.length > 0 || received.length > 0) && { outbox: append('$outbox', received, { ifNew: created }) }),
  };
  const ifNew = { $cond: [IS_NEW, literal(initialConversation(turn)), {}] };
  return {
    q: {
      _id: turn.key,
      ...notPendingFilter(turn),
      'recent.turnId': { $ne: turn.turnId },
      ...(turn.dedupeKey !== null && { 'recent.dedupeKey': { $ne: turn.dedupeKey } }),
      status: { $ne: 'resolved' },
    },
    u: [{ $replaceWith: { $mergeObjects: ['$$ROOT', ifNew, changed] } }],
    upsert: true,
  };
};

/**
 * True if the write of an accepted turn may have added an event to the outbox. It is unknown whether the write created
 * the conversation, so both possible events count.
 */
export const mayAnnounce = (receiversOf: ReceiversOf): boolean =>
  receiversOf('message.received').length > 0 || receiversOf('conversation.created').length > 0;
