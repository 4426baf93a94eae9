import type { OutboxEvent, StoredConversation } from '../conversations/conversation.ts';

/**
 * A delivery stream is what is pending of one conversation for one endpoint: sent in order, one at a time. Beyond this
 * many, the oldest end `not_sent: backlog` (docs/contract.md, Every event ends).
 */
export const BACKLOG_MAX = 500;

/**
 * What a delivery needs to know of a conversation: who it is, and its pending events in order. `opening` holds its
 * `conversation.created`, which comes first: an upsert cannot both set and push on one path.
 */
export type Outbox = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'opening' | 'outbox'
>;

/** Enough of an event to know which is next. */
export type EventStub = Pick<OutboxEvent, 'eventId' | 'at' | 'endpoints'>;
type Entries<Event> = { opening?: Event; outbox?: Event[] };

/** A stream's pending events, oldest first. */
export const pendingOf = <Event extends EventStub>(
  { opening, outbox = [] }: Entries<Event>,
  endpointId: string,
): Event[] => [...(opening ? [opening] : []), ...outbox].filter(({ endpoints }) => endpoints.includes(endpointId));

export const endpointsOf = ({ opening, outbox = [] }: Entries<EventStub>): string[] => [
  ...new Set([...(opening?.endpoints ?? []), ...outbox.flatMap(({ endpoints }) => endpoints)]),
];

/** What a sweep reads of very many outboxes: without what the events say. */
export type StaleOutbox = { _id: string; conversationId: string } & Entries<EventStub>;

/** The fields of `Outbox`. */
export const OUTBOX_FIELDS = { conversationId: 1, assistantId: 1, sessionId: 1, channel: 1, opening: 1, outbox: 1 };
