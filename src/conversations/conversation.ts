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

/** At most so many turns of a session are unanswered, the one being answered included (docs/contract.md, Order of turns). */
export const MAX_PENDING = 20;
/** A failed or undelivered turn can be resumed for so long (docs/contract.md, Retry is safe). */
export const RESUMABLE_FOR_MS = TIMING.resumableForMs;

export type Message = {
  messageId: string;
  turnId: string | null;
  role: Role;
  content: string;
  language: string | null;
  suggestedActions?: SuggestedAction[];
  /** Why this reply; for people of the service, never shown to visitors. */
  why?: Record<string, unknown>;
  /** On a visitor message that stands alone: the holding text it was answered with. */
  heldBy?: { messageId: string; seq: number };
  createdAt: Date;
};

/** The messages of one seq: a turn's two, or one standing alone. */
export type Entry = { seq: number; messages: Message[] };

/** How history is stored: so many numbers to a document, always the same ones, so that storing a page twice is harmless. */
export const PAGE_SIZE = 8;
export type StoredPage = { _id: string; conversationId: string; entries: Entry[] };

/** An accepted turn that has no answer yet. The head of `waiting` is the one being answered. */
export type PendingTurn = {
  turnId: string;
  messageId: string;
  message: string;
  language: string;
  /** How the language was decided; for the reply's `why`. */
  languageBy?: string;
  /** Hash of the exact message; none under an `Idempotency-Key`, since such turns are never matched by content. */
  dedupeKey?: string;
  /** Redis channels of the API processes where callers wait. */
  replyTo: string[];
  acceptedAt: Date;
  /** A resumed turn's visitor message keeps the seq it got when the turn failed. */
  seq?: number;
  /** Accepted with 202: counts as delivered when answered. */
  async?: boolean;
};

/** A finished turn, without its text: enough to replay it, resume it, or know that it was there. */
export type RecentTurn = {
  turnId: string;
  messageId: string;
  dedupeKey?: string;
  outcome: 'answered' | 'failed';
  /** Of the visitor message. */
  seq: number;
  /** Where the answer stands: the turn's own seq, a resumed turn's later one, or the holding text's. */
  replySeq?: number;
  replyMessageId?: string;
  finishedAt: Date;
  async?: boolean;
};

/** A turn, and the key of its conversation. */
export type TurnRef = { key: string; turnId: string };

/** Which of these turns' replies are recorded to have reached a caller. */
export type FindDelivered = (turns: TurnRef[]) => Promise<Set<string>>;

/** An event not yet ended at every endpoint it goes to. */
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
  /** This life of the session: an erased conversation's late writes never reach the one begun anew. */
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
  /** The last number given. */
  seq: number;
  /** Numbers up to this one stand in `messages`; those after it in `texts`. Not there in what 0.1 stored before it had it. */
  storedTo?: number;
  headSince: Date;
  waiting: PendingTurn[];
  recent: RecentTurn[];
  /** Messages by seq, not yet taken over into `messages`: those of a page that is not full, or has filled just now. */
  texts: Record<string, Message[]>;
  /** The `conversation.created` event. In a field of its own: an upsert cannot both set and push on one path. */
  opening?: OutboxEvent;
  outbox?: OutboxEvent[];
  createdAt: Date;
  updatedAt: Date;
};

// `strict: false`: documents are written by the store's own updates, whose shapes are the types above.
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

/** What opening again clears (docs/contract.md, States). */
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

/** Facts of a conversation at its birth, so that no later write needs to ask whether a field is there. */
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
