/** The kinds of events, and when each event occurs. */
export const EVENTS = {
  'conversation.created': 'A visitor’s first message',
  'message.received': 'Every message of a visitor',
  'conversation.escalated': 'A conversation was given to a person',
  'conversation.resolved': 'An operator resolved a conversation',
  'tag.added': 'A tag was added to a conversation',
} as const;

/** An endpoint gets this event only if it names it. “Every event” does not include it. */
export const SENT = 'message.sent';

export const EVENT_NAMES = Object.keys(EVENTS) as (keyof typeof EVENTS)[];
