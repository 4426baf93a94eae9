import { type Connection, Schema } from 'mongoose';
import type { SuggestedAction } from '../assistants/suggested-action.ts';
import type { ConversationEvent } from '../webhooks/event.ts';
import { TIMING } from '../platform/timing.ts';

export const CHANNELS = ['api', 'webhook', 'web', 'playground'] as const;
export type ChannelName = (typeof CHANNELS)[number];

export const STATUSES = ['open', 'escalated', 'resolved'] as const;
export type Status = (typeof STATUSES)[number];

export const ROLES = ['user', 'assistant', 'operator', 'system'] as const;
export type Role = (typeof ROLES)[number];

/** The most pending turns of a session, including the one being answered (docs/contract.md, Order of turns). */
export const MAX_PENDING = 20;
/** How long a failed turn can be resumed and an undelivered one replayed (docs/contract.md, Retry is safe). */
export const RESUMABLE_FOR_MS = TIMING.resumableForMs;

export type Message = {
  messageId: string;
  turnId: string | null;
  role: Role;
  content: string;
  language: string | null;
  suggestedActions?: SuggestedAction[];
  /** How the reply was chosen. Shown to operators, never to visitors. */
  why?: Record<string, unknown>;
  /** On a visitor message without a reply of its own: the holding text that answered it. */
  heldBy?: { messageId: string; seq: number };
  createdAt: Date;
};

/** The messages of one `seq`: the two of a turn, or a single one. */
export type Entry = { seq: number; messages: Message[] };

/** Numbers (`seq`) per stored page. A page always holds the same numbers, so storing it twice is harmless. */
export const PAGE_SIZE = 8;
export type StoredPage = { _id: string; conversationId: string; entries: Entry[] };

/** An accepted turn that has no answer yet. The first of `waiting` is the head: the turn that is answered next. */
export type PendingTurn = {
  turnId: string;
  messageId: string;
  message: string;
  language: string;
  /** How the language was decided; for the reply's `why`. */
  languageBy?: string;
  /** Hash of the exact message. Missing under an `Idempotency-Key`: such turns are never matched by content. */
  dedupeKey?: string;
  /** Redis channels of the API processes where callers wait. */
  replyTo: string[];
  acceptedAt: Date;
  /** A resumed turn's visitor message keeps the seq it got when the turn failed. */
  seq?: number;
  /** Accepted with 202: counts as delivered when answered. */
  async?: boolean;
};

/** A finished turn without its text. It is enough to replay, resume or recognise the turn. */
export type RecentTurn = {
  turnId: string;
  messageId: string;
  dedupeKey?: string;
  outcome: 'answered' | 'failed';
  /** The number of the visitor message. */
  seq: number;
  /** The number of the reply: the same `seq`, a later one if the turn was resumed, or that of the holding text. */
  replySeq?: number;
  replyMessageId?: string;
  finishedAt: Date;
  async?: boolean;
};

/** A turn, and the key of its conversation. */
export type TurnRef = { key: string; turnId: string };

/** Which of these turns' replies are recorded to have reached a caller. */
export type FindDelivered = (turns: TurnRef[]) => Promise<Set<string>>;

/** An event that has not ended yet at every endpoint it goes to. */
export type OutboxEvent = ConversationEvent & {
  eventId: string;
  /** Unix seconds, as the envelope says. */
  timestamp: number;
  at: Date;
  endpoints: string[];
};

export type Tag = { tag: string; color: string | null };

/** The holding text of this escalation: stored once, answered to every later visitor message. */
export type Holding = { messageId: string; seq: number; text: string; language: string };

export type StoredConversation = {
  _id: string;
  /**
   * Changes when an erased session starts again, so that late writes to the old conversation do not match the new one.
   */
  conversationId: string;
  assistantId: string;
  sessionId: string;
  channel: ChannelName;
  language: string;
  status: Status;
  escalatedAt: Date | null;
  escalationReason: string | null;
  resolvedAt: Date | null;
  resolvedBy: string | null;
  leadScore: number;
  leadBecause: string[];
  tags: Tag[];
  lowConfidenceStreak: number;
  engineErrorStreak: number;
  holding: Holding | null;
  /** The number of the last final message. */
  seq: number;
  /**
   * Numbers up to this one are in the collection `messages`, later ones in `texts`. Missing in documents of early 0.1
   * versions.
   */
  storedTo?: number;
  headSince: Date;
  waiting: PendingTurn[];
  recent: RecentTurn[];
  /** Messages by `seq` that are not stored as a page yet: their page is not full, or the last write filled it. */
  texts: Record<string, Message[]>;
  /** The created event. It has its own field because an upsert cannot both set and push on one path. */
  opening?: OutboxEvent;
  outbox?: OutboxEvent[];
  createdAt: Date;
  updatedAt: Date;
};

// The schema is not strict: the store writes documents with its own updates, whose shapes are the types above.
const conversationSchema = new Schema<StoredConversation>(
  { _id: { type: String, required: true } },
  { collection: 'conversations', versionKey: false, strict: false },
);
conversationSchema.index(
  { headSince: 1 },
  { name: 'waiting_heads', partialFilterExpression: { 'waiting.0': { $exists: true } } },
);
conversationSchema.index(
  { 'outbox.0.at': 1 },
  { name: 'outbox_heads', partialFilterExpression: { 'outbox.0': { $exists: true } } },
);
conversationSchema.index(
  { 'opening.at': 1 },
  { name: 'openings', partialFilterExpression: { opening: { $exists: true } } },
);
conversationSchema.index({ assistantId: 1, updatedAt: 1, _id: 1 }, { name: 'by_change' });

const pageSchema = new Schema<StoredPage>(
  { _id: { type: String, required: true } },
  { collection: 'messages', versionKey: false, strict: false },
);

export const conversationModels = (connection: Connection) => ({
  conversations: connection.model<StoredConversation>('Conversation', conversationSchema),
  messages: connection.model<StoredPage>('Message', pageSchema),
});

/** The fields that reopening resets (docs/contract.md, States). */
export const REOPENED = {
  status: 'open' as const,
  escalatedAt: null,
  escalationReason: null,
  resolvedAt: null,
  resolvedBy: null,
  holding: null,
  lowConfidenceStreak: 0,
  engineErrorStreak: 0,
};

/** The fields of a new conversation. All are set, so that no later write has to check whether a field exists. */
export const initialState = () => ({
  ...REOPENED,
  leadScore: 0,
  leadBecause: [],
  tags: [],
  seq: 0,
  storedTo: 0,
  recent: [],
  texts: {},
});
