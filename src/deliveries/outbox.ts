import type { OutboxEvent, StoredConversation } from '../conversations/conversation.ts';

/** More unsent events of one conversation to one endpoint than this: the oldest end `not_sent: backlog` (contract §6). */
export const BACKLOG_MAX = 500;

/** What a delivery needs to know of a conversation: who it is, and its events in order. */
export type Outbox = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'opening' | 'outbox'
>;

/** Enough of an event to know whose turn it is. */
export type EventStub = Pick<OutboxEvent, 'eventId' | 'at' | 'endpoints'>;
type Entries<Event> = { opening?: Event; outbox?: Event[] };

/** A line's unsent events, oldest first: `opening`, then those of the outbox that name the endpoint. */
export const lineOf = <Event extends EventStub>(
  { opening, outbox = [] }: Entries<Event>,
  endpointId: string,
): Event[] => [...(opening ? [opening] : []), ...outbox].filter(({ endpoints }) => endpoints.includes(endpointId));

export const endpointsOf = ({ opening, outbox = [] }: Entries<EventStub>): string[] => [
  ...new Set([...(opening?.endpoints ?? []), ...outbox.flatMap(({ endpoints }) => endpoints)]),
];

/** What a sweep reads of an outbox: of very many, so without what the events say. */
export type StaleOutbox = { _id: string; conversationId: string } & Entries<EventStub>;

/** Of a conversation, what is told of it to receivers. */
export const OUTBOX_FIELDS = { conversationId: 1, assistantId: 1, sessionId: 1, channel: 1, opening: 1, outbox: 1 };
