import type { Connection } from 'mongoose';
import * as z from 'zod';
import type { ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import { schemaOf } from '../platform/mongo/mongo.ts';
import { invalid } from '../platform/process/errors.ts';
import { TIMING } from '../platform/process/time-limits.ts';
import { isStorableText } from '../platform/process/validation.ts';
import type { ConversationEvent } from './event.ts';

export const CHANNELS = ['api', 'webhook', 'web', 'playground'] as const;
export type ChannelName = (typeof CHANNELS)[number];

export const STATUSES = ['open', 'escalated', 'resolved'] as const;
export type Status = (typeof STATUSES)[number];

export const MESSAGE_ROLES = ['user', 'assistant', 'operator', 'system'] as const;
type MessageRole = (typeof MESSAGE_ROLES)[number];

/**
 * The maximum number of pending turns of a session, including the one being answered (docs/contract.md, Order of
 * turns).
 */
export const MAX_PENDING = 20;
/** How long a failed turn can be resumed, and an undelivered reply replayed (docs/contract.md, Retry is safe). */
export const RESUMABLE_FOR_MS = TIMING.resumableForMs;

export type Message = {
  messageId: string;
  turnId: string | null;
  role: MessageRole;
  content: string;
  language: string | null;
  /** The API key that sent this visitor message. With the reply of a resumed turn: the key that resumed the turn. */
  keyId?: string;
  suggestedActions?: SuggestedAction[];
  /** What this reply is taken from. Callers see it only if they ask for it. */
  sources?: ReplySource[];
  /** Why this reply was chosen. Shown to operators, never to visitors. */
  why?: Record<string, unknown>;
  /** The holding text that answered this visitor message. Set only if the message has no reply of its own. */
  heldBy?: { messageId: string; seq: number };
  /** The later visitor message that was answered together with this one, and their reply. */
  mergedInto?: { messageId: string; replyMessageId: string; replySeq: number };
  createdAt: Date;
};

/** The messages of one `seq`: the visitor message and the reply of a turn, or a single message. */
export type Entry = { seq: number; messages: Message[] };

/**
 * How many numbers (`seq`) a stored page covers. Each page always covers the same numbers, so storing a page twice is
 * harmless.
 */
export const PAGE_SIZE = 8;
export type StoredPage = { _id: string; conversationId: string; entries: Entry[] };

/** An accepted turn that has no answer yet. The first turn of `waiting` is the head: the turn that is answered next. */
export type PendingTurn = {
  turnId: string;
  messageId: string;
  message: string;
  language: string;
  /** How the language was decided. Copied to the reply's `why`. */
  languageBy?: string;
  /** The API key of the request. Missing if the request has none. */
  keyId?: string;
  /**
   * A hash of the exact message. Turns with an `Idempotency-Key` have no hash, because they are never matched by
   * content.
   */
  dedupeKey?: string;
  /** The Redis channels of the API processes whose callers wait for this turn. */
  replyTo: string[];
  acceptedAt: Date;
  /** Set for a resumed turn: its visitor message keeps the number that it got when the turn failed. */
  seq?: number;
  /** True if the turn was accepted with 202. Such a turn counts as delivered when it is answered. */
  async?: boolean;
  /**
   * Set if its assistant answers quick messages together. Another message that comes `until` then is answered with this
   * one; as the head, the turn waits for others until `atLatest`.
   */
  quick?: { until: Date; atLatest: Date };
  /** The trace of the turn, as a `traceparent`. Missing if it is not recorded. */
  trace?: string;
};

/** A finished turn without its texts. These fields are enough to replay, resume or recognise the turn. */
export type RecentTurn = {
  turnId: string;
  messageId: string;
  dedupeKey?: string;
  outcome: 'answered' | 'failed';
  /** The number of the visitor message. */
  seq: number;
  /**
   * The number of the reply. It equals `seq`, with three exceptions: the reply of a resumed turn has a later number,
   * a turn answered by a holding text has the number of that text, and a merged one that of its group's last turn.
   */
  replySeq?: number;
  replyMessageId?: string;
  finishedAt: Date;
  async?: boolean;
  /** The visitor message of the turn that this one was answered with. */
  mergedInto?: string;
};

/**
 * The maximum number of pending events of a delivery stream (one conversation, one endpoint). When a stream has more,
 * its oldest events end as `not_sent: backlog` (docs/contract.md, Every event ends).
 */
export const BACKLOG_MAX = 500;

/** How many long parts one statement reads: texts, outboxes. None is handed over before all have been decoded. */
export const LONG_AT_ONCE = 8;

/** The indexes of conversations with pending events, and of those with more than `BACKLOG_MAX`. */
export const OUTBOX_INDEXES = { byEndpoint: 'outbox_endpoints', full: 'outbox_full' };

/** Identifies a turn by the turn id and the key of its conversation. */
export type TurnRef = { key: string; turnId: string };

/** Returns the ids of those turns whose replies are recorded as delivered to a caller. */
export type FindDelivered = (turns: TurnRef[]) => Promise<Set<string>>;

/** An event that is still pending, or is being sent, for at least one of its endpoints. */
export type OutboxEvent = ConversationEvent & {
  eventId: string;
  /** The time in Unix seconds, as in the envelope. */
  timestamp: number;
  at: Date;
  endpoints: string[];
  /**
   * The sequence numbers of the event, by endpoint. Set only if a later event of the same stream was removed first,
   * because the number then cannot be counted.
   */
  sequences?: Record<string, number>;
  /** The trace of the turn that caused the event. Missing if there is none. */
  trace?: string;
};

/** A fact about the visitor, told by a caller. Stored as a list, because its name comes from outside. */
type Attribute = { name: string; value: string | number | boolean };

export type Tag = { tag: string; color: string | null };

/** The holding text of the current escalation. The text is stored once and answers every later visitor message. */
export type Holding = { messageId: string; seq: number; text: string; language: string };

/** Who talks to whom, and where. Never changed. */
type Identity = {
  /** The conversation key: an HMAC of assistant and session. */
  _id: string;
  /**
   * A session that starts again after its erasure gets a new id, so that late writes to the erased conversation do not
   * match the new conversation.
   */
  conversationId: string;
  assistantId: string;
  sessionId: string;
  channel: ChannelName;
  createdAt: Date;
};

/** What callers can see. Only a write that changes what they see sets `updatedAt`. */
type State = {
  language: string;
  status: Status;
  tags: Tag[];
  attributes?: Attribute[];
  leadScore: number;
  leadBecause: string[];
  resolvedAt: Date | null;
  resolvedBy: string | null;
  /** The times of the last resolutions. Reopening keeps them, so that the figures count each of them. */
  resolutions?: Date[];
  updatedAt: Date;
};

/** The present escalation, and what leads to one. */
type Escalation = {
  escalatedAt: Date | null;
  escalationReason: string | null;
  lowConfidenceStreak: number;
  engineErrorStreak: number;
  holding: Holding | null;
  /** When the first visitor message that waits for a person arrived. Null if none waits. */
  waitingSince?: Date | null;
  /** Until when somebody must take the escalation. Removed when it is taken or when the time is over. */
  takeBy?: Date;
  /** When operators were reminded of an escalation that nobody took in time. */
  remindedAt?: Date;
};

/** The pending turns and the finished ones. */
type Turns = {
  /** The pending turns in order. The first one is the head. */
  waiting: PendingTurn[];
  /** When the head became the head, or when a sweep last restored its job. */
  headSince: Date;
  /** Finished turns, oldest first. */
  recent: RecentTurn[];
};

/** Final messages that are not in the collection `messages` yet. */
type Texts = {
  /** The number of the last final message. */
  seq: number;
  /** Messages up to this number are in the collection `messages`; later messages are in `texts`. */
  storedTo: number;
  /**
   * Messages that are not stored as a page yet, by `seq`. Their page is still incomplete, or the last write completed
   * it.
   */
  texts: Record<string, Message[]>;
};

/** What the delivery worker sends. */
type Deliveries = {
  /** The pending events, oldest first. */
  outbox?: OutboxEvent[];
  /** How many events were ever announced to each endpoint. This is also the number of its last event. */
  announced?: Record<string, number>;
};

/** What operators set in the inbox. A cleared field is absent, so that partial indexes leave the document out. */
type Handling = {
  assigneeId?: string;
  snoozedUntil?: Date;
  snoozedAt?: Date;
  /** When a note was last added or deleted. Live updates watch this field. */
  notedAt?: Date;
};

/**
 * The document of a conversation: everything that must change in one atomic update (docs/design.md, The conversation
 * document). Only this folder reads and writes it. The fields of all parts are top-level.
 */
export type StoredConversation = Identity & State & Escalation & Turns & Texts & Deliveries & Handling;

/** A conversation without its turns, texts and events, which may have some MiB. */
export type ConversationState = Omit<StoredConversation, 'outbox' | 'recent' | 'texts' | 'waiting'>;
export const IDENTITY = { conversationId: 1, assistantId: 1, sessionId: 1, channel: 1 } as const;
export const WITHOUT_CONTENTS = { outbox: 0, recent: 0, texts: 0, waiting: 0 } as const;

/** The projection that reads these fields. If it lacks one, the program does not compile. `_id` is always read. */
export type FieldsOf<Read> = Record<Exclude<keyof Read, '_id'>, 1> & { _id?: 1 };

/** The collection. Only this folder reads and writes it; live updates watch its changes. */
export const CONVERSATIONS = 'conversations';

// The schema is not strict, because the store writes documents with its own updates. The types above describe the
// documents.
const conversationSchema = schemaOf<StoredConversation>(CONVERSATIONS);
conversationSchema.index(
  { assistantId: 1, headSince: 1 },
  { name: 'heads_by_assistant', partialFilterExpression: { 'waiting.0': { $exists: true } } },
);
// Very many events may wait for a suspended endpoint. The index begins with the endpoint, so that a sweep can skip the
// part of such an endpoint.
conversationSchema.index(
  { 'outbox.endpoints': 1, 'outbox.0.at': 1 },
  { name: OUTBOX_INDEXES.byEndpoint, partialFilterExpression: { 'outbox.0': { $exists: true } } },
);
conversationSchema.index(
  { 'outbox.0.at': 1 },
  { name: OUTBOX_INDEXES.full, partialFilterExpression: { [`outbox.${BACKLOG_MAX}`]: { $exists: true } } },
);
// This index contains only escalations that nobody has taken yet, so other writes do not touch it. Assistants take turns.
conversationSchema.index(
  { assistantId: 1, takeBy: 1 },
  { name: 'not_taken', partialFilterExpression: { takeBy: { $exists: true } } },
);
conversationSchema.index({ assistantId: 1, updatedAt: 1, _id: 1 }, { name: 'by_change' });
// The inbox finds rare values with the following indexes, and common values in the order of `by_change`. A turn changes
// none of their fields, unless it hands off or changes the language. There are few indexes, because MongoDB 6 computes
// the keys of all indexes on each write: every index costs every turn about 3 µs of MongoDB’s CPU.
conversationSchema.index(
  { assistantId: 1, status: 1, language: 1, channel: 1, assigneeId: 1, snoozedUntil: 1 },
  { name: 'inbox_filters' },
);
conversationSchema.index(
  { assistantId: 1, 'tags.tag': 1, status: 1, language: 1, channel: 1, assigneeId: 1 },
  { name: 'tagged', partialFilterExpression: { 'tags.0': { $exists: true } } },
);
conversationSchema.index(
  { assistantId: 1, 'attributes.name': 1, 'attributes.value': 1 },
  { name: 'attributes', partialFilterExpression: { 'attributes.0': { $exists: true } } },
);

export const BY_TURN = 'by_turn';

const pageSchema = schemaOf<StoredPage>('messages');
// A turn that is no longer in `recent` is found here. The turn ids of a conversation have the same prefix, so they are
// neighbours in this index.
pageSchema.index({ 'entries.messages.turnId': 1 }, { name: BY_TURN });

export const conversationModels = (connection: Connection) => ({
  conversations: connection.model<StoredConversation>('Conversation', conversationSchema),
  messages: connection.model<StoredPage>('Message', pageSchema),
});

/** The filter of a change that depends on these fields: they must still be as they were read. */
export const unchangedFilter = (read: Partial<StoredConversation>, fields: (keyof StoredConversation)[]) =>
  Object.fromEntries(fields.map((field) => [field, read[field] ?? { $exists: false }]));

/** The operators that set these fields, and remove those that are undefined. */
export const updateOf = (changes: Partial<StoredConversation>) => {
  const all = Object.entries(changes);
  const set = all.filter(([, value]) => value !== undefined);
  const removed = all.flatMap(([field, value]) => (value === undefined ? [[field, 1] as const] : []));
  return { $set: Object.fromEntries(set), $unset: Object.fromEntries(removed) };
};

const MAX_ATTRIBUTES = 50;
const MAX_BYTES = 8 * 1024;
const MAX_VALUE = 500;
const NAME = /^[a-z0-9_]{1,64}$/;

/** What callers tell about a visitor, as one flat object on the wire. */
export const AttributesView = z
  .record(z.string(), z.union([z.string(), z.number(), z.boolean()]))
  .meta({ id: 'Attributes', example: { plan: 'pro', orders: 3 } });
export type AttributesView = z.infer<typeof AttributesView>;

/** One attribute that is set, or removed if its value is null. */
export type AttributeChange = { name: string; value: Attribute['value'] | null };

const isValue = (value: unknown): value is AttributeChange['value'] =>
  value === null ||
  typeof value === 'boolean' ||
  (typeof value === 'number' && Number.isFinite(value)) ||
  (typeof value === 'string' && isStorableText(value) && [...value].length <= MAX_VALUE);

/**
 * Attributes to set or remove. The object is made a list before anything else, because its names come from outside: zod
 * drops the name `__proto__` from a record, and MongoDB does not accept every name as a key.
 */
export const AttributesInput = z
  .unknown()
  .transform((body, context): AttributeChange[] =>
    Object.entries(body as object).flatMap(([name, value]: [string, unknown]) => {
      const refuse = (message: string): [] => {
        context.addIssue({ code: 'custom', path: NAME.test(name) ? [name] : ['attributes'], message });
        return [];
      };
      if (!NAME.test(name)) return refuse('must have names of 1–64 characters of a–z, 0–9 and _');
      if (isValue(value)) return [{ name, value }];
      return refuse(`must be a text of at most ${MAX_VALUE} characters, a number, true, false or null`);
    }),
  )
  .meta({
    id: 'AttributesInput',
    override: {
      type: 'object',
      propertyNames: { pattern: '^[a-z0-9_]{1,64}$' },
      additionalProperties: {
        anyOf: [{ type: 'string', maxLength: MAX_VALUE }, { type: 'number' }, { type: 'boolean' }, { type: 'null' }],
      },
    },
  });

export const toAttributesView = (attributes: Attribute[] = []): AttributesView =>
  Object.fromEntries(attributes.map(({ name, value }) => [name, value]));

/** The attributes after a change. Known names keep their place. Throws a 422 if the result is too large. */
export const mergeAttributes = (stored: Attribute[], changes: AttributeChange[]): Attribute[] => {
  const merged = new Map<string, AttributeChange['value']>(stored.map(({ name, value }) => [name, value]));
  for (const { name, value } of changes) merged.set(name, value);
  const kept = [...merged].flatMap(([name, value]) => (value === null ? [] : [{ name, value }]));
  if (kept.length > MAX_ATTRIBUTES)
    throw invalid('attributes', 'too_many', `must be at most ${MAX_ATTRIBUTES} after the change`);
  if (Buffer.byteLength(JSON.stringify(toAttributesView(kept))) > MAX_BYTES)
    throw invalid('attributes', 'too_large', 'must be at most 8 KiB after the change');
  return kept;
};
