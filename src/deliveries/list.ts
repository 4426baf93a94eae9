import { deliveryIdOf, type Outcome } from './delivery.ts';
import { type DeliveryRow, toDeliveryRow } from './view.ts';
import { type DeliveryFilter, deliveryCursor, type ListRecords, sizeOf } from './record-list.ts';
import type { OutboxEvent } from '../conversations/conversation.ts';
import { pendingOf, type Outbox } from './outbox.ts';
import type { Pending } from './pending.ts';

/** For one page, the outboxes of at most this many conversations are searched. */
const OUTBOXES_MAX = 1_000;

type Dependencies = {
  listRecords: ListRecords;
  readOutcomes: (deliveryIds: string[]) => Promise<Map<string, Outcome>>;
  pending: Pending;
};

export type DeliveryPage = { deliveries: DeliveryRow[]; nextCursor: string | null };

const toPendingRow = (outbox: Outbox, { eventId, event, at }: OutboxEvent, endpointId: string): DeliveryRow => ({
  deliveryId: deliveryIdOf(eventId, endpointId),
  eventId,
  event,
  endpointId,
  assistantId: outbox.assistantId,
  conversationId: outbox.conversationId,
  outcome: 'queued',
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
export const findPendingRow = async (pending: Pending, deliveryId: string): Promise<DeliveryRow | null> => {
  const [, eventId, endpointId] = DELIVERY_ID.exec(deliveryId) ?? [];
  if (eventId === undefined || endpointId === undefined) return null;
  const outbox = await pending.findByEvent(eventId);
  const event = outbox && pendingOf(outbox, endpointId).find((one) => one.eventId === eventId);
  return event ? toPendingRow(outbox, event, endpointId) : null;
};

/** Pending events as list rows. An event that was claimed after the outbox was read also has a record. */
export const pendingRowsOf = (outbox: Outbox): DeliveryRow[] =>
  [...(outbox.opening ? [outbox.opening] : []), ...(outbox.outbox ?? [])].flatMap((event) =>
    event.endpoints.map((endpointId) => toPendingRow(outbox, event, endpointId)),
  );

const newestFirst = (a: DeliveryRow, b: DeliveryRow): number =>
  b.createdAt.getTime() - a.createdAt.getTime() || (a.deliveryId < b.deliveryId ? 1 : -1);

const matches = (row: DeliveryRow, filter: DeliveryFilter): boolean => {
  const { from, to, cursor } = filter;
  const after = cursor === undefined ? null : deliveryCursor.decode(cursor);
  return (
    (['endpointId', 'conversationId', 'event', 'eventId'] as const).every(
      (name) => filter[name] === undefined || filter[name] === row[name],
    ) &&
    (!from || row.createdAt >= from) &&
    (!to || row.createdAt < to) &&
    (!after ||
      row.createdAt < after.at ||
      (row.createdAt.getTime() === after.at.getTime() && row.deliveryId < after.id))
  );
};

/** The list of deliveries, newest first: every record, and every pending event as `queued`. One cursor covers both. */
export const createDeliveryList = ({ listRecords, readOutcomes, pending }: Dependencies) => {
  const findPending = async (filter: DeliveryFilter): Promise<DeliveryRow[]> => {
    const found = await pending.find(filter, OUTBOXES_MAX);
    const wanted = found.flatMap(pendingRowsOf).filter((row) => matches(row, filter));
    const claimed = await readOutcomes(wanted.map(({ deliveryId }) => deliveryId));
    return wanted.filter(({ deliveryId }) => !claimed.has(deliveryId));
  };

  return async (filter: DeliveryFilter): Promise<DeliveryPage> => {
    const size = sizeOf(filter);
    const mayBePending = filter.status === undefined && [undefined, 'queued'].includes(filter.outcome);
    // Outboxes are read before records. So an event that is claimed between the two reads is found in both, and only
    // its record is shown.
    const queued = mayBePending ? await findPending(filter) : [];
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
    };
  };
};
