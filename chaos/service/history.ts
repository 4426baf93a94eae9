import type { Outcome } from '../../src/events/delivery.ts';

/** The ways in which a visitor's message is sent. `key` sends an idempotency key; `channel` is the inbound webhook. */
export const WAYS = ['json', 'stream', 'async', 'channel', 'key'] as const;
export type Way = (typeof WAYS)[number];

/** The chat response. */
export type Told = { reply: string; conversationId: string; messageId: string };

/** What came of one attempt to send a message, `200` or the failure, and when. */
type Attempted = { result: string; at: number };

/** One message of a visitor, with all attempts to send it. Times are monotonic, in ms. */
export type Sent = {
  session: string;
  way: Way;
  message: string;
  startedAt: number;
  /** When the response arrived, or when the visitor gave up. */
  endedAt: number;
  attempts: Attempted[];
  /** The ids of the turns that the visitor was told are accepted, by a 202 or in a stream. */
  accepted: Set<string>;
  /** Null if the visitor gave up: the message may or may not be stored. */
  told: Told | null;
};

/** What an operator did. It was certainly done if `status` is 2xx, else it may have been done. */
export type Acted = {
  action: 'escalate' | 'reply' | 'hand back' | 'resolve' | 'tag' | 'erase';
  session: string;
  conversationId: string;
  status: number | null;
  /** Why there is no status. */
  failure?: string;
  content?: string;
  at: number;
};

export type Session = {
  assistantId: string;
  /** Null until the first reply names it. */
  conversationId: string | null;
  erased: boolean;
};

/** What the processes and receivers reported while the faults were injected. */
export type Histories = {
  sent: Sent[];
  acted: Acted[];
  sessions: Map<string, Session>;
  /** When MongoDB was told to refuse the next writes (`REFUSED_WRITES` in rule-of-refusals.ts). */
  refusedAt: number[];
};

export const newHistories = (): Histories => ({ sent: [], acted: [], sessions: new Map(), refusedAt: [] });

/** A request that arrived at a receiver, in order of arrival. */
export type Seen = {
  eventId: string;
  event: string;
  conversationId: string;
  content: string | null;
  /** Only of `message.sent`. */
  messageId: string | null;
};

export type StoredMessage = {
  messageId: string;
  turnId: string | null;
  seq: number | null;
  role: string;
  content: string;
};

export type Delivery = {
  deliveryId: string;
  eventId: string;
  endpointId: string;
  conversationId: string;
  event: string;
  outcome: Outcome;
  errorKind: string | null;
  body: string | null;
};

export type Violation = { rule: string; session: string; what: string };
