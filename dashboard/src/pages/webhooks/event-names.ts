/** What can be subscribed to, and when it happens. */
export const EVENTS = {
  'conversation.created': 'A visitor’s first message',
  'message.received': 'Every message of a visitor',
  'conversation.escalated': 'It was handed to a person',
  'conversation.resolved': 'An operator marked it done',
  'tag.added': 'A tag was put on it',
} as const;

export const EVENT_NAMES = Object.keys(EVENTS) as (keyof typeof EVENTS)[];
