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

/** The same. It goes to endpoints that got something of the conversation. */
export const ERASED = 'conversation.erased';

/** What a test event can be. */
export const TEST_KINDS = ['webhook.test', ...Object.keys(EVENTS), SENT, ERASED];

export const EVENT_NAMES = Object.keys(EVENTS) as (keyof typeof EVENTS)[];
