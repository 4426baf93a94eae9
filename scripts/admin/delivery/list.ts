import type { Outcome } from '../../../src/events/delivery.ts';
import type { EventKind } from '../../../src/events/event.ts';
import { toListed } from './view.ts';
import type { Opened } from '../session.ts';
import { findOutboxes, unsentOf } from './unsent.ts';

const PAGE = 200;

export type Filter = {
  assistantId: string;
  eventId?: string;
  endpointId?: string;
  conversationId?: string;
  event?: EventKind;
  outcome?: Outcome;
  from?: Date;
  to?: Date;
};

type Listed = ReturnType<typeof toListed> | Awaited<ReturnType<typeof unsentOf>>[number];

const EXACT = ['eventId', 'endpointId', 'conversationId', 'event', 'outcome'] as const;

const matches =
  (filter: Filter) =>
  (one: Listed): boolean =>
    EXACT.every((name) => filter[name] === undefined || filter[name] === one[name]) &&
    (!filter.from || one.createdAt >= filter.from) &&
    (!filter.to || one.createdAt < filter.to);

export const readRecords = async ({ deliveries }: Opened, filter: Filter, limit: number): Promise<Listed[]> => {
  const listed: Listed[] = [];
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<Opened['deliveries']['listDeliveries']>> = await deliveries.listDeliveries({
      ...filter,
      limit: Math.min(PAGE, limit - listed.length),
      ...(cursor !== null && { cursor }),
    });
    listed.push(...page.deliveries.map(toListed));
    cursor = page.nextCursor;
  } while (cursor !== null && listed.length < limit);
  return listed;
};

const newestFirst = (a: Listed, b: Listed): number =>
  b.createdAt.getTime() - a.createdAt.getTime() || (a.deliveryId < b.deliveryId ? 1 : -1);

/** Outboxes first: an event claimed in between is then found as a record too, and shown once. */
export const listDeliveries = async (opened: Opened, filter: Filter, limit: number): Promise<Listed[]> => {
  const unsent = (await unsentOf(opened, await findOutboxes(opened, filter.assistantId))).filter(matches(filter));
  const records = await readRecords(opened, filter, limit);
  const known = new Set(records.map(({ deliveryId }) => deliveryId));
  return [...records, ...unsent.filter(({ deliveryId }) => !known.has(deliveryId))]
    .toSorted(newestFirst)
    .slice(0, limit);
};
