import type { OutboxEvent } from '../conversations/conversation.ts';
import type { UpdateStatement } from '../platform/mongo.ts';

/** Ended events of one stream, as they were read. `opening` is true if the event is the created event. */
export type Pull = { key: string; conversationId: string; endpointId: string; ended: OutboxEvent[]; opening: boolean };

/**
 * Updates that remove the endpoint from the outbox entries of ended events. One statement removes the whole entry if
 * this endpoint is its last. Another removes only the endpoint if the entry has more. No entry matches both. An entry
 * never gains endpoints, so the first statement is enough for an entry that was read with this endpoint alone. An entry
 * that was read with more endpoints may have lost them by now, so it needs both statements. If two concurrent pulls
 * still leave an entry, the next delivery finds that the event has ended and pulls the entry again.
 */
export const pullStatements = ({ key, conversationId, endpointId, ended, opening }: Pull): UpdateStatement[] => {
  const conversation = { _id: key, conversationId };
  const shared = ended.filter(({ endpoints }) => endpoints.length > 1).map(({ eventId }) => eventId);
  if (opening) {
    const eventId = ended[0]?.eventId;
    const last = { ...conversation, 'opening.eventId': eventId, 'opening.endpoints': [endpointId] };
    const oneOfMany = {
      ...conversation,
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
  // The filter contains only `_id`, because MongoDB would plan any other filter again for each statement, which costs a
  // third more. `_id` alone is safe: if the session was erased and started again, the new conversation does not contain
  // this event id, so nothing is removed.
  const last = { q: { _id: key }, u: { $pull: { outbox: { eventId, endpoints: [endpointId] } } } };
  if (shared.length === 0) return [last];
  const oneOfMany = {
    q: { ...conversation, 'outbox.eventId': { $in: shared } },
    u: { $pull: { 'outbox.$[entry].endpoints': endpointId } },
    arrayFilters: [{ 'entry.eventId': { $in: shared }, 'entry.endpoints.1': { $exists: true } }],
  };
  return [last, oneOfMany];
};
