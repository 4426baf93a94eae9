import type { Connection } from 'mongoose';
import { serverNow } from '../process/clock.ts';
import { isUuid, prefixRange } from '../process/ids.ts';
import {
  collectionOf,
  createReader,
  createStoreBatcher,
  timeLimit,
  updateAndRead,
  updateMany,
  type UpdateStatement,
} from '../mongo/mongo.ts';
import { exceededTimeLimit } from '../mongo/failures.ts';
import {
  BACKLOG_MAX,
  conversationModels,
  CONVERSATIONS,
  type FieldsOf,
  OUTBOX_INDEXES,
  type OutboxEvent,
  type StoredConversation,
} from './conversation.ts';

/** The fields of a conversation that deliveries need. `outbox` contains the pending events in order. */
export type Outbox = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'outbox'
>;
const OUTBOX_FIELDS = {
  conversationId: 1,
  assistantId: 1,
  sessionId: 1,
  channel: 1,
  outbox: 1,
} satisfies FieldsOf<Outbox>;

/** The part of an event that is needed to choose the next event. */
type EventStub = Pick<OutboxEvent, 'eventId' | 'at' | 'endpoints'>;
/**
 * The part of each outbox that a sweep reads: of each endpoint the first event, without its payload. `isFull`: it has
 * more events than a stream may have.
 */
export type StaleOutbox = { _id: string; conversationId: string; isFull: boolean; outbox?: EventStub[] };
const FIRST = { eventId: '$$this.eventId', at: '$$this.at', endpoints: '$$this.endpoints' };
/** Computed by MongoDB: a sweep reads thousands of outboxes, and each may hold hundreds of events. */
const FIRST_EVENTS = {
  $reduce: {
    input: '$outbox',
    initialValue: { known: [], events: [] },
    in: {
      $cond: [
        { $setIsSubset: ['$$this.endpoints', '$$value.known'] },
        '$$value',
        {
          known: { $setUnion: ['$$value.known', '$$this.endpoints'] },
          events: { $concatArrays: ['$$value.events', [FIRST]] },
        },
      ],
    },
  },
};
const STUB_FIELDS = {
  conversationId: 1,
  isFull: { $gt: [{ $size: '$outbox' }, BACKLOG_MAX] },
  outbox: { $let: { vars: { first: FIRST_EVENTS }, in: '$$first.events' } },
};

/** The pending events of a stream, oldest first. */
export const pendingOf = <Event extends EventStub>(
  { outbox = [] }: { outbox?: Event[] },
  endpointId: string,
): Event[] => outbox.filter(({ endpoints }) => endpoints.includes(endpointId));

export const endpointsOf = ({ outbox = [] }: { outbox?: EventStub[] }): string[] => [
  ...new Set(outbox.flatMap(({ endpoints }) => endpoints)),
];

/**
 * How many events to read after a pull. Two events are enough to find the next event in most cases, without reading a
 * long stream each time.
 */
export const LOOK_AHEAD = 2;
const NEXT_FIELDS = { ...OUTBOX_FIELDS, outbox: { $slice: LOOK_AHEAD } };

/** True if all events that were read are for other endpoints and the outbox may have more events. */
const mayHideNext = (next: Outbox, endpointId: string): boolean =>
  (next.outbox?.length ?? 0) >= LOOK_AHEAD && pendingOf(next, endpointId).length === 0;

/** Ended events of one stream, as they were read. */
type Pull = { key: string; conversationId: string; endpointId: string; ended: OutboxEvent[] };

/**
 * Updates that remove the endpoint from the outbox entries of ended events. The first statement removes an entry that
 * has no other endpoint left. The second removes only the endpoint from an entry that has others. An entry never gains
 * endpoints, so one that was read with this endpoint alone needs only the first. One that was read with more may have
 * lost them by now, so it needs both. If two concurrent pulls still leave an entry, the next delivery finds that the
 * event has ended and pulls the entry again.
 */
const pullStatements = ({ key, conversationId, endpointId, ended }: Pull): UpdateStatement[] => {
  const eventId = { $in: ended.map((event) => event.eventId) };
  const shared = ended.filter(({ endpoints }) => endpoints.length > 1).map((event) => event.eventId);
  // The filter contains only `_id`, because MongoDB would plan any other filter again for each statement, which costs a
  // third more. `_id` alone is safe: if the session was erased and started again, the new conversation does not contain
  // this event id, so nothing is removed.
  const last = { q: { _id: key }, u: { $pull: { outbox: { eventId, endpoints: [endpointId] } } } };
  if (shared.length === 0) return [last];
  const oneOfMany = {
    q: { _id: key, conversationId, 'outbox.eventId': { $in: shared } },
    u: { $pull: { 'outbox.$[entry].endpoints': endpointId } },
    arrayFilters: [{ 'entry.eventId': { $in: shared }, 'entry.endpoints.1': { $exists: true } }],
  };
  return [last, oneOfMany];
};

type FindStale = {
  olderThanMs: number;
  exclude: string[];
  limit: number;
  /**
   * Streams whose first event is older than this are found even if their endpoint is excluded. Streams that exceed the
   * backlog limit are also always found.
   */
  expiredMs?: number;
};

const HAS_EVENTS = { 'outbox.0': { $exists: true } };

const LIST_WITHIN_MS = 2_000;
/** An outbox may have hundreds of events, so few are read at once. */
const LISTED_AT_ONCE = 10;
/** Events without their payloads: an outbox may hold hundreds of long texts, and a list reads a thousand outboxes. */
const LIST_FIELDS = { conversationId: 1, assistantId: 1, outbox: { eventId: 1, event: 1, at: 1, endpoints: 1 } };

/** The events of conversations that wait to be delivered: the part of the document that deliveries use. */
export type OutboxStore = {
  read: (key: string) => Promise<Outbox | null>;

  /**
   * Removes ended events from their stream. Call this only after MongoDB has acknowledged their outcomes. Returns the
   * beginning of the changed outbox, so that the caller can choose the next event. With `readWhole`, returns the
   * whole changed outbox.
   */
  pullEnded: (
    outbox: Outbox,
    endpointId: string,
    ended: OutboxEvent[],
    options?: { readWhole?: boolean },
  ) => Promise<Outbox | null>;

  /**
   * Conversations with a pending event older than `olderThanMs` by MongoDB's clock. `exclude` lists endpoints whose
   * streams are suspended. A conversation whose events are all for these endpoints is neither found nor read, however
   * many there are: the index begins with the endpoint.
   */
  findStale: (wanted: FindStale) => Promise<StaleOutbox[]>;

  /** Endpoints with events that are older than this, each with its oldest event that is found. */
  listLate: (wanted: {
    olderThanMs: number;
    exclude: string[];
    limit: number;
  }) => Promise<{ endpointId: string; assistantId: string; oldestAt: Date }[]>;

  /** Conversations with pending events for this endpoint. */
  findKeysOf: (endpointId: string, limit: number) => Promise<string[]>;

  /**
   * The outboxes with pending events for these endpoints, or those of one conversation. They are read only as far as
   * the caller goes on.
   */
  listPending: (of: { endpointIds: string[] } | { conversationId: string }, limit: number) => AsyncIterable<Outbox>;

  /**
   * The number of pending events in the first `limit` conversations. An event counts once for each of its endpoints.
   */
  countPending: (endpointIds: string[], limit: number) => Promise<number>;

  /** The outbox in which this event is pending for this endpoint. */
  findPending: (eventId: string, endpointId: string) => Promise<Outbox | null>;
};

const LATE_ROUNDS = 10;
const LATE_AT_ONCE = 100;

export const createOutboxStore = (connection: Connection): OutboxStore => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  /** The outbox of a conversation, or null if the conversation is gone. Reads are batched. */
  const read: (key: string) => Promise<Outbox | null> = createReader(conversations, OUTBOX_FIELDS);
  const readNext: typeof read = createReader(conversations, NEXT_FIELDS);

  /**
   * Pulls and reads in one round trip. Returns null if the pull needs two statements or matches no document; the caller
   * then updates and reads separately.
   */
  const pullAndRead = async (item: Pull): Promise<Outbox | null> => {
    const [statement, ...others] = pullStatements(item);
    if (!statement || others.length > 0) return null;
    return updateAndRead<Outbox>(connection, CONVERSATIONS, { ...statement, fields: NEXT_FIELDS });
  };

  const pull = createStoreBatcher<Pull, Outbox | null>(async (items) => {
    const [first] = items;
    const pulled = first && items.length === 1 ? await pullAndRead(first) : null;
    if (pulled) return [pulled];
    await updateMany(connection, CONVERSATIONS, items.flatMap(pullStatements));
    return Promise.all(items.map(({ key }) => readNext(key)));
  });

  const findOfEndpoints = (endpointIds: string[]) => ({ ...HAS_EVENTS, 'outbox.endpoints': { $in: endpointIds } });

  return {
    read,

    pullEnded: async ({ _id: key, conversationId }, endpointId, ended, { readWhole = false } = {}) => {
      const after = await pull({ key, conversationId, endpointId, ended });
      return after && (readWhole || mayHideNext(after, endpointId)) ? read(key) : after;
    },

    findStale: async ({ olderThanMs, exclude, limit, expiredMs }) => {
      const now = serverNow();
      const olderThan = (ms: number) => ({ ...HAS_EVENTS, 'outbox.0.at': { $lt: new Date(now - ms) } });
      const find = (filter: object, hint: string) =>
        conversations.find(filter, { projection: STUB_FIELDS }).hint(hint).limit(limit).toArray();
      const rows = await Promise.all([
        find(
          { ...olderThan(olderThanMs), 'outbox.endpoints': { $elemMatch: { $nin: exclude } } },
          OUTBOX_INDEXES.byEndpoint,
        ),
        ...(exclude.length > 0
          ? [find({ ...olderThan(olderThanMs), [`outbox.${BACKLOG_MAX}`]: { $exists: true } }, OUTBOX_INDEXES.full)]
          : []),
        ...(exclude.length > 0 && expiredMs !== undefined
          ? [find({ ...olderThan(expiredMs), 'outbox.endpoints': { $in: exclude } }, OUTBOX_INDEXES.byEndpoint)]
          : []),
      ]);
      return [...new Map(rows.flat().map((row) => [row._id, row as unknown as StaleOutbox])).values()];
    },

    listLate: async ({ olderThanMs, exclude, limit }) => {
      const before = new Date(serverNow() - olderThanMs);
      const late = new Map<string, { endpointId: string; assistantId: string; oldestAt: Date }>();
      // One endpoint may have very many, so each round leaves out those that are known.
      for (let round = 0; round < LATE_ROUNDS && late.size < limit; round += 1) {
        const known = [...exclude, ...late.keys()];
        const rows = await conversations
          .find(
            { ...HAS_EVENTS, 'outbox.0.at': { $lt: before }, 'outbox.endpoints': { $elemMatch: { $nin: known } } },
            { projection: { assistantId: 1, 'outbox.at': 1, 'outbox.endpoints': 1 } },
          )
          .hint(OUTBOX_INDEXES.byEndpoint)
          .limit(LATE_AT_ONCE)
          .toArray();
        for (const { assistantId, outbox = [] } of rows) {
          for (const { at, endpoints } of outbox.filter((event) => event.at < before)) {
            for (const endpointId of endpoints) {
              const earlier = late.get(endpointId);
              if (!known.includes(endpointId) && (!earlier || at < earlier.oldestAt))
                late.set(endpointId, { endpointId, assistantId, oldestAt: at });
            }
          }
        }
        if (rows.length < LATE_AT_ONCE) break;
      }
      return [...late.values()].slice(0, limit);
    },

    findKeysOf: async (endpointId, limit) => {
      const rows = await conversations
        .find(findOfEndpoints([endpointId]), { projection: { _id: 1 } })
        .hint(OUTBOX_INDEXES.byEndpoint)
        .limit(limit)
        .toArray();
      return rows.map(({ _id }) => _id);
    },

    listPending: (of, limit) => {
      const options = { projection: LIST_FIELDS, batchSize: LISTED_AT_ONCE, ...timeLimit(LIST_WITHIN_MS) };
      if ('endpointIds' in of)
        return conversations
          .find<Outbox>(findOfEndpoints(of.endpointIds), options)
          .hint(OUTBOX_INDEXES.byEndpoint)
          .limit(limit);
      const { conversationId } = of;
      const none = { _id: '' };
      const range = isUuid(conversationId) ? { _id: prefixRange(conversationId), conversationId, ...HAS_EVENTS } : none;
      return conversations.find<Outbox>(range, options);
    },

    countPending: async (endpointIds, limit) => {
      const size = {
        $reduce: { input: '$outbox', initialValue: 0, in: { $add: ['$$value', { $size: '$$this.endpoints' }] } },
      };
      const stages = [
        { $match: findOfEndpoints(endpointIds) },
        { $limit: limit },
        { $group: { _id: null, count: { $sum: size } } },
      ];
      const rows = await conversations
        .aggregate<{ count: number }>(stages, { hint: OUTBOX_INDEXES.byEndpoint, ...timeLimit(LIST_WITHIN_MS) })
        .toArray();
      return rows[0]?.count ?? 0;
    },

    findPending: async (eventId, endpointId) => {
      const rows = await conversations
        .find(
          { ...findOfEndpoints([endpointId]), 'outbox.eventId': eventId },
          { projection: LIST_FIELDS, ...timeLimit(LIST_WITHIN_MS) },
        )
        .hint(OUTBOX_INDEXES.byEndpoint)
        .limit(1)
        .toArray()
        .catch((cause: unknown) => {
          // With very many pending events, the search takes too long. The event then counts as not found.
          if (exceededTimeLimit(cause)) return [];
          throw cause;
        });
      return rows[0] ?? null;
    },
  };
};
