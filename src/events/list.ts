import type { mongo } from 'mongoose';
import { createTimeCursor } from '../platform/process/validation.ts';
import { invalid } from '../platform/process/errors.ts';
import { isUuid } from '../platform/process/ids.ts';
import { timeLimit } from '../platform/mongo/mongo.ts';
import { createSlices } from '../platform/process/slices.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import { exceededTimeLimit } from '../platform/mongo/failures.ts';
import { inChunks, INDEX_RANGES_MAX } from '../platform/mongo/batches.ts';
import { deliveryIdOf, type FinalOutcome, IN_FLIGHT, type Outcome, type StoredDelivery } from './delivery.ts';
import { EVENT_KINDS, type EventKind } from '../conversations/event.ts';
import { type DeliveryListRow, type ListedDelivery, toDeliveryRow, WITHOUT_TEXTS } from './view.ts';
import type { OutboxEvent } from '../conversations/conversation.ts';
import { endpointsOf, type Outbox, type OutboxStore, pendingOf, sequencesOf } from '../conversations/outbox.ts';

export const LIST_MAX = 200;
const LIST_DEFAULT = 50;
const LIST_WITHIN_MS = 5_000;

type DeliveryFilter = {
  assistantId: string;
  endpointId?: string;
  eventId?: string;
  conversationId?: string;
  event?: EventKind;
  outcome?: Outcome;
  /** The receiver's HTTP status. Only rejected deliveries can be filtered by status. */
  status?: number;
  /** Lists deliveries that were created at `from` or later, and before `to`. */
  from?: Date;
  to?: Date;
  limit?: number;
  cursor?: string;
};

export const deliveryCursor = createTimeCursor(/^[\w:.-]{1,200}$/);

const sizeOf = ({ limit = LIST_DEFAULT }: DeliveryFilter): number => Math.min(Math.max(1, limit), LIST_MAX);

/**
 * The upper bound of the creation time: the cursor's time, if there is a cursor. Among deliveries of exactly this time,
 * the id decides.
 */
const upperBound = (to: Date | undefined, after: { at: Date } | null) =>
  after && (!to || after.at < to) ? { $lte: after.at } : to && { $lt: to };

const isInFlight = (outcome: Outcome | undefined): outcome is keyof typeof IN_FLIGHT =>
  outcome !== undefined && Object.hasOwn(IN_FLIGHT, outcome);

const BY_ASSISTANT = 'assistantId_1_endpointId_1_event_1_createdAt_-1__id_-1';
const BY_CONVERSATION = 'conversationId_1_happenedAt_1';

const queryOf = (filter: DeliveryFilter): Record<string, unknown> => {
  const { assistantId, endpointId, conversationId, event, outcome, status, eventId, from, to, cursor } = filter;
  // In the index, the kind comes before the time. A query for every kind lists all kinds explicitly, so that it can use
  // this index.
  const kind = event ?? { $in: EVENT_KINDS };
  const exact = Object.entries({ endpointId, conversationId, outcome, status }).filter(
    ([, value]) => value !== undefined,
  );
  const after = cursor === undefined ? null : deliveryCursor.decode(cursor);
  return {
    assistantId,
    event: kind,
    ...Object.fromEntries(exact),
    ...(status !== undefined && { outcome: 'rejected' }),
    ...(eventId !== undefined && { _id: { $gte: eventId, $lt: `${eventId};` } }),
    ...((from || to || after) && { createdAt: { ...(from && { $gte: from }), ...upperBound(to, after) } }),
    ...(after && {
      $or: [{ createdAt: { $lt: after.at } }, { createdAt: after.at, _id: { $lt: after.id } }],
    }),
  };
};

const ENDPOINTS_AT_ONCE = Math.floor(INDEX_RANGES_MAX / EVENT_KINDS.length);

/** How many finds of one list run at once. All lists share a few connections. */
export const FINDS_AT_ONCE = 2;

type RecordPlace = Pick<DeliveryListRow, '_id' | 'createdAt'>;

const newestRecordFirst = (a: RecordPlace, b: RecordPlace): number =>
  b.createdAt.getTime() - a.createdAt.getTime() || (a._id < b._id ? 1 : -1);

/** All endpoints with a delivery, including removed endpoints. The query costs one index seek for each endpoint. */
export const endpointsIn = (deliveries: mongo.Collection<StoredDelivery>, assistantId: string): Promise<string[]> =>
  deliveries.distinct('endpointId', { assistantId });

/**
 * Lists the records of an assistant, its failures, or the records of one conversation or one event. Every list is
 * newest first, uses a cursor and is served by an index. `newestEvents`: those of the newest events of a conversation,
 * in the order of its index and without a cursor. A conversation may have thousands of records, each with its texts.
 */
export type ListRecords = (
  filter: DeliveryFilter & { newestEvents?: true },
) => Promise<{ deliveries: DeliveryListRow[]; nextCursor: string | null }>;

export const createRecordList = (deliveries: mongo.Collection<StoredDelivery>): ListRecords => {
  const find = <Row extends RecordPlace>(
    query: Record<string, unknown>,
    {
      projection,
      limit,
      hint,
      sort = { createdAt: -1, _id: -1 },
    }: { projection: Record<string, 0 | 1>; limit: number; hint?: string | undefined; sort?: Record<string, -1> },
  ): Promise<Row[]> =>
    deliveries
      .find<Row>(query, { projection, ...timeLimit(LIST_WITHIN_MS), ...(hint !== undefined && { hint }) })
      .sort(sort)
      .limit(limit)
      .toArray()
      .catch((cause: unknown) => {
        if (!exceededTimeLimit(cause)) throw cause;
        throw invalid('from', 'required', 'must be given: the search covers too much without it');
      });

  /**
   * The places of the newest records of all endpoints with deliveries. Of a later group of endpoints, only those are read
   * that are newer than what is found already.
   */
  const findPlaces = async (filter: DeliveryFilter, limit: number): Promise<RecordPlace[]> => {
    let newest: RecordPlace[] = [];
    const groups = inChunks(await endpointsIn(deliveries, filter.assistantId), ENDPOINTS_AT_ONCE);
    await mapAtMost(FINDS_AT_ONCE, groups, async (some) => {
      const last = newest[limit - 1]?.createdAt;
      const from = last && (!filter.from || filter.from < last) ? last : filter.from;
      const query = { ...queryOf({ ...filter, ...(from && { from }) }), endpointId: { $in: some } };
      const found = await find<RecordPlace>(query, { projection: { createdAt: 1 }, limit });
      newest = [...newest, ...found].toSorted(newestRecordFirst).slice(0, limit);
    });
    return newest;
  };

  const cursorAfter = (places: RecordPlace[], size: number): string | null => {
    const last = places.length > size ? places[size - 1] : undefined;
    return last ? deliveryCursor.encode({ at: last.createdAt, id: last._id }) : null;
  };

  return async (filter) => {
    const size = sizeOf(filter);
    const { endpointId, conversationId, eventId, outcome, status, newestEvents } = filter;
    // An incomplete event id would match the records of many events.
    if (eventId !== undefined && !isUuid(eventId)) return { deliveries: [], nextCursor: null };
    // Only rejected deliveries can be filtered by status, so a status together with any other outcome matches nothing.
    if (status !== undefined && outcome !== undefined && outcome !== 'rejected')
      return { deliveries: [], nextCursor: null };
    const hint = isInFlight(outcome) ? IN_FLIGHT[outcome] : undefined;
    const projection = WITHOUT_TEXTS;
    if (newestEvents) {
      const inOrder = { hint: BY_CONVERSATION, sort: { happenedAt: -1 } } as const;
      return { deliveries: await find(queryOf(filter), { projection, limit: size, ...inOrder }), nextCursor: null };
    }
    if ([endpointId, conversationId, eventId, hint].some((one) => one !== undefined)) {
      const rows = await find<DeliveryListRow>(queryOf(filter), { projection, limit: size + 1, hint });
      return { deliveries: rows.slice(0, size), nextCursor: cursorAfter(rows, size) };
    }
    const places = await findPlaces(filter, size + 1);
    const ids = places.slice(0, size).map(({ _id }) => _id);
    const rows = await find<DeliveryListRow>({ _id: { $in: ids } }, { projection, limit: size });
    return { deliveries: rows, nextCursor: cursorAfter(places, size) };
  };
};

const COUNT_WITHIN_MS = 5_000;

const FAILURES = ['rejected', 'not_sent', 'unknown'] as const;

/**
 * Counts the deliveries created since a time, by outcome. Reads only indexes. `delivered` is not counted but computed:
 * all deliveries minus those with other outcomes.
 */
export type CountOutcomes = (assistantId: string, since: Date) => Promise<Partial<Record<Outcome, number>>>;

export const createOutcomeCounts =
  (deliveries: mongo.Collection<StoredDelivery>): CountOutcomes =>
  async (assistantId, since) => {
    const those = { assistantId, createdAt: { $gte: since } };
    const count = (query: object, hint: string) =>
      deliveries.countDocuments({ ...those, ...query }, { hint, ...timeLimit(COUNT_WITHIN_MS) });
    const endpointId = { $in: await endpointsIn(deliveries, assistantId) };
    // In the order of a delivery's states, so that one that fails meanwhile is not taken for delivered.
    const all = await count({ endpointId, event: { $in: EVENT_KINDS } }, BY_ASSISTANT);
    const queued = await count({ outcome: 'queued' }, IN_FLIGHT.queued);
    const sending = await count({ outcome: 'sending' }, IN_FLIGHT.sending);
    const failed = await deliveries
      .aggregate<{ _id: Outcome; count: number }>(
        [{ $match: { ...those, outcome: { $in: FAILURES } } }, { $group: { _id: '$outcome', count: { $sum: 1 } } }],
        { hint: 'failures', ...timeLimit(COUNT_WITHIN_MS) },
      )
      .toArray();
    const others = failed.reduce((sum, one) => sum + one.count, queued + sending);
    return {
      ...Object.fromEntries(failed.map((one) => [one._id, one.count])),
      queued,
      sending,
      delivered: Math.max(0, all - others), // the counts are taken at different moments, while sends go on
    };
  };

type HourlyOutcomes = { hour: Date; outcomes: Record<FinalOutcome, number> };

/**
 * Counts the deliveries of each hour by outcome. Reads only indexes. `delivered` is computed: all deliveries minus
 * those with other outcomes. Deliveries in flight are left out, so an hour is complete only after its deliveries have
 * ended.
 */
export type CountHourlyOutcomes = (assistantId: string, hours: { from: Date; to: Date }) => Promise<HourlyOutcomes[]>;

export const createHourlyOutcomes =
  (deliveries: mongo.Collection<StoredDelivery>): CountHourlyOutcomes =>
  async (assistantId, { from, to }) => {
    const endpoints = await endpointsIn(deliveries, assistantId);
    if (endpoints.length === 0) return [];
    const createdAt = { $gte: from, $lt: to };
    const hour = { $dateTrunc: { date: '$createdAt', unit: 'hour' } };
    const countByHour = (those: object, options: { hint?: string } = {}) =>
      deliveries
        .aggregate<{ _id: Date; count: number }>(
          [
            { $match: { assistantId, ...those, event: { $in: EVENT_KINDS }, createdAt } },
            { $group: { _id: hour, count: { $sum: 1 } } },
          ],
          { ...options, ...timeLimit(COUNT_WITHIN_MS) },
        )
        .toArray();
    // In the order of a delivery's states, as above.
    const all = await countByHour({ endpointId: { $in: endpoints } });
    const queued = await countByHour({ outcome: 'queued' }, { hint: IN_FLIGHT.queued });
    const sending = await countByHour({ outcome: 'sending' }, { hint: IN_FLIGHT.sending });
    const failed = await deliveries
      .aggregate<{ _id: { hour: Date; outcome: (typeof FAILURES)[number] }; count: number }>(
        [
          { $match: { assistantId, outcome: { $in: FAILURES }, createdAt } },
          { $group: { _id: { hour, outcome: '$outcome' }, count: { $sum: 1 } } },
        ],
        { hint: 'failures', ...timeLimit(COUNT_WITHIN_MS) },
      )
      .toArray();
    const inFlight = [...queued, ...sending];
    return all.map(({ _id, count }) => {
      const own = failed.filter((one) => one._id.hour.getTime() === _id.getTime());
      const countOf = (outcome: (typeof FAILURES)[number]): number =>
        own.find((one) => one._id.outcome === outcome)?.count ?? 0;
      const outcomes = { rejected: countOf('rejected'), not_sent: countOf('not_sent'), unknown: countOf('unknown') };
      const others = inFlight
        .filter((one) => one._id.getTime() === _id.getTime())
        .reduce((sum, one) => sum + one.count, outcomes.rejected + outcomes.not_sent + outcomes.unknown);
      return { hour: _id, outcomes: { ...outcomes, delivered: Math.max(0, count - others) } };
    });
  };

/** For one page, the outboxes of at most this many conversations are searched. */
const OUTBOXES_MAX = 1_000;
/** For one page, at most this many pending events are searched. An event counts once for each of its endpoints. */
const PENDING_MAX = 10_000;
/** How many deliveries are looked up at once. */
const LOOKED_UP = 1_000;

type Dependencies = {
  listRecords: ListRecords;
  readOutcomes: (deliveryIds: string[]) => Promise<Map<string, Outcome>>;
  outbox: OutboxStore;
  /** The endpoints of an assistant. Only they have pending events: the events of removed endpoints end immediately. */
  listEndpointIds: (assistantId: string) => Promise<string[]>;
};

export type DeliveryPage = {
  deliveries: ListedDelivery[];
  nextCursor: string | null;
  /** True if more events wait than are looked at for a page. Some of them may be missing, also on later pages. */
  moreWaiting: boolean;
};

const toPendingRow = (
  outbox: Outbox,
  { eventId, event, at }: OutboxEvent,
  { endpointId, sequence }: { endpointId: string; sequence: number | undefined },
): ListedDelivery => ({
  deliveryId: deliveryIdOf(eventId, endpointId),
  eventId,
  event,
  endpointId,
  assistantId: outbox.assistantId,
  conversationId: outbox.conversationId,
  outcome: 'queued',
  sequence: sequence ?? null,
  errorKind: null,
  errorDetail: null,
  status: null,
  url: null,
  redelivery: false,
  ms: null,
  happenedAt: at,
  createdAt: at,
  endedAt: null,
});

const DELIVERY_ID = /^([\da-f-]{36}):([\da-f-]{36})$/;

/** A pending event as a list row, found by the id that its delivery will have. Null if the event is not pending. */
export const findPendingRow = async (store: OutboxStore, deliveryId: string): Promise<ListedDelivery | null> => {
  const [, eventId, endpointId] = DELIVERY_ID.exec(deliveryId) ?? [];
  if (eventId === undefined || endpointId === undefined) return null;
  const outbox = await store.findPending(eventId);
  const event = outbox && pendingOf(outbox, endpointId).find((one) => one.eventId === eventId);
  if (!event) return null;
  return toPendingRow(outbox, event, { endpointId, sequence: sequencesOf(outbox, endpointId).get(eventId) });
};

/** Pending events as list rows. An event that was claimed after the outbox was read also has a record. */
export const pendingRowsOf = (outbox: Outbox): ListedDelivery[] => {
  const numbers = new Map(endpointsOf(outbox).map((id) => [id, sequencesOf(outbox, id)]));
  return (outbox.outbox ?? []).flatMap((event) =>
    event.endpoints.map((endpointId) =>
      toPendingRow(outbox, event, { endpointId, sequence: numbers.get(endpointId)?.get(event.eventId) }),
    ),
  );
};

const newestFirst = (a: ListedDelivery, b: ListedDelivery): number =>
  b.createdAt.getTime() - a.createdAt.getTime() || (a.deliveryId < b.deliveryId ? 1 : -1);

/** Whether a row is wanted. The cursor is decoded once, because there may be thousands of rows. */
const matching = (filter: DeliveryFilter): ((row: ListedDelivery) => boolean) => {
  const { from, to, cursor } = filter;
  const after = cursor === undefined ? null : deliveryCursor.decode(cursor);
  return (row) =>
    (['assistantId', 'endpointId', 'conversationId', 'event', 'eventId'] as const).every(
      (name) => filter[name] === undefined || filter[name] === row[name],
    ) &&
    (!from || row.createdAt >= from) &&
    (!to || row.createdAt < to) &&
    (!after ||
      row.createdAt < after.at ||
      (row.createdAt.getTime() === after.at.getTime() && row.deliveryId < after.id));
};

/** The list of deliveries, newest first: every record, and every pending event as `queued`. One cursor covers both. */
export type ListDeliveries = (filter: DeliveryFilter) => Promise<DeliveryPage>;

export const createDeliveryList = ({
  listRecords,
  readOutcomes,
  outbox,
  listEndpointIds,
}: Dependencies): ListDeliveries => {
  /** The first rows without a record. */
  const firstUnclaimed = async (rows: ListedDelivery[], count: number): Promise<ListedDelivery[]> => {
    const unclaimed: ListedDelivery[] = [];
    for (const some of inChunks(rows, LOOKED_UP)) {
      const claimed = await readOutcomes(some.map(({ deliveryId }) => deliveryId));
      unclaimed.push(...some.filter(({ deliveryId }) => !claimed.has(deliveryId)));
      if (unclaimed.length >= count) break;
    }
    return unclaimed.slice(0, count);
  };

  const findPending = async (filter: DeliveryFilter): Promise<{ queued: ListedDelivery[]; moreWaiting: boolean }> => {
    const { assistantId, conversationId, endpointId } = filter;
    const ofAssistant = async () => {
      const own = await listEndpointIds(assistantId);
      return { endpointIds: endpointId === undefined ? own : own.filter((id) => id === endpointId) };
    };
    const of = conversationId === undefined ? await ofAssistant() : { conversationId };
    const wanted: ListedDelivery[] = [];
    const matches = matching(filter);
    const slices = createSlices();
    let [looked, outboxes] = [0, 0];
    for await (const one of outbox.listPending(of, OUTBOXES_MAX)) {
      outboxes += 1;
      const rows = pendingRowsOf(one);
      for (const row of rows) {
        if (matches(row)) wanted.push(row);
        if (slices.isOver()) await slices.next();
      }
      looked += rows.length;
      if (looked >= PENDING_MAX) break;
    }
    const queued = await firstUnclaimed(wanted.toSorted(newestFirst), sizeOf(filter) + 1);
    return { queued, moreWaiting: looked >= PENDING_MAX || outboxes >= OUTBOXES_MAX };
  };

  return async (filter) => {
    const size = sizeOf(filter);
    const mayBePending = filter.status === undefined && [undefined, 'queued'].includes(filter.outcome);
    // Outboxes are read before records. So an event that is claimed between the two reads is found in both, and only
    // its record is shown.
    const { queued, moreWaiting } = mayBePending ? await findPending(filter) : { queued: [], moreWaiting: false };
    const records = await listRecords(filter);
    const known = new Set(records.deliveries.map(({ _id }) => _id));
    const rows = [
      ...records.deliveries.map(toDeliveryRow),
      ...queued.filter(({ deliveryId }) => !known.has(deliveryId)),
    ].toSorted(newestFirst);
    const page = rows.slice(0, size);
    const last = page.at(-1);
    const more = rows.length > size || records.nextCursor !== null;
    return {
      deliveries: page,
      nextCursor: more && last ? deliveryCursor.encode({ at: last.createdAt, id: last.deliveryId }) : null,
      moreWaiting,
    };
  };
};
