import type { OutboxEvent } from '../conversations/conversation.ts';
import type { UpdateStatement } from '../platform/mongo.ts';

/** Ended events of one line, as they stood when read: which entry each was, and whether this endpoint was its last. */
export type Pull = { key: string; conversationId: string; endpointId: string; ended: OutboxEvent[]; opening: boolean };

/**
 * The endpoint leaves an event's entry, or the entry goes if it was the last: statements whose filters exclude each other.
 * Endpoints are only ever taken off an entry, so one read with this endpoint alone needs the first statement only; one
 * read with more may have become this one's alone since. What two pulls at once leave behind is pulled by the next who
 * meets it: its claim says that it has ended.
 */
export const pullStatements = ({ key, conversationId, endpointId, ended, opening }: Pull): UpdateStatement[] => {
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
