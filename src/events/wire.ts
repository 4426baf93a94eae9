import * as z from 'zod';
import { ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import { CONTENT_MAX_CODE_POINTS, ERASED_EVENTS_MAX, EVENT_KINDS, type EventKind } from '../conversations/event.ts';

const sample = { conversation_id: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b' };
const conversation_id = z.uuid().meta({ example: sample.conversation_id });
const session_id = z.string().meta({ example: 'visitor-42' });
const channel = z.enum(['api', 'webhook', 'web']);
const language = z.string().meta({ description: 'Canonical BCP 47 tag.', example: 'en' });

export const OWN_HEADERS_MAX = 20;
const OWN_HEADER_CHARS = 1_024;
const OWN_HEADERS_CHARS = 4_096;
/** Names that frame a request, belong to one connection, or are in every request of ours. */
const TAKEN_NAMES = new Set(
  `accept-encoding connection content-encoding content-length content-type expect host keep-alive
  proxy-authenticate proxy-authorization proxy-connection te traceparent tracestate trailer transfer-encoding upgrade
  user-agent`.split(/\s+/),
);
const isFree = (name: string): boolean =>
  !TAKEN_NAMES.has(name.toLowerCase()) && !/^(?:x-factory-|webhook-)/i.test(name);

/** A header that the owner of an endpoint adds to its requests. */
const OwnHeader = z.object({
  name: z
    .string()
    .regex(/^[\w!#$%&'*+.^`|~-]{1,64}$/, 'must be the name of a header, at most 64 characters')
    .refine(isFree, 'is set by the service or by HTTP')
    .meta({ description: 'None of HTTP’s framing, and none that begins with `X-Factory-` or `webhook-`.' }),
  value: z
    .string()
    .max(OWN_HEADER_CHARS)
    .regex(/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/, 'must be printable ASCII, without spaces at its ends')
    .optional()
    .meta({ description: 'Without a value, the header of this name stays as it is.' }),
  secret: z.boolean().default(true).meta({ description: 'True: the value is never shown.' }),
});
export const OwnHeaders = z
  .array(OwnHeader)
  .max(OWN_HEADERS_MAX)
  .refine(
    (headers) => new Set(headers.map(({ name }) => name.toLowerCase())).size === headers.length,
    'must not name a header twice',
  )
  .refine(
    (headers) =>
      headers.reduce((sum, { name, value = '' }) => sum + name.length + value.length, 0) <= OWN_HEADERS_CHARS,
    `must have at most ${OWN_HEADERS_CHARS} characters together`,
  );

/** `when`: what the API document says of the kind. `sample`: the payload of a test event. */
const kind = <Payload extends z.ZodObject>(when: string, payload: Payload, sample: z.input<Payload>) => ({
  when,
  payload,
  sample,
});

/** What a customer's server receives (docs/contract.md, Events). */
export const WIRE_EVENTS = {
  'conversation.created': kind(
    'A conversation started.',
    z.object({ conversation_id, session_id, channel, language }),
    { ...sample, session_id: 'visitor-42', channel: 'api', language: 'en' },
  ),
  'message.received': kind(
    'A visitor’s message was accepted.',
    z.object({
      conversation_id,
      role: z.literal('user'),
      content: z.string().meta({ description: `The first ${CONTENT_MAX_CODE_POINTS} characters.` }),
      channel,
      language,
    }),
    { ...sample, role: 'user', content: 'When are you open?', channel: 'api', language: 'en' },
  ),
  'conversation.escalated': kind(
    'A conversation was handed to a person.',
    z.object({ conversation_id, reason: z.string(), lead_score: z.number().min(0).max(100), language }),
    { ...sample, reason: 'user_requested', lead_score: 40, language: 'en' },
  ),
  'conversation.resolved': kind(
    'An operator resolved a conversation.',
    z.object({ conversation_id, resolved_by: z.string().meta({ description: 'The operator’s id.' }) }),
    { ...sample, resolved_by: '3f0e8f0a-3c1c-4f0e-9d2b-6d6a0f6b7c11' },
  ),
  'tag.added': kind(
    'An operator tagged a conversation.',
    z.object({ conversation_id, tag: z.string(), color: z.string().nullable() }),
    { ...sample, tag: 'billing', color: '#2f6fed' },
  ),
  'message.sent': kind(
    'A reply, an operator’s message or a system message was stored. Only for endpoints that name this event.',
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
    {
      ...sample,
      message_id: '0b5c9d52-6c0e-4f43-9a52-0f6f5b1f7a10',
      turn_id: null,
      seq: 3,
      role: 'operator',
      content: 'I have looked at your order. It leaves today.',
      channel: 'webhook',
      language: 'en',
    },
  ),
  'conversation.erased': kind(
    'A conversation was erased of which the endpoint got something. Only for endpoints that name this event.',
    z.object({
      conversation_id,
      event_ids: z
        .array(z.uuid())
        .max(ERASED_EVENTS_MAX)
        .meta({ description: 'The events that your endpoint got of it, or may have got, oldest first.' }),
      more_events: z.boolean().meta({ description: 'True: there were older ones, which are not named.' }),
    }),
    { ...sample, event_ids: ['7d8e8f0a-0f5e-4a53-8a43-5c1f6a0b2d11'], more_events: false },
  ),
  'webhook.test': kind('An operator sent a test event.', z.object({ ping: z.literal('pong') }), { ping: 'pong' }),
} satisfies Record<EventKind, unknown>;

/** `tagAdded` of `tag.added`. */
export const camelCased = (event: EventKind): string =>
  event.replace(/[._](\w)/g, (_match, letter: string) => letter.toUpperCase());

const bodyOf = (event: EventKind) => {
  const name = camelCased(event);
  return z
    .object({
      event: z.literal(event),
      event_id: z.uuid().meta({ description: 'Unique and stable: use it to detect duplicates.' }),
      timestamp: z.int().min(0).meta({ description: 'When it happened, in Unix seconds.', example: 1_777_889_730 }),
      payload: WIRE_EVENTS[event].payload,
    })
    .meta({ id: `${name[0]?.toUpperCase()}${name.slice(1)}Event` });
};

/** The whole bodies. */
export const EVENT_BODIES = Object.fromEntries(EVENT_KINDS.map((event) => [event, bodyOf(event)])) as Record<
  EventKind,
  ReturnType<typeof bodyOf>
>;

/** The exact body of a test event of this kind. */
export const composeTestBody = (event: EventKind, eventId: string, timestamp: number): string =>
  JSON.stringify({ event, event_id: eventId, timestamp, payload: WIRE_EVENTS[event].sample });
