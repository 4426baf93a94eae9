import type { mongo } from 'mongoose';
import { invalid } from '../platform/errors.ts';
import type { Outcome, StoredDelivery } from './delivery.ts';
import type { EventKind } from './event.ts';

export const LIST_MAX = 200;
const LIST_DEFAULT = 50;

export type DeliveryFilter = {
  assistantId: string;
  endpointId?: string;
  eventId?: string;
  conversationId?: string;
  event?: EventKind;
  outcome?: Outcome;
  /** Begun at this time or later, and before that. */
  from?: Date;
  to?: Date;
  limit?: number;
  cursor?: string;
};

/** A place in a list ordered by `createdAt` and id, newest first. */
export type Position = { createdAt: Date; id: string };

export const encodePosition = ({ createdAt, id }: Position): string =>
  Buffer.from(`${createdAt.getTime()} ${id}`).toString('base64url');

export const decodePosition = (cursor: string): Position => {
  const match = /^(\d{1,15}) ([\w:.-]{1,200})$/.exec(Buffer.from(cursor, 'base64url').toString());
  if (!match) throw invalid('cursor', 'invalid', 'is not a cursor of this list');
  return { createdAt: new Date(Number(match[1])), id: match[2] as string };
};

export const sizeOf = ({ limit = LIST_DEFAULT }: DeliveryFilter): number => Math.min(Math.max(1, limit), LIST_MAX);

const queryOf = (filter: DeliveryFilter): Record<string, unknown> => {
  const { assistantId, endpointId, conversationId, event, outcome, eventId, from, to, cursor } = filter;
  const exact = Object.entries({ endpointId, conversationId, event, outcome }).filter(
    ([, value]) => value !== undefined,
  );
  const after = cursor === undefined ? null : decodePosition(cursor);
  return {
    assistantId,
    ...Object.fromEntries(exact),
    ...(eventId !== undefined && { _id: { $gte: eventId, $lt: `${eventId};` } }),
    ...((from || to) && { createdAt: { ...(from && { $gte: from }), ...(to && { $lt: to }) } }),
    ...(after && {
      $or: [{ createdAt: { $lt: after.createdAt } }, { createdAt: after.createdAt, _id: { $lt: after.id } }],
    }),
  };
};

/** Newest first, by cursor, on an index: of the assistant's deliveries, its failures, one conversation's or one event's. */
export const createDeliveryList =
  (deliveries: mongo.Collection<StoredDelivery>) =>
  async (filter: DeliveryFilter): Promise<{ deliveries: StoredDelivery[]; nextCursor: string | null }> => {
    const size = sizeOf(filter);
    const rows = await deliveries
      .find(queryOf(filter))
      .sort({ createdAt: -1, _id: -1 })
      .limit(size + 1)
      .toArray();
    const page = rows.slice(0, size);
    const last = rows.length > size ? page.at(-1) : undefined;
    return {
      deliveries: page,
      nextCursor: last ? encodePosition({ createdAt: last.createdAt, id: last._id }) : null,
    };
  };

const COUNT_WITHIN_MS = 2_000;

/** How deliveries begun since then ended, or stand. */
export const createOutcomeCounts =
  (deliveries: mongo.Collection<StoredDelivery>) =>
  async (assistantId: string, since: Date): Promise<Partial<Record<Outcome, number>>> => {
    const rows = await deliveries
      .aggregate<{ _id: Outcome; count: number }>(
        [{ $match: { assistantId, createdAt: { $gte: since } } }, { $group: { _id: '$outcome', count: { $sum: 1 } } }],
        { maxTimeMS: COUNT_WITHIN_MS },
      )
      .toArray();
    return Object.fromEntries(rows.map(({ _id, count }) => [_id, count]));
  };
