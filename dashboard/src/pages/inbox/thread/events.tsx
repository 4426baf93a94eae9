import { Link } from 'wouter';
import { Status, type Tone } from '../../../parts/status.tsx';
import { SESSION, useRead } from '../../../query.ts';
import type { ConversationEvents, Me, Outcome } from '../../../types.ts';
import { shownOutcome } from '../../deliveries/outcome.tsx';

export type MessageEvent = ConversationEvents['events'][number];

type Events = { events: readonly MessageEvent[]; assistantId: string };

/** Events with the outcome of each delivery. Owners can open the delivery. */
export const EventList = ({ events, assistantId }: Events) => {
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

/** One sign for all deliveries of a message. The worst of them gives the colour. */
const signOf = (outcomes: readonly Outcome[]): { tone: Tone; words: string } => {
  const tones = outcomes.map((one) => shownOutcome(one).tone);
  const tone = (['bad', 'warn', 'busy', 'calm'] as const).find((one) => tones.includes(one)) ?? 'good';
  const delivered = outcomes.filter((one) => one === 'delivered').length;
  return { tone, words: `Delivered ${delivered} of ${outcomes.length}` };
};

/** The events that a message caused, folded to one sign. */
export const MessageEvents = ({ events, assistantId }: Events) => {
  const { tone, words } = signOf(events.flatMap(({ deliveries }) => deliveries.map(({ outcome }) => outcome)));
  return (
    <details className="message-sent">
      <summary>
        <Status tone={tone}>{words}</Status>
      </summary>
      <EventList events={events} assistantId={assistantId} />
    </details>
  );
};
