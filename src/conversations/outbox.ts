import type { Connection } from 'mongoose';
import { serverNow } from '../platform/process/clock.ts';
import { isUuid, newPrefixedId, prefixRange } from '../platform/process/ids.ts';
import { addTo } from '../platform/process/slots.ts';
import { collectFor } from '../platform/mongo/batches.ts';
import {
  collectionOf,
  createReader,
  createStoreBatcher,
  createUpdateBatcher,
  readRows,
  timeLimit,
  updateAndRead,
  updateMany,
  type UpdateStatement,
} from '../platform/mongo/mongo.ts';
import type { ConversationEvent, ConversationEventKind } from './event.ts';
import {
  BACKLOG_MAX,
  conversationModels,
  CONVERSATIONS,
  type FieldsOf,
  IDENTITY,
  LONG_AT_ONCE,
  OUTBOX_INDEXES,
  type OutboxEvent,
  type StoredConversation,
} from './conversation.ts';

/** Returns the endpoints that want an event of this kind now. */
export type ReceiversOf = (event: ConversationEventKind) => string[];

/** The event as stored in the outbox, or null if no endpoint wants the event. `trace` is that of its turn. */
export const newOutboxEvent = (
  event: ConversationEvent,
  receiversOf: ReceiversOf,
  { key, at, trace }: { key: string; at: Date; trace?: string | undefined },
): OutboxEvent | null => {
  const endpoints = receiversOf(event.event);
  if (endpoints.length === 0) return null;
  const traced = trace !== undefined && { trace };
  return {
    ...event,
    eventId: newPrefixedId(key),
    timestamp: Math.floor(at.getTime() / 1000),
    at,
    endpoints,
    ...traced,
  };
};

/** The events as stored in the outbox: those that an endpoint wants. */
export const toOutbox = (
  events: ConversationEvent[],
  receiversOf: ReceiversOf,
  stamp: { key: string; at: Date; trace?: string | undefined },
): OutboxEvent[] => events.map((one) => newOutboxEvent(one, receiversOf, stamp)).filter((one) => one !== null);

/** How many of these events go to each endpoint. */
export const countByEndpoint = (events: OutboxEvent[]): Map<string, number> => {
  const counts = new Map<string, number>();
  for (const { endpoints } of events) for (const id of endpoints) addTo(counts, id, 1);
  return counts;
};

/** The part of an update that counts the events which it adds to the outbox (docs/design.md, Sequence). */
export const countAnnounced = (events: OutboxEvent[]): { $inc?: Record<string, number> } => {
  if (events.length === 0) return {};
  return { $inc: Object.fromEntries([...countByEndpoint(events)].map(([id, count]) => [`announced.${id}`, count])) };
};

/** A conversation with pending events, and whose they are. */
export type Woken = Pick<StoredConversation, '_id' | 'assistantId'>;

type AnnounceOptions = {
  /** Returns the enabled endpoints of an assistant, by the event kinds that they want. */
  receivers: (assistantId: string) => Promise<ReceiversOf>;
  /** Called when the conversation's outbox has a new event. Never throws. */
  wakeDeliveries: (conversation: Woken) => void;
};

const NO_RECEIVERS: ReceiversOf = () => [];

/**
 * Runs every write that may announce an event. The write gets the endpoints that want the event (none for a playground
 * conversation), and stores the event in the same update as the change. If an event was stored, the delivery worker is
 * woken.
 */
export type Announce = <Result extends object | null>(
  conversation: Pick<StoredConversation, '_id' | 'assistantId' | 'channel'>,
  write: (receiversOf: ReceiversOf) => Promise<Result>,
) => Promise<Result>;

export const createAnnounce =
  ({ receivers, wakeDeliveries }: AnnounceOptions): Announce =>
  async <Result extends object | null>(
    { _id: key, assistantId, channel }: Pick<StoredConversation, '_id' | 'assistantId' | 'channel'>,
    write: (receiversOf: ReceiversOf) => Promise<Result>,
  ): Promise<Result> => {
    const result = await write(channel === 'playground' ? NO_RECEIVERS : await receivers(assistantId));
    if (result && 'announced' in result && result.announced === true) wakeDeliveries({ _id: key, assistantId });
    return result;
  };

/** The fields of a conversation that deliveries need. `outbox` contains the pending events in order. */
export type Outbox = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'outbox' | 'announced'
> & {
  /** How many later events the stream has that were not read. Missing if the whole outbox was read. */
  behind?: number;
};
const OUTBOX_FIELDS = { ...IDENTITY, outbox: 1, announced: 1 } satisfies FieldsOf<Omit<Outbox, 'behind'>>;

/** The part of an event that is needed to choose the next event. */
type EventStub = Pick<OutboxEvent, 'eventId' | 'at' | 'endpoints'>;
type Length = { endpointId: string; count: number };
/** The part of each outbox that a sweep reads: the first event of each endpoint, without its payload. */
export type StaleOutbox = Woken & { conversationId: string; outbox?: EventStub[] };
type Full = { lengths: Length[]; outbox: EventStub[] };
const PENDING = { $ifNull: ['$outbox', []] };
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
const COUNT = { $size: { $filter: { input: '$outbox.endpoints', as: 'of', cond: { $in: ['$$id', '$$of'] } } } };
const LENGTHS = { $map: { input: '$$first.known', as: 'id', in: { endpointId: '$$id', count: COUNT } } };
const stubOf = (wanted: object | string) => ({ $let: { vars: { first: FIRST_EVENTS }, in: wanted } });
const FULL_FIELDS = { conversationId: 1, assistantId: 1, full: stubOf({ lengths: LENGTHS, outbox: '$$first.events' }) };
const STUB_FIELDS = { conversationId: 1, assistantId: 1, outbox: stubOf('$$first.events') };

/** The pending events of a stream, oldest first. */
export const pendingOf = <Event extends EventStub>(
  { outbox = [] }: { outbox?: Event[] },
  endpointId: string,
): Event[] => outbox.filter(({ endpoints }) => endpoints.includes(endpointId));

/**
 * The sequence numbers of pending events for an endpoint, by event id (docs/design.md, Sequence). An event that was
 * stored before sequence numbers existed has none.
 */
export const sequencesOf = (
  { outbox = [], announced = {}, behind = 0 }: Pick<Outbox, 'outbox' | 'announced' | 'behind'>,
  endpointId: string,
): Map<string, number> => {
  const numbers = new Map<string, number>();
  let number = (announced[endpointId] ?? 0) - behind;
  for (const { eventId, endpoints, sequences } of outbox.toReversed()) {
    if (!endpoints.includes(endpointId)) continue;
    const own = sequences?.[endpointId] ?? number;
    if (own > 0) numbers.set(eventId, own);
    number -= 1;
  }
  return numbers;
};

export const endpointsOf = ({ outbox = [] }: { outbox?: EventStub[] }): string[] => [
  ...new Set(outbox.flatMap(({ endpoints }) => endpoints)),
];

/** How many events of a stream are read: two are enough to choose the next one, and to know whether another follows. */
export const LOOK_AHEAD = 2;
/** The first events of these streams, and how many each has. A stream may have hundreds. */
const streamFields = (endpointIds: object) => {
  const pending = { $filter: { input: PENDING, cond: { $in: ['$$id', '$$this.endpoints'] } } };
  const found = { endpointId: '$$id', first: { $slice: ['$$pending', LOOK_AHEAD] }, count: { $size: '$$pending' } };
  const stream = { $let: { vars: { pending }, in: found } };
  return { ...IDENTITY, announced: 1, streams: { $map: { input: endpointIds, as: 'id', in: stream } } };
};
type StreamOf = { key: string; endpointId: string };
type Streams = Omit<Outbox, 'outbox'> & { streams: (Length & { first: OutboxEvent[] })[] };
const streamOf = (found: Streams | null | undefined, endpointId: string): Outbox | null => {
  if (!found) return null;
  const { streams, ...head } = found;
  const { first = [], count = 0 } = streams.find((one) => one.endpointId === endpointId) ?? {};
  return { ...head, outbox: first, behind: count - first.length };
};

/** An outbox with more events is not read whole when its conversation is woken. */
const SHORT_MAX = 20;
const IS_SHORT = { $lte: [{ $size: PENDING }, SHORT_MAX] };
const WAKING_FIELDS = {
  ...OUTBOX_FIELDS,
  isWhole: IS_SHORT,
  outbox: { $cond: [IS_SHORT, PENDING, stubOf('$$first.events')] },
};
/** `heads`: the first event of each endpoint at least, without its payload. `whole`: the outbox, if it is short. */
export type Waking = { heads: { outbox?: EventStub[] }; whole: Outbox | null };

/** Ended events of one stream, as they were read. */
type Pull = { outbox: Outbox; endpointId: string; ended: OutboxEvent[] };
const idsOf = (events: OutboxEvent[]): string[] => events.map(({ eventId }) => eventId);

/**
 * Updates that remove the endpoints of these pulls, which are of the same events, from the outbox entries: each update
 * writes the whole outbox. The first statement removes an entry that has no other endpoint left. The second removes only
 * these endpoints from an entry that has others. An entry never gains endpoints: if it was read with one alone, the
 * first statement is enough. If it was read with others, they may be gone by now, so both are needed. If an entry still
 * remains after two concurrent pulls, the next delivery finds that the event has ended and pulls the entry again.
 */
const pullStatements = (pulls: Pull[]): UpdateStatement[] => {
  const [{ outbox, ended }] = pulls as [Pull];
  const { _id: key, conversationId } = outbox;
  const endpointIds = pulls.map(({ endpointId }) => endpointId);
  const eventId = { $in: idsOf(ended) };
  const shared = idsOf(ended.filter(({ endpoints }) => endpoints.length > 1));
  const hasOthers = { $elemMatch: { $nin: endpointIds } };
  // The filter contains only `_id`, because MongoDB would plan any other filter again for each statement, which costs a
  // third more. `_id` alone is safe: if the session was erased and started again, the new conversation does not contain
  // this event id, so nothing is removed.
  const last = { q: { _id: key }, u: { $pull: { outbox: { eventId, endpoints: { $not: hasOthers } } } } };
  if (shared.length === 0) return [last];
  const someOfMany = {
    q: { _id: key, conversationId, 'outbox.eventId': { $in: shared } },
    u: { $pull: { 'outbox.$[entry].endpoints': { $in: endpointIds } } },
    arrayFilters: [{ 'entry.eventId': { $in: shared }, 'entry.endpoints': hasOthers }],
  };
  return [last, someOfMany];
};

type FindStale = {
  olderThanMs: number;
  exclude: string[];
  limit: number;
  /** Streams whose first event is older than this are found even if their endpoint is excluded. */
  expiredMs?: number;
  /** Begins behind this endpoint. */
  after?: string;
};

const BY_ENDPOINT = OUTBOX_INDEXES.byEndpoint;
const HAS_EVENTS = { 'outbox.0': { $exists: true } };
const lateBefore = (before: Date) => ({ ...HAS_EVENTS, 'outbox.0.at': { $lt: before } });

const LIST_WITHIN_MS = 2_000;
/** An outbox may have hundreds of events, so few are read at once. */
const LISTED_AT_ONCE = 10;
/** How long keys are read: the index has none of them, so the whole conversations are fetched. */
const KEYS_FOR_MS = 100;
/** Events without their payloads: an outbox may hold hundreds of long texts, and a list reads a thousand outboxes. */
const LIST_FIELDS = {
  conversationId: 1,
  assistantId: 1,
  announced: 1,
  outbox: { eventId: 1, event: 1, at: 1, endpoints: 1, sequences: 1 },
};

/** The events of conversations that wait to be delivered: the part of the document that deliveries use. */
export type OutboxStore = {
  /**
   * Stores the sequence numbers of events that a worker is sending. These events stay in the outbox, although later
   * events of their stream are removed now.
   */
  keepSequences: (outbox: Outbox, endpointId: string, stay: OutboxEvent[]) => Promise<void>;

  read: (key: string) => Promise<Outbox | null>;
  /** Reads the first events of a stream, and how many follow. */
  readStream: (stream: StreamOf) => Promise<Outbox | null>;
  readForWaking: (key: string) => Promise<Waking | null>;

  /**
   * Removes ended events from their stream. Call this only after MongoDB has acknowledged their outcomes. Returns the
   * first events of the changed stream, so that the caller can choose the next event.
   */
  pullEnded: (outbox: Outbox, endpointId: string, ended: OutboxEvent[]) => Promise<Outbox | null>;

  /**
   * Conversations with a pending event older than `olderThanMs` by MongoDB's clock. `exclude` lists endpoints whose
   * streams are suspended. A conversation whose events are all for these endpoints is neither found nor read, however
   * many there are: the index begins with the endpoint. `last`: the last endpoint that was read whole, or that filled
   * the limit or took the time alone. Empty if there are no more.
   */
  findStale: (wanted: FindStale) => Promise<{ outboxes: StaleOutbox[]; last: string }>;

  /** Outboxes with more events than a stream may have, by the time of their first event, which is later than `after`. */
  findFull: (wanted: { olderThanMs: number; after: Date; limit: number }) => Promise<(StaleOutbox & Full)[]>;

  /**
   * Endpoints with events that are older than this, each with its oldest event that is found. One call finds only some
   * of the endpoints. `exclude` leaves out those that are already known.
   */
  listLate: (wanted: {
    olderThanMs: number;
    exclude: string[];
    limit: number;
  }) => Promise<{ endpointId: string; assistantId: string; oldestAt: Date }[]>;

  /** True if the endpoint has a pending event that is older than this. */
  isLate: (endpointId: string, olderThanMs: number) => Promise<boolean>;

  /** Conversations with pending events for this endpoint: those that are found in a short time. */
  findKeysOf: (endpointId: string, limit: number) => Promise<string[]>;

  /**
   * The outboxes with pending events for these endpoints, or the outbox of one conversation. They are read only while
   * the caller iterates.
   */
  listPending: (of: { endpointIds: string[] } | { conversationId: string }, limit: number) => AsyncIterable<Outbox>;

  /**
   * The number of pending events in the first `limit` conversations. An event counts once for each of its endpoints.
   */
  countPending: (endpointIds: string[], limit: number) => Promise<number>;

  /** The outbox in which this event is pending. */
  findPending: (eventId: string) => Promise<Outbox | null>;
};

/**
 * A search makes at most `LATE_ROUNDS` reads of `LATE_AT_ONCE` conversations. Each read leaves out the endpoints that
 * are already found, because one endpoint may have many late conversations.
 */
const LATE_ROUNDS = 50;
const LATE_AT_ONCE = 20;
/** How many outboxes of a sweep are read at once, and for how long, because each is in a document of up to a megabyte. */
const STALE_AT_ONCE = 50;
const STALE_FOR_MS = 1_000;
const FEW = { maxItems: LONG_AT_ONCE };

export const createOutboxStore = (connection: Connection): OutboxStore => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  /** The outbox of a conversation, or null if the conversation is gone. Reads are batched. */
  const read: (key: string) => Promise<Outbox | null> = createReader(conversations, OUTBOX_FIELDS, FEW);
  const readWaking = createReader<StoredConversation, Outbox & { isWhole: boolean }>(conversations, WAKING_FIELDS, FEW);

  /** Streams of several conversations share one command, which names the endpoints of each. */
  const readStream = createStoreBatcher(async (items: StreamOf[]) => {
    const byKey = Map.groupBy(items, ({ key }) => key);
    const keys = [...byKey.keys()];
    const endpointIds = [...byKey.values()].map((some) => some.map(({ endpointId }) => endpointId));
    const own = { $arrayElemAt: [{ $literal: endpointIds }, { $indexOfArray: [{ $literal: keys }, '$_id'] }] };
    const rows = await readRows<StoredConversation, Streams>(conversations, keys, streamFields(own));
    return items.map(({ key, endpointId }) => streamOf(rows.get(key), endpointId));
  });

  /** A pull of one statement reads in the same round trip. If it matches no document, it is made and read separately. */
  const pullSome = async (items: Pull[]): Promise<(Outbox | null)[]> => {
    const ofSame = Map.groupBy(items, ({ outbox, ended }) => `${outbox._id}:${idsOf(ended).join()}`);
    const statements = [...ofSame.values()].flatMap(pullStatements);
    const [first, only] = [items[0], statements[0]];
    if (first && only && items.length === 1 && statements.length === 1) {
      const change = { ...only, fields: streamFields({ $literal: [first.endpointId] }) };
      const after = streamOf(await updateAndRead(connection, CONVERSATIONS, change), first.endpointId);
      if (after) return [after];
    }
    await updateMany(connection, CONVERSATIONS, statements);
    return Promise.all(items.map(({ outbox, endpointId }) => readStream({ key: outbox._id, endpointId })));
  };
  const pull = createUpdateBatcher(conversations, pullSome, {
    documentOf: ({ outbox }) => [outbox._id, outbox.assistantId],
  });

  const findOfEndpoints = (endpointIds: string[]) => ({ ...HAS_EVENTS, 'outbox.endpoints': { $in: endpointIds } });

  return {
    read,
    readStream,
    readForWaking: async (key) => {
      const found = await readWaking(key);
      if (!found) return null;
      const { isWhole, ...outbox } = found;
      return { heads: outbox, whole: isWhole ? outbox : null };
    },

    keepSequences: async (outbox, endpointId, stay) => {
      const numbers = sequencesOf(outbox, endpointId);
      const statements = stay.flatMap(({ eventId }): UpdateStatement[] => {
        const number = numbers.get(eventId);
        if (number === undefined) return [];
        const u = { $set: { [`outbox.$[entry].sequences.${endpointId}`]: number } };
        return [{ q: { _id: outbox._id }, u, arrayFilters: [{ 'entry.eventId': eventId }] }];
      });
      if (statements.length > 0) await updateMany(connection, CONVERSATIONS, statements);
    },

    pullEnded: (outbox, endpointId, ended) => pull({ outbox, endpointId, ended }),

    findStale: async ({ olderThanMs, exclude, limit, expiredMs, after = '' }) => {
      const now = serverNow();
      const olderThan = (ms: number) => lateBefore(new Date(now - ms));
      const options = { projection: STUB_FIELDS, hint: BY_ENDPOINT, limit, batchSize: STALE_AT_ONCE };
      const find = (filter: object) =>
        collectFor(STALE_FOR_MS, conversations.find<StaleOutbox>(filter, options), STALE_AT_ONCE);
      const ofOthers = { 'outbox.endpoints': { $elemMatch: { $nin: exclude, $gt: after } } };
      const [{ read: inTurn, isCut }, ...others] = await Promise.all([
        find({ ...olderThan(olderThanMs), ...ofOthers }),
        ...(exclude.length > 0 && expiredMs !== undefined
          ? [find({ ...olderThan(expiredMs), 'outbox.endpoints': { $in: exclude } })]
          : []),
      ]);
      const excluded = new Set(exclude);
      /** The endpoint under which it was found. */
      const placeOf = (row: StaleOutbox): string =>
        endpointsOf(row).reduce((first, id) => (id > after && id < first && !excluded.has(id) ? id : first), '~');
      const cut = inTurn.length < limit && !isCut ? '' : inTurn.slice(-1).map(placeOf).join('');
      const whole = cut === '' ? undefined : inTurn.findLast((row) => placeOf(row) !== cut);
      const outboxes = [
        ...new Map([inTurn, ...others.map(({ read }) => read)].flat().map((row) => [row._id, row])).values(),
      ];
      return { outboxes, last: whole ? placeOf(whole) : cut };
    },

    findFull: async ({ olderThanMs, after, limit }) => {
      const at = { $gt: after, $lt: new Date(serverNow() - olderThanMs) };
      const filter = { 'outbox.0.at': at, [`outbox.${BACKLOG_MAX}`]: { $exists: true } };
      const options = { projection: FULL_FIELDS, sort: { 'outbox.0.at': 1 }, hint: OUTBOX_INDEXES.full } as const;
      const rows = await conversations.find<StaleOutbox & { full: Full }>(filter, options).limit(limit).toArray();
      return rows.map(({ full, ...row }) => ({ ...row, ...full }));
    },

    listLate: async ({ olderThanMs, exclude, limit }) => {
      const before = new Date(serverNow() - olderThanMs);
      const late = new Map<string, { endpointId: string; assistantId: string; oldestAt: Date }>();
      const known = new Set(exclude);
      for (let round = 0; round < LATE_ROUNDS && late.size < limit; round += 1) {
        const ofOthers = { $elemMatch: { $nin: [...known] } };
        const rows = await conversations
          .find(
            {
              ...lateBefore(before),
              'outbox.endpoints': ofOthers,
              // Excludes a conversation whose late events are all for known endpoints.
              outbox: { $elemMatch: { at: { $lt: before }, endpoints: ofOthers } },
            },
            {
              projection: { assistantId: 1, 'outbox.at': 1, 'outbox.endpoints': 1 },
              hint: BY_ENDPOINT,
              limit: LATE_AT_ONCE,
              ...timeLimit(LIST_WITHIN_MS),
            },
          )
          .toArray();
        for (const { assistantId, outbox = [] } of rows) {
          for (const { at, endpoints } of outbox.filter((event) => event.at < before)) {
            for (const endpointId of endpoints) {
              const earlier = late.get(endpointId);
              if (!known.has(endpointId) && (!earlier || at < earlier.oldestAt))
                late.set(endpointId, { endpointId, assistantId, oldestAt: at });
            }
          }
        }
        if (rows.length < LATE_AT_ONCE) break;
        for (const endpointId of late.keys()) known.add(endpointId);
      }
      return [...late.values()].slice(0, limit);
    },

    isLate: async (endpointId, olderThanMs) => {
      const before = new Date(serverNow() - olderThanMs);
      const own = { $elemMatch: { at: { $lt: before }, endpoints: endpointId } };
      const filter = { ...lateBefore(before), 'outbox.endpoints': endpointId, outbox: own };
      const options = { projection: { _id: 1 }, hint: BY_ENDPOINT, ...timeLimit(LIST_WITHIN_MS) };
      return (await conversations.findOne(filter, options)) !== null;
    },

    findKeysOf: async (endpointId, limit) => {
      const options = { projection: { _id: 1 }, hint: BY_ENDPOINT, limit, batchSize: LISTED_AT_ONCE };
      const rows = conversations.find(findOfEndpoints([endpointId]), { ...options, ...timeLimit(LIST_WITHIN_MS) });
      return (await collectFor(KEYS_FOR_MS, rows, LISTED_AT_ONCE)).read.map(({ _id }) => _id);
    },

    listPending: (of, limit) => {
      const options = { projection: LIST_FIELDS, batchSize: LISTED_AT_ONCE, ...timeLimit(LIST_WITHIN_MS) };
      if ('endpointIds' in of)
        return conversations.find<Outbox>(findOfEndpoints(of.endpointIds), { ...options, hint: BY_ENDPOINT, limit });
      const { conversationId } = of;
      const _id = isUuid(conversationId) ? prefixRange(conversationId) : '';
      return conversations.find<Outbox>({ _id, conversationId, ...HAS_EVENTS }, options);
    },

    countPending: async (endpointIds, limit) => {
      const size = { $sum: { $map: { input: '$outbox', in: { $size: '$$this.endpoints' } } } };
      const stages = [
        { $match: findOfEndpoints(endpointIds) },
        { $limit: limit },
        { $group: { _id: null, count: { $sum: size } } },
      ];
      const rows = await conversations
        .aggregate<{ count: number }>(stages, { hint: BY_ENDPOINT, ...timeLimit(LIST_WITHIN_MS) })
        .toArray();
      return rows[0]?.count ?? 0;
    },

    findPending: async (eventId) => {
      if (!isUuid(eventId)) return null;
      const filter = { _id: prefixRange(eventId), 'outbox.eventId': eventId };
      return conversations.findOne<Outbox>(filter, { projection: LIST_FIELDS });
    },
  };
};
