import type { mongo } from 'mongoose';
import { createTimeCursor } from '../platform/cursor.ts';
import { invalid } from '../platform/errors.ts';
import { timeLimit } from '../platform/mongo.ts';
import { exceededTimeLimit } from '../platform/mongo-failures.ts';
import { inChunks, INDEX_RANGES_MAX } from '../platform/mongo-ranges.ts';
import type { Outcome, StoredDelivery } from './delivery.ts';
import { EVENT_KINDS, type EventKind } from '../webhooks/event.ts';

export const LIST_MAX = 200;
const LIST_DEFAULT = 50;
const LIST_WITHIN_MS = 5_000;

export type DeliveryFilter = {
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

export const sizeOf = ({ limit = LIST_DEFAULT }: DeliveryFilter): number => Math.min(Math.max(1, limit), LIST_MAX);

/**
 * The upper bound of the creation time: the cursor's time, if there is a cursor. Among deliveries of exactly this time,
 * the id decides.
 */
const upperBound = (to: Date | undefined, after: { at: Date } | null) =>
  after && (!to || after.at < to) ? { $lte: after.at } : to && { $lt: to };

/**
 * The indexes that contain only deliveries in flight, which are few. Any other index would read all ended deliveries
 * too.
 */
export const IN_FLIGHT = { queued: 'createdAt_1', sending: 'claimedAt_1' };
const isInFlight = (outcome: Outcome | undefined): outcome is keyof typeof IN_FLIGHT =>
  outcome !== undefined && Object.hasOwn(IN_FLIGHT, outcome);

const BY_ASSISTANT = 'assistantId_1_endpointId_1_event_1_createdAt_-1__id_-1';

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

const newestFirst = (a: StoredDelivery, b: StoredDelivery): number =>
  b.createdAt.getTime() - a.createdAt.getTime() || (a._id < b._id ? 1 : -1);

/** All endpoints with a delivery, including removed endpoints. The query costs one index seek for each endpoint. */
const endpointsIn = (deliveries: mongo.Collection<StoredDelivery>, assistantId: string): Promise<string[]> =>
  deliveries.distinct('endpointId', { assistantId });

/**
 * Lists the records of an assistant, its failures, or the records of one conversation or one event. Every list is
 * newest first, uses a cursor and is served by an index.
 */
export const createRecordList = (deliveries: mongo.Collection<StoredDelivery>) => {
  const find = (query: Record<string, unknown>, { limit, hint }: { limit: number; hint: string | undefined }) =>
    deliveries
      .find(query, { ...timeLimit(LIST_WITHIN_MS), ...(hint !== undefined && { hint }) })
      .sort({ createdAt: -1, _id: -1 })
      .limit(limit)
      .toArray()
      .catch((cause: unknown) => {
        if (!exceededTimeLimit(cause)) throw cause;
        throw invalid('from', 'required', 'must be given: the search covers too much without it');
      });

  return async (filter: DeliveryFilter): Promise<{ deliveries: StoredDelivery[]; nextCursor: string | null }> => {
    const size = sizeOf(filter);
    const { endpointId, conversationId, eventId, outcome, status } = filter;
    // Only rejected deliveries can be filtered by status, so a status together with any other outcome matches nothing.
    if (status !== undefined && outcome !== undefined && outcome !== 'rejected')
      return { deliveries: [], nextCursor: null };
    const hint = isInFlight(outcome) ? IN_FLIGHT[outcome] : undefined;
    const byOtherIndex = [endpointId, conversationId, eventId, hint].some((one) => one !== undefined);
    const groups: (string[] | null)[] = byOtherIndex
      ? [null]
      : inChunks(await endpointsIn(deliveries, filter.assistantId), ENDPOINTS_AT_ONCE);
    const found = await Promise.all(
      groups.map((some) =>
        find({ ...queryOf(filter), ...(some && { endpointId: { $in: some } }) }, { limit: size + 1, hint }),
      ),
    );
    const rows = found.length === 1 ? (found[0] ?? []) : found.flat().toSorted(newestFirst);
    const page = rows.slice(0, size);
    const last = rows.length > size ? page.at(-1) : undefined;
    return {
      deliveries: page,
      nextCursor: last ? deliveryCursor.encode({ at: last.createdAt, id: last._id }) : null,
    };
  };
};

export type ListRecords = ReturnType<typeof createRecordList>;

const COUNT_WITHIN_MS = 5_000;

const FAILURES = ['rejected', 'not_sent', 'unknown'] as const;

/**
 * Counts the deliveries created since a time, by outcome. Reads only indexes. `delivered` is not counted but computed:
 * all deliveries minus those with other outcomes.
 */
export const createOutcomeCounts =
  (deliveries: mongo.Collection<StoredDelivery>) =>
  async (assistantId: string, since: Date): Promise<Partial<Record<Outcome, number>>> => {
    const those = { assistantId, createdAt: { $gte: since } };
    const count = (query: object, hint: string) =>
      deliveries.countDocuments({ ...those, ...query }, { hint, ...timeLimit(COUNT_WITHIN_MS) });
    const failures = deliveries
      .aggregate<{ _id: Outcome; count: number }>(
        [{ $match: { ...those, outcome: { $in: FAILURES } } }, { $group: { _id: '$outcome', count: { $sum: 1 } } }],
        { hint: 'failures', ...timeLimit(COUNT_WITHIN_MS) },
      )
      .toArray();
    const endpointId = { $in: await endpointsIn(deliveries, assistantId) };
    const [all, failed, queued, sending] = await Promise.all([
      count({ endpointId, event: { $in: EVENT_KINDS } }, BY_ASSISTANT),
      failures,
      count({ outcome: 'queued' }, IN_FLIGHT.queued),
      count({ outcome: 'sending' }, IN_FLIGHT.sending),
    ]);
    const others = failed.reduce((sum, one) => sum + one.count, queued + sending);
    return {
      ...Object.fromEntries(failed.map((one) => [one._id, one.count])),
      queued,
      sending,
      delivered: Math.max(0, all - others), // the counts are taken at different moments, while sends go on
    };
  };
