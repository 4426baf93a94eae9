import type { OutboxEvent } from '../conversations/conversation.ts';
import type { UpdateStatement } from '../platform/mongo.ts';

/** Ended events of one stream, as they were read. `opening`: the event is the created event. */
export type Pull = { key: string; conversationId: string; endpointId: string; ended: OutboxEvent[]; opening: boolean };

/**
 * Removes the endpoint from each event's entry, or the whole entry if this was its last endpoint: two statements, whose
 * filters exclude each other. An entry only ever loses endpoints. So if it was read with this endpoint alone, the first
 * statement is enough. If it had more endpoints, the others may be gone by now, and both statements are needed. If two
 * pulls at once leave an entry behind, the next delivery finds that its event has ended and pulls it again.
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
  // Filtered by `_id` alone, because MongoDB would plan any other filter again for each statement, which costs a third
  // more. An event id belongs to one conversation, so a session that was erased and started again is not changed.
  const last = { q: { _id: key }, u: { $pull: { outbox: { eventId, endpoints: [endpointId] } } } };
  if (shared.length === 0) return [last];
  const oneOfMany = {
    q: { ...conversation, 'outbox.eventId': { $in: shared } },
    u: { $pull: { 'outbox.$[entry].endpoints': endpointId } },
    arrayFilters: [{ 'entry.eventId': { $in: shared }, 'entry.endpoints.1': { $exists: true } }],
  };
  return [last, oneOfMany];
};
