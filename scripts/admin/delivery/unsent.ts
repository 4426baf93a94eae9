import type { Outbox } from '../../../src/conversations/outbox.ts';
import { deliveryIdOf } from '../../../src/events/delivery.ts';
import type { Opened } from '../session.ts';

const CONVERSATIONS_MAX = 1_000;
const PROJECTION = { conversationId: 1, assistantId: 1, sessionId: 1, channel: 1, opening: 1, outbox: 1 };

const eventsOf = ({ opening, outbox = [] }: Outbox) => [...(opening ? [opening] : []), ...outbox];

/** Events of these outboxes that no delivery has claimed yet, as they will be listed once one has. */
export const unsentOf = async ({ deliveries }: Pick<Opened, 'deliveries'>, outboxes: Outbox[]) => {
  const waiting = outboxes.flatMap((outbox) =>
    eventsOf(outbox).flatMap(({ eventId, event, at, endpoints }) =>
      endpoints.map((endpointId) => ({
        deliveryId: deliveryIdOf(eventId, endpointId),
        eventId,
        event,
        endpointId,
        outcome: 'queued' as const,
        errorKind: null,
        status: null,
        conversationId: outbox.conversationId,
        url: null,
        redelivery: false,
        ms: null,
        happenedAt: at,
        createdAt: at,
        endedAt: null,
      })),
    ),
  );
  const claimed = await deliveries.readOutcomes(waiting.map(({ deliveryId }) => deliveryId));
  return waiting.filter(({ deliveryId }) => !claimed.has(deliveryId));
};

/** An assistant's conversations that have something to send, by the indexes which hold only such. */
export const findOutboxes = async ({ mongo }: Pick<Opened, 'mongo'>, assistantId: string): Promise<Outbox[]> => {
  const conversations = mongo.collection<Outbox>('conversations');
  const [outboxes, openings] = await Promise.all([
    conversations
      .find({ assistantId, 'outbox.0': { $exists: true } }, { projection: PROJECTION })
      .hint('outbox_heads')
      .limit(CONVERSATIONS_MAX)
      .toArray(),
    conversations
      .find({ assistantId, opening: { $exists: true } }, { projection: PROJECTION })
      .hint('openings')
      .limit(CONVERSATIONS_MAX)
      .toArray(),
  ]);
  return [...new Map([...outboxes, ...openings].map((one) => [one._id, one as Outbox])).values()];
};
