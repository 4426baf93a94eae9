import { type Connection, mongo } from 'mongoose';
import * as z from 'zod';
import type { OutboxEvent } from '../conversations/conversation.ts';
import type { ErasedConversation } from '../conversations/erasure.ts';
import type { Outbox } from '../conversations/outbox.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { createCursor } from '../platform/process/validation.ts';
import { inBatches, inChunks, INDEX_RANGES_MAX } from '../platform/mongo/batches.ts';
import { collectionOf, DURABLE, type Indexed, setClusterTime, timeLimit } from '../platform/mongo/mongo.ts';
import { DAY_MS, serverDate } from '../platform/process/clock.ts';
import { isUuid } from '../platform/process/ids.ts';
import { createSlices } from '../platform/process/slices.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import { composeBody, EVENT_KINDS, type Included } from '../conversations/event.ts';
import { type ClaimOptions, type Claims, createClaims } from './claims.ts';
import {
  deliveryModel,
  ENDED,
  ENDS,
  type ErrorKind,
  type FinalOutcome,
  type Outcome,
  OWN_IN_FLIGHT,
  stateBefore,
  type StoredDelivery,
} from './delivery.ts';
import {
  type CountHourlyOutcomes,
  type CountOutcomes,
  createDeliveryList,
  createHourlyOutcomes,
  createOutcomeCounts,
  createRecordList,
  endpointsIn,
  findPendingRow,
  FINDS_AT_ONCE,
  LIST_MAX,
  type ListDeliveries,
  type ListRecords,
} from './list.ts';
import { createTestsAndResends, type TestsAndResends } from './tests-and-resends.ts';
import { type DeliveryListRow, type ListedDelivery, WITHOUT_TEXTS } from './view.ts';

const BYTES_MAX = 1_048_576;
const READ_AT_ONCE = 20;
const LIST_WITHIN_MS = 5_000;
/** From how many deliveries one statement removes the texts. Each may have 60 KB. */
const ERASED_AT_ONCE = 50;
export const EVENTS_MAX = 200;

type End = { endedOn: mongo.Timestamp; _id: string };
export type EndPosition = { endedOn: mongo.Timestamp; id: string };

const cursors = createCursor(
  z.tuple([z.int().min(0).max(0xffffffff), z.int().min(0).max(0xffffffff), z.string().regex(/^[\w:.-]{1,200}$/)]),
  'after',
);

const endedCursor = {
  encode: ({ endedOn, id }: EndPosition): string =>
    cursors.encode([endedOn.getHighBits() >>> 0, endedOn.getLowBits() >>> 0, id]),
  decode: (text: string): EndPosition => {
    const [t, i, id] = cursors.decode(text);
    return { endedOn: new mongo.Timestamp({ t, i }), id };
  },
};

/** The cluster time of a time in whole seconds. */
export const clusterTimeOf = (time: Date): mongo.Timestamp =>
  new mongo.Timestamp({ t: Math.max(0, Math.floor(time.getTime() / 1000)), i: 0 });

/** The part of a query that finds only what ended after this position. */
export const behindEnd = ({ endedOn, id }: EndPosition) => ({
  $or: [{ endedOn: { $gt: endedOn } }, { endedOn, _id: { $gt: id } }],
});

/**
 * Reads the time up to which the list of ends is complete: no delivery can end before it any more, and all earlier ends
 * are visible. `endedOn` is MongoDB's cluster time, which neither a wrong clock nor a failover turns back. MongoDB sets
 * it when it executes the write that ends a delivery. No such write takes longer than `endWrittenWithinMs`, and a
 * majority has every write that is older than the majority's newest one (docs/design.md, Ended deliveries).
 */
type ReadHorizon = () => Promise<mongo.Timestamp>;

export const createReadHorizon =
  (connection: Connection, writtenWithinMs: number): ReadHorizon =>
  async () => {
    const hello = await connection.db?.admin().command({ hello: 1 });
    const { ts } = (hello as { lastWrite: { majorityOpTime: { ts: mongo.Timestamp } } }).lastWrite.majorityOpTime;
    return new mongo.Timestamp({ t: Math.max(0, (ts.getHighBits() >>> 0) - Math.ceil(writtenWithinMs / 1000)), i: 0 });
  };

type EndedFilter = {
  assistantId: string;
  endpointId?: string;
  outcome?: FinalOutcome;
  after?: string;
  limit?: number;
};

/** `readUpTo`: every delivery that ended before this time is in the list. */
type EndedPage = {
  deliveries: StoredDelivery[];
  cursor: string | null;
  hasMore: boolean;
  readUpTo: Date;
  bytes: number;
};

/** Lists ended deliveries with their bodies, in the order of their ends. Nothing is skipped. */
type ListEnded = (filter: EndedFilter) => Promise<EndedPage>;

/** True if the list has something after the cursor. */
type HasEnded = (filter: EndedFilter) => Promise<boolean>;

const ENDPOINTS_AT_ONCE = Math.floor(INDEX_RANGES_MAX / ENDS.length);

const earlierFirst = (a: End, b: End): number => a.endedOn.compare(b.endedOn) || (a._id < b._id ? -1 : 1);

const createListEnded = (
  connection: Connection,
  writtenWithinMs: number,
): { listEnded: ListEnded; hasEnded: HasEnded } => {
  const deliveries = collectionOf<StoredDelivery>(deliveryModel(connection));
  const readHorizon = createReadHorizon(connection, writtenWithinMs);

  /** The first ends after the cursor, and the time before which they are complete. */
  const findEnds = async ({ assistantId, endpointId, outcome, after }: EndedFilter, most: number) => {
    const before = await readHorizon();
    const from = after === undefined ? null : endedCursor.decode(after);
    const endpoints = endpointId === undefined ? await endpointsIn(deliveries, assistantId) : [endpointId];
    const find = (some: string[]): Promise<End[]> =>
      deliveries
        .find(
          {
            assistantId,
            endpointId: { $in: some },
            outcome: { $in: outcome === undefined ? [...ENDS] : [outcome] },
            endedOn: { $exists: true, $lt: before, ...(from && { $gte: from.endedOn }) },
            ...(from && behindEnd(from)),
          },
          { projection: { endedOn: 1 }, hint: ENDED, ...timeLimit(LIST_WITHIN_MS) },
        )
        .sort({ endedOn: 1, _id: 1 })
        .limit(most)
        .toArray() as unknown as Promise<End[]>;
    const groups = inChunks(endpoints, ENDPOINTS_AT_ONCE);
    const found = (await mapAtMost(FINDS_AT_ONCE, groups, find)).flat().toSorted(earlierFirst);
    return { found, readUpTo: new Date((before.getHighBits() >>> 0) * 1_000) };
  };

  const listEnded: ListEnded = async ({ limit = EVENTS_MAX, ...filter }) => {
    const { found, readUpTo } = await findEnds(filter, limit + 1);
    const wanted = found.slice(0, limit);
    const page: StoredDelivery[] = [];
    let bytes = 0;
    const slices = createSlices();
    for (const some of inChunks(wanted, READ_AT_ONCE)) {
      if (bytes >= BYTES_MAX) break;
      const rows = await deliveries
        .find(
          { _id: { $in: some.map(({ _id }) => _id) } },
          { projection: { responseBody: 0, responseHeaders: 0, requestHeaders: 0 } },
        )
        .toArray();
      const byId = new Map(rows.map((row) => [row._id, row]));
      for (const { _id } of some) {
        const row = byId.get(_id);
        if (bytes >= BYTES_MAX) break;
        if (row) page.push(row);
        bytes += Buffer.byteLength(row?.body ?? '') + 500;
        if (slices.isOver()) await slices.next();
      }
    }
    const last = page.at(-1);
    return {
      deliveries: page,
      cursor: last?.endedOn ? endedCursor.encode({ endedOn: last.endedOn, id: last._id }) : (filter.after ?? null),
      hasMore: last !== undefined && found.at(-1)?._id !== last._id,
      readUpTo,
      bytes,
    };
  };
  return { listEnded, hasEnded: async (filter) => (await findEnds(filter, 1)).found.length > 0 };
};

/** How many of the latest deliveries are read: one that failed before TLS says nothing about the certificate. */
const LATEST = 20;
/** Records of a conversation that are read together for its export. Each has a body and a response. */
const STREAMED_AT_ONCE = 20;

/** When the last certificate that the endpoint showed expires. Null if its latest deliveries used no TLS. */
type FindCertificateExpiry = (endpoint: { assistantId: string; endpointId: string }) => Promise<Date | null>;

const createCertificateExpiry =
  (deliveries: mongo.Collection<StoredDelivery>): FindCertificateExpiry =>
  async ({ assistantId, endpointId }) => {
    const latest = await deliveries
      .find({ assistantId, endpointId, event: { $in: EVENT_KINDS } }, { projection: { tls: 1, createdAt: 1 } })
      .sort({ createdAt: -1, _id: -1 })
      .limit(LATEST)
      .toArray();
    const last = latest.find(({ tls }) => tls?.daysToExpiry != null);
    const days = last?.tls?.daysToExpiry;
    return last && days != null ? new Date(last.createdAt.getTime() + days * DAY_MS) : null;
  };

/**
 * Composes the body of a pending event. Texts that the outbox does not hold are read from the history. Null if the
 * message is gone, because its conversation was erased.
 */
const createComposeBody =
  ({ history, findTurn }: Pick<ConversationStore, 'history' | 'findTurn'>) =>
  async (outbox: Outbox, event: OutboxEvent, include?: Included): Promise<string | null> => {
    if (event.event === 'message.received' && event.payload.turn_id !== undefined) {
      const found = await findTurn(event.payload.turn_id);
      if (found?.conversation.conversationId !== outbox.conversationId) return null;
      if (found.state === 'pending') return composeBody(event, outbox, { texts: { content: found.turn.message } });
      const texts = await history.findMessage(outbox, found.turn);
      return texts && composeBody(event, outbox, { texts });
    }
    if (event.event !== 'message.sent') return composeBody(event, outbox);
    const { seq, message_id: messageId } = event.payload;
    const message = await history.findMessage(outbox, { seq, messageId });
    return message && composeBody(event, outbox, { texts: message, ...(include && { include }) });
  };

const STORED_TEXTS = { body: 1, responseBody: 1, responseHeaders: 1 } as const;
const HAS_TEXTS = { $or: Object.keys(STORED_TEXTS).map((text) => ({ $ne: [{ $type: `$${text}` }, 'missing'] })) };

/** The records of all deliveries. A claim is the insert of a record, so only one process can win a claim. */
export type DeliveryStore = Claims &
  TestsAndResends & {
    models: Indexed[];
    composeBody: (outbox: Outbox, event: OutboxEvent, include?: Included) => Promise<string | null>;
    readByIds: (ids: string[]) => Promise<Map<string, StoredDelivery>>;

    /**
     * All records of a conversation. Only one batch of them is in memory. The cursor is closed when the caller stops
     * reading.
     */
    streamOf: (conversationId: string) => AsyncIterable<StoredDelivery>;

    /** The records of those events that happened in a conversation at one of these times, newest first: at most 200. */
    findHappenedAt: (conversationId: string, times: Date[]) => Promise<DeliveryListRow[]>;

    /** The records of an event, whatever its endpoint: at most 200. A malformed id has none. */
    findOfEvent: (eventId: string) => Promise<DeliveryListRow[]>;

    /** The outcomes of these deliveries by id. Ids without a record are left out. */
    readOutcomes: (ids: string[]) => Promise<Map<string, Outcome>>;

    /** How many endpoints of an assistant have records, also those that were removed since. */
    countEndpoints: (assistantId: string) => Promise<number>;

    /** Lists records, newest first, by cursor. Pending events have no record and are left out. */
    listRecords: ListRecords;
    listEnded: ListEnded;
    hasEnded: HasEnded;

    /** Lists records, and pending events as `queued`, newest first, by cursor. */
    list: ListDeliveries;

    /** Finds a pending event and returns it as a list row. */
    findPending: (deliveryId: string) => Promise<ListedDelivery | null>;

    countOutcomes: CountOutcomes;
    countHourlyOutcomes: CountHourlyOutcomes;
    findCertificateExpiry: FindCertificateExpiry;

    /**
     * Removes the texts from a conversation's records. The records stay, because an event without a record could be
     * claimed again. Deliveries in flight are ended first. The hinted index contains only deliveries in flight, so
     * this is quick.
     */
    eraseConversation: (erased: ErasedConversation, until?: AbortSignal) => Promise<void>;
  };

export const createDeliveryStore = ({
  listEndpointIds,
  conversations,
  endWrittenWithinMs,
  ...recording
}: ClaimOptions & {
  endWrittenWithinMs: number;
  listEndpointIds: (assistantId: string) => Promise<string[]>;
  conversations: Pick<ConversationStore, 'findTurn' | 'history' | 'outbox'>;
}): DeliveryStore => {
  const model = deliveryModel(recording.connection);
  const deliveries = collectionOf<StoredDelivery>(model);
  const { outbox } = conversations;
  const listRecords = createRecordList(deliveries);

  const readOutcomes = async (ids: string[]): Promise<Map<string, Outcome>> => {
    if (ids.length === 0) return new Map();
    const rows = await deliveries
      .find({ _id: { $in: ids } })
      .project<{ _id: string; outcome: Outcome }>({ outcome: 1 })
      .toArray();
    return new Map(rows.map(({ _id, outcome }) => [_id, outcome]));
  };

  return {
    models: [model],
    ...createClaims(recording),
    ...createTestsAndResends(recording),
    composeBody: createComposeBody(conversations),

    readByIds: async (ids) => {
      const rows = await deliveries.find({ _id: { $in: ids } }).toArray();
      return new Map(rows.map((row) => [row._id, row]));
    },

    streamOf: (conversationId) => deliveries.find({ conversationId }, { batchSize: STREAMED_AT_ONCE }),

    findHappenedAt: (conversationId, times) =>
      deliveries
        .find<DeliveryListRow>({ conversationId, happenedAt: { $in: times } }, { projection: WITHOUT_TEXTS })
        .sort({ createdAt: -1, _id: -1 })
        .limit(LIST_MAX)
        .toArray(),

    findOfEvent: async (eventId) =>
      isUuid(eventId)
        ? deliveries
            .find<DeliveryListRow>({ _id: { $gte: eventId, $lt: `${eventId};` } }, { projection: WITHOUT_TEXTS })
            .limit(LIST_MAX)
            .toArray()
        : [],

    readOutcomes,

    countEndpoints: async (assistantId) => (await endpointsIn(deliveries, assistantId)).length,

    listRecords,

    ...createListEnded(recording.connection, endWrittenWithinMs),

    list: createDeliveryList({ listRecords, readOutcomes, outbox, listEndpointIds }),

    findPending: (deliveryId) => findPendingRow(outbox, deliveryId),

    countOutcomes: createOutcomeCounts(deliveries),
    countHourlyOutcomes: createHourlyOutcomes(deliveries),
    findCertificateExpiry: createCertificateExpiry(deliveries),

    eraseConversation: async ({ assistantId, conversationId }, until) => {
      // The event that tells of the erasure has no text, and is sent after it.
      const own = { conversationId, event: { $ne: 'conversation.erased' as const } };
      const endedAt = serverDate();
      const end = (step: 'eraseQueued' | 'eraseSending', outcome: FinalOutcome) => {
        const errorKind: ErrorKind = 'erased';
        const change = { $set: { outcome, errorKind, endedAt }, $unset: STORED_TEXTS, ...setClusterTime('endedOn') };
        const those = { ...own, assistantId, ...stateBefore(step) };
        return deliveries.updateMany(those, change, { writeConcern: DURABLE, hint: OWN_IN_FLIGHT });
      };
      await end('eraseQueued', 'not_sent');
      await end('eraseSending', 'unknown');
      const few = { maxItems: ERASED_AT_ONCE, rests: true, ...(until && { until }) };
      await inBatches({ collection: deliveries, filter: own, only: HAS_TEXTS, ...few }, (some) =>
        deliveries.updateMany(some, { $unset: STORED_TEXTS }, { writeConcern: DURABLE }),
      );
    },
  };
};
