import type { OutboxEvent, StoredConversation } from '../conversations/conversation.ts';

/**
 * The most pending events of a delivery stream (one conversation, one endpoint). Beyond it, the oldest end `not_sent:
 * backlog` (docs/contract.md, Every event ends).
 */
export const BACKLOG_MAX = 500;

/**
 * The fields of a conversation that deliveries need. `opening` is the created event, which is sent first. `outbox`
 * holds the other pending events in order.
 */
export type Outbox = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'opening' | 'outbox'
>;

/** The part of an event that decides which event is next. */
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

/** What a sweep reads of each outbox: events without their payloads. */
export type StaleOutbox = { _id: string; conversationId: string } & Entries<EventStub>;

/** The fields of `Outbox`. */
export const OUTBOX_FIELDS = { conversationId: 1, assistantId: 1, sessionId: 1, channel: 1, opening: 1, outbox: 1 };
