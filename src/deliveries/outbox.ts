import type { Connection } from 'mongoose';
import type { ConversationEvent, ConversationEventKind } from '../webhooks/event.ts';
import { serverNow } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { collectionOf, createReader, createStoreBatcher, updateMany, type UpdateStatement } from '../platform/mongo.ts';
import { conversationModels, type OutboxEvent, type StoredConversation } from '../conversations/conversation.ts';

/** More unsent events of one conversation to one endpoint than this: the oldest end `not_sent: backlog` (contract §6). */
export const BACKLOG_MAX = 500;

/** The events of one conversation to one endpoint: sent in order, one at a time. */
export type EventLine = { key: string; endpointId: string };

/** Endpoints that want an event of this kind at this moment. */
export type ReceiversOf = (event: ConversationEventKind) => string[];

/** An event as it enters the outbox; null where nobody wants it, for then no event is kept. */
export const newOutboxEvent = (event: ConversationEvent, receiversOf: ReceiversOf, at: Date): OutboxEvent | null => {
  const endpoints = receiversOf(event.event);
  if (endpoints.length === 0) return null;
  return { ...event, eventId: newId(), timestamp: Math.floor(at.getTime() / 1000), at, endpoints };
};

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
/** Enough to go on with after an event has ended: a line that waits long is not read anew for each of its events. */
const LOOK_AHEAD = 2;
const NEXT = { ...OUTBOX_FIELDS, outbox: { $slice: LOOK_AHEAD } };
const STUBS = Object.fromEntries(
  [
    'conversationId',
    ...['opening', 'outbox'].flatMap((at) => ['eventId', 'at', 'endpoints'].map((name) => `${at}.${name}`)),
  ].map((path) => [path, 1]),
);

/** Ended events of one line, as they stood when read: which entry each was, and whether this endpoint was its last. */
type Pull = { key: string; conversationId: string; endpointId: string; ended: OutboxEvent[]; opening: boolean };

/**
 * The endpoint leaves an event's entry, or the entry goes if it was the last: statements whose filters exclude each other.
 * Endpoints are only ever taken off an entry, so one read with this endpoint alone needs the first statement only; one
 * read with more may have become this one's alone since. What two pulls at once leave behind is pulled by the next who
 * meets it: its claim says that it has ended.
 */
const pullStatements = ({ key, conversationId, endpointId, ended, opening }: Pull): UpdateStatement[] => {
  const home = { _id: key, conversationId };
  const shared = ended.filter(({ endpoints }) => endpoints.length > 1).map(({ eventId }) => eventId);
  if (opening) {
    const eventId = ended[0]?.eventId;
    const last = { ...home, 'opening.eventId': eventId, 'opening.endpoints': [endpointId] };
    const oneOfMany = {
      ...home,
      'opening.eventId': eventId,
      'opening.endpoints': endpointId,
      'opening.endpoints.1': { $exists: true },
    };
    return [
      { q: last, u: { $unset: { opening: 1 } } },
      ...(shared.length > 0 ? [{ q: oneOfMany, u: { $pull: { 'opening.endpoints': endpointId } } }] : []),
    ];
  }
  const eventId = { $in: ended.map((event) => event.eventId) };
  // By `_id` alone: MongoDB plans any other filter anew for each statement, at a third of what this one costs. Event ids
  // are of one life of the session, so what is pulled says which life is meant.
  const last = { q: { _id: key }, u: { $pull: { outbox: { eventId, endpoints: [endpointId] } } } };
  if (shared.length === 0) return [last];
  const oneOfMany = {
    q: { ...home, 'outbox.eventId': { $in: shared } },
    u: { $pull: { 'outbox.$[entry].endpoints': endpointId } },
    arrayFilters: [{ 'entry.eventId': { $in: shared }, 'entry.endpoints.1': { $exists: true } }],
  };
  return [last, oneOfMany];
};

export type FindStale = {
  olderThanMs: number;
  leaveOut: string[];
  limit: number;
  /** Heads older than this are found whatever is left out, and so are lines over the bound. */
  expiredMs?: number;
};

/** The delivery side of the conversation document. */
export const createOutbox = (connection: Connection) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  /** Batched; null where the conversation is gone. */
  const read: (key: string) => Promise<Outbox | null> = createReader(conversations, OUTBOX_FIELDS);
  const readNext: typeof read = createReader(conversations, NEXT);

  const pull = createStoreBatcher<Pull, Outbox | null>(async (items) => {
    await updateMany(connection, 'conversations', items.flatMap(pullStatements));
    return Promise.all(items.map(({ key }) => readNext(key)));
  });

  /** Other endpoints' events may stand before this line's. */
  const mayHideNext = (next: Outbox, endpointId: string): boolean =>
    (next.outbox?.length ?? 0) >= LOOK_AHEAD && lineOf(next, endpointId).length === 0;

  return {
    read,

    /**
     * Takes ended events off their line, as read; call it only once their outcomes are acknowledged. Answers with the
     * outbox as it stands after, from which the line's next event is chosen: its beginning, as far as that is needed, or all of it.
     */
    pullEnded: async (
      outbox: Outbox,
      endpointId: string,
      ended: OutboxEvent[],
      { readWhole = false }: { readWhole?: boolean } = {},
    ): Promise<Outbox | null> => {
      const { _id: key, conversationId, opening } = outbox;
      const first = ended.filter(({ eventId }) => eventId === opening?.eventId);
      const rest = ended.filter(({ eventId }) => eventId !== opening?.eventId);
      const home = { key, conversationId, endpointId };
      const [, after] = await Promise.all([
        first.length > 0 && rest.length > 0 ? pull({ ...home, ended: first, opening: true }) : null,
        rest.length > 0
          ? pull({ ...home, ended: rest, opening: false })
          : pull({ ...home, ended: first, opening: true }),
      ]);
      return after && (readWhole || mayHideNext(after, endpointId)) ? read(key) : after;
    },

    /**
     * Conversations with an unsent event older than `olderThanMs` by the server's clock, oldest first. `leaveOut`:
     * endpoints whose lines rest for a known reason; a conversation with nothing else to say is not found.
     */
    findStale: async ({ olderThanMs, leaveOut, limit, expiredMs }: FindStale): Promise<StaleOutbox[]> => {
      const now = serverNow();
      const older = (ms: number) => ({ $lt: new Date(now - ms) });
      const others = { $elemMatch: { $nin: leaveOut } };
      const due = <Condition>(wanted: Condition, ...anyway: Condition[]): { $or?: Condition[] } =>
        leaveOut.length === 0 ? {} : { $or: [wanted, ...anyway] };
      const expired = (path: string) => (expiredMs === undefined ? [] : [{ [path]: older(expiredMs) }]);
      const [openings, outboxes] = await Promise.all([
        conversations
          .find(
            {
              opening: { $exists: true },
              'opening.at': older(olderThanMs),
              ...due<object>({ 'opening.endpoints': others }, ...expired('opening.at')),
            },
            { projection: STUBS },
          )
          .hint('openings')
          .limit(limit)
          .toArray(),
        conversations
          .find(
            {
              'outbox.0': { $exists: true },
              'outbox.0.at': older(olderThanMs),
              ...due<object>(
                { outbox: { $elemMatch: { endpoints: others } } },
                { [`outbox.${BACKLOG_MAX}`]: { $exists: true } },
                ...expired('outbox.0.at'),
              ),
            },
            { projection: STUBS },
          )
          .hint('outbox_heads')
          .limit(limit)
          .toArray(),
      ]);
      return [...new Map([...openings, ...outboxes].map((row) => [row._id, row as StaleOutbox])).values()];
    },

    /** Conversations with something unsent to this endpoint: for a change of the endpoint, which its lines must hear of. */
    findKeysOf: async (endpointId: string, limit: number): Promise<string[]> => {
      const options = { projection: { _id: 1 } };
      const [openings, outboxes] = await Promise.all([
        conversations
          .find({ opening: { $exists: true }, 'opening.endpoints': endpointId }, options)
          .hint('openings')
          .limit(limit)
          .toArray(),
        conversations
          .find({ 'outbox.0': { $exists: true }, 'outbox.endpoints': endpointId }, options)
          .hint('outbox_heads')
          .limit(limit)
          .toArray(),
      ]);
      return [...new Set([...openings, ...outboxes].map(({ _id }) => _id))];
    },
  };
};

export type OutboxStore = ReturnType<typeof createOutbox>;
