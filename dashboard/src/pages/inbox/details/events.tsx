import { useEvents } from '../thread/delivered.ts';
import { EventList } from '../thread/events.tsx';
import type { ConversationFacts } from '../thread/thread.ts';
import { Part } from './section.tsx';

/** The events that belong to no message, such as a tag, with their deliveries. */
export const OtherEvents = ({ facts: { conversationId, assistantId } }: { facts: ConversationFacts }) => {
  const { others } = useEvents(conversationId);
  if (others.length === 0) return null;
  return (
    <Part title="Other events">
      <EventList events={others} assistantId={assistantId} />
    </Part>
  );
};
