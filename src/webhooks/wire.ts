import * as z from 'zod';
import { ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import { CONTENT_MAX_CODE_POINTS, type EventKind } from './event.ts';

const sample = { conversation_id: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b' };
const conversation_id = z.uuid().meta({ example: sample.conversation_id });
const session_id = z.string().meta({ example: 'visitor-42' });
const channel = z.enum(['api', 'webhook', 'web']);
const language = z.string().meta({ description: 'Canonical BCP 47 tag.', example: 'en' });

const envelope = <Kind extends EventKind, Payload extends z.ZodObject>(event: Kind, payload: Payload, id: string) =>
  z
    .object({
      event: z.literal(event),
      event_id: z.uuid().meta({ description: 'Unique and stable: use it to detect duplicates.' }),
      timestamp: z.int().min(0).meta({ description: 'When it happened, in Unix seconds.', example: 1_777_889_730 }),
      payload,
    })
    .meta({ id });

/** The bodies that a customer's server receives, by event kind (docs/contract.md, Events). */
export const WIRE_EVENTS = {
  'conversation.created': envelope(
    'conversation.created',
    z.object({ conversation_id, session_id, channel, language }),
    'ConversationCreatedEvent',
  ),
  'message.received': envelope(
    'message.received',
    z.object({
      conversation_id,
      role: z.literal('user'),
      content: z.string().meta({ description: `The first ${CONTENT_MAX_CODE_POINTS} characters.` }),
      channel,
      language,
    }),
    'MessageReceivedEvent',
  ),
  'conversation.escalated': envelope(
    'conversation.escalated',
    z.object({ conversation_id, reason: z.string(), lead_score: z.number().min(0).max(100), language }),
    'ConversationEscalatedEvent',
  ),
  'conversation.resolved': envelope(
    'conversation.resolved',
    z.object({ conversation_id, resolved_by: z.string().meta({ description: 'The operator’s id.' }) }),
    'ConversationResolvedEvent',
  ),
  'tag.added': envelope(
    'tag.added',
    z.object({ conversation_id, tag: z.string(), color: z.string().nullable() }),
    'TagAddedEvent',
  ),
  'message.sent': envelope(
    'message.sent',
    z.object({
      conversation_id,
      message_id: z.uuid().meta({ description: 'The `messageId` of the message in the history.' }),
      turn_id: z
        .uuid()
        .nullable()
        .meta({ description: 'The turn that it answers; null for messages of operators and the system.' }),
      seq: z.int().min(1).meta({ description: 'Its place in the conversation.' }),
      role: z.enum(['assistant', 'operator', 'system']),
      content: z.string().meta({ description: 'The whole message.' }),
      suggested_actions: z.array(SuggestedAction).min(1).optional(),
      sources: z
        .array(ReplySource)
        .optional()
        .meta({ description: 'What a reply is taken from; only for endpoints with `include: ["sources"]`.' }),
      channel,
      language,
    }),
    'MessageSentEvent',
  ),
  'conversation.erased': envelope('conversation.erased', z.object({ conversation_id }), 'ConversationErasedEvent'),
  'webhook.test': envelope('webhook.test', z.object({ ping: z.literal('pong') }), 'WebhookTestEvent'),
} satisfies Record<EventKind, z.ZodType>;

type Samples = { [Kind in EventKind]: z.input<(typeof WIRE_EVENTS)[Kind]>['payload'] };

/** A payload of each kind, for test events and the API document. */
export const SAMPLES: Samples = {
  'conversation.created': { ...sample, session_id: 'visitor-42', channel: 'api', language: 'en' },
  'message.received': { ...sample, role: 'user', content: 'When are you open?', channel: 'api', language: 'en' },
  'conversation.escalated': { ...sample, reason: 'user_requested', lead_score: 40, language: 'en' },
  'conversation.resolved': { ...sample, resolved_by: '3f0e8f0a-3c1c-4f0e-9d2b-6d6a0f6b7c11' },
  'tag.added': { ...sample, tag: 'billing', color: '#2f6fed' },
  'message.sent': {
    ...sample,
    message_id: '0b5c9d52-6c0e-4f43-9a52-0f6f5b1f7a10',
    turn_id: null,
    seq: 3,
    role: 'operator',
    content: 'I have looked at your order. It leaves today.',
    channel: 'webhook',
    language: 'en',
  },
  'conversation.erased': sample,
  'webhook.test': { ping: 'pong' },
};

/** The exact body of a test event of this kind. */
export const composeTestBody = (event: EventKind, eventId: string, timestamp: number): string =>
  JSON.stringify({ event, event_id: eventId, timestamp, payload: SAMPLES[event] });
