import type { OutboxEvent, StoredConversation } from '../conversations/conversation.ts';

/**
 * The maximum number of pending events of a delivery stream (one conversation, one endpoint). When a stream has more,
 * its oldest events end as `not_sent: backlog` (docs/contract.md, Every event ends).
 */
export const BACKLOG_MAX = 500;

/**
 * The fields of a conversation that deliveries need. `opening` is the created event, which is sent first. `outbox`
 * contains the other pending events in order.
 */
export type Outbox = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'opening' | 'outbox'
>;

/** The part of an event that is needed to choose the next event. */
export type EventStub = Pick<OutboxEvent, 'eventId' | 'at' | 'endpoints'>;
type Entries<Event> = { opening?: Event; outbox?: Event[] };

/** The pending events of a stream, oldest first. */
export const pendingOf = <Event extends EventStub>(
  { opening, outbox = [] }: Entries<Event>,
  endpointId: string,
): Event[] => [...(opening ? [opening] : []), ...outbox].filter(({ endpoints }) => endpoints.includes(endpointId));

export const endpointsOf = ({ opening, outbox = [] }: Entries<EventStub>): string[] => [
  ...new Set([...(opening?.endpoints ?? []), ...outbox.flatMap(({ endpoints }) => endpoints)]),
];

/** The part of each outbox that a sweep reads: events without their payloads. */
export type StaleOutbox = { _id: string; conversationId: string } & Entries<EventStub>;

/** The projection that reads the fields of `Outbox`. */
export const OUTBOX_FIELDS = { conversationId: 1, assistantId: 1, sessionId: 1, channel: 1, opening: 1, outbox: 1 };
