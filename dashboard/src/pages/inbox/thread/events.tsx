import { Link } from 'wouter';
import { Status } from '../../../parts/status.tsx';
import { SESSION, useRead } from '../../../query.ts';
import type { ConversationEvents, Me } from '../../../types.ts';
import { shownOutcome } from '../../deliveries/outcome.tsx';

export type MessageEvent = ConversationEvents['events'][number];

/** The events that a message caused, with the outcome of each delivery. Owners can open the delivery. */
export const MessageEvents = ({ events, assistantId }: { events: readonly MessageEvent[]; assistantId: string }) => {
  const me = useRead<Me>(SESSION, { enabled: false });
  const isOwner = me.data?.role === 'owner';
  return (
    <ul className="message-events" aria-label="Events">
      {events.flatMap(({ eventId, event, deliveries }) =>
        deliveries.map(({ deliveryId, outcome }) => (
          <li key={`${eventId} ${deliveryId}`}>
            <Status tone={shownOutcome(outcome).tone}>
              {isOwner ? (
                <Link className="link" to={`/assistants/${assistantId}/deliveries/${encodeURIComponent(deliveryId)}`}>
                  {event}
                </Link>
              ) : (
                event
              )}{' '}
              {shownOutcome(outcome).words.toLowerCase()}
            </Status>
          </li>
        )),
      )}
    </ul>
  );
};
