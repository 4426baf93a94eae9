import * as z from 'zod';
import type { INCLUDED, ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';

export const EVENT_KINDS = [
  'conversation.created',
  'message.received',
  'conversation.escalated',
  'conversation.resolved',
  'tag.added',
  'message.sent',
  'conversation.erased',
  'webhook.test',
] as const;

export const EventKind = z.enum(EVENT_KINDS);
export type EventKind = z.infer<typeof EventKind>;

/** Kinds that an endpoint gets only if it names them. An endpoint that wants every event does not get them. */
export const OPT_IN_KINDS: readonly EventKind[] = ['message.sent', 'conversation.erased'];

/**
 * The kinds of events in a conversation's outbox. A test belongs to no conversation, and an erased one has no outbox.
 */
export type ConversationEventKind = Exclude<EventKind, 'webhook.test' | 'conversation.erased'>;

export const CONTENT_MAX_CODE_POINTS = 500;

/** Fields that never change during a conversation. They are added to the payload when the body is composed. */
export type ConversationFacts = { conversationId: string; sessionId: string; channel: string };

/** Payloads as they are stored: with the field names of the wire, and without the `ConversationFacts`. */
export type EventPayloads = {
  'conversation.created': { language: string };
  /** In a long outbox the event names its turn, and `content` is read when the body is composed. */
  'message.received': { role: 'user'; content?: string; turn_id?: string; language: string };
  'conversation.escalated': { reason: string; lead_score: number; language: string };
  'conversation.resolved': { resolved_by: string };
  'tag.added': { tag: string; color: string | null };
  'message.sent': {
    message_id: string;
    turn_id: string | null;
    seq: number;
    role: 'assistant' | 'operator' | 'system';
    language: string;
  };
};

/**
 * The texts of an event that does not hold them. They are read when the body is composed: with the texts of 500 pending
 * events, a conversation's document would exceed MongoDB's limit of 16 MB.
 */
type MessageTexts = { content: string; suggestedActions?: SuggestedAction[]; sources?: ReplySource[] };

/** What an endpoint gets in addition, because its owner asked for it. */
export type Included = readonly (typeof INCLUDED)[number][];

export type ConversationEvent = {
  [Kind in ConversationEventKind]: { event: Kind; payload: EventPayloads[Kind] };
}[ConversationEventKind];

/** The first 500 code points. Surrogate pairs are never split. */
export const truncateContent = (content: string): string => {
  if (content.length <= CONTENT_MAX_CODE_POINTS) return content;
  let end = 0;
  for (let codePoints = 0; codePoints < CONTENT_MAX_CODE_POINTS && end < content.length; codePoints += 1) {
    end += (content.codePointAt(end) as number) > 0xffff ? 2 : 1;
  }
  return content.slice(0, end);
};

const payloadOf = (
  event: ConversationEvent,
  facts: ConversationFacts,
  { texts, include }: { texts: MessageTexts | null; include: Included },
): Record<string, unknown> => {
  const conversation_id = facts.conversationId;
  switch (event.event) {
    case 'conversation.created':
      return { conversation_id, session_id: facts.sessionId, channel: facts.channel, ...event.payload };
    case 'message.received': {
      const { role, language, content = texts && truncateContent(texts.content) } = event.payload;
      if (content === null) throw new Error('a received message needs its text');
      return { conversation_id, role, content, channel: facts.channel, language };
    }
    case 'message.sent': {
      if (!texts) throw new Error('a sent message needs its texts');
      const { language, ...message } = event.payload;
      const { content, suggestedActions, sources = [] } = texts;
      return {
        conversation_id,
        ...message,
        content,
        ...(suggestedActions && { suggested_actions: suggestedActions }),
        ...(include.includes('sources') && message.role === 'assistant' && { sources }),
        channel: facts.channel,
        language,
      };
    }
    default:
      return { conversation_id, ...event.payload };
  }
};

/** Composes the exact body that is signed, stored and sent. */
export const composeBody = (
  envelope: ConversationEvent & { eventId: string; timestamp: number },
  facts: ConversationFacts,
  { texts = null, include = [] }: { texts?: MessageTexts | null; include?: Included } = {},
): string =>
  JSON.stringify({
    event: envelope.event,
    event_id: envelope.eventId,
    timestamp: envelope.timestamp,
    payload: payloadOf(envelope, facts, { texts, include }),
  });

/** How many events of an erased conversation its receivers are told of. */
export const ERASED_EVENTS_MAX = 1_000;
/** What an endpoint got of a conversation or may have got, oldest first. `more`: there was something before it. */
export type Received = { eventIds: string[]; more: boolean };

export const composeErasedBody = (
  eventId: string,
  timestamp: number,
  { conversationId, eventIds, more }: Received & { conversationId: string },
): string =>
  JSON.stringify({
    event: 'conversation.erased',
    event_id: eventId,
    timestamp,
    payload: { conversation_id: conversationId, event_ids: eventIds, more_events: more },
  });
