import * as z from 'zod';
import type { ZodOpenApiPathItemObject } from 'zod-openapi';
import type { EventKind } from '../webhooks/event.ts';
import { WIRE_EVENTS } from '../webhooks/wire.ts';
import { DELIVERY_DEADLINE_MS } from '../platform/timing.ts';

const WHEN: Record<EventKind, string> = {
  'conversation.created': 'A conversation started.',
  'message.received': 'A visitor’s message was accepted.',
  'conversation.escalated': 'A conversation was handed to a person.',
  'conversation.resolved': 'An operator resolved a conversation.',
  'tag.added': 'An operator tagged a conversation.',
  'message.sent':
    'A reply, an operator’s message or a system message was stored. Only for endpoints that name this event.',
  'webhook.test': 'An operator sent a test event.',
};

const conversation_id = '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b';

const PAYLOADS: Record<EventKind, Record<string, unknown>> = {
  'conversation.created': { conversation_id, session_id: 'visitor-42', channel: 'api', language: 'en' },
  'message.received': { conversation_id, role: 'user', content: 'When are you open?', channel: 'api', language: 'en' },
  'conversation.escalated': { conversation_id, reason: 'user_requested', lead_score: 40, language: 'en' },
  'conversation.resolved': { conversation_id, resolved_by: '3f0e8f0a-3c1c-4f0e-9d2b-6d6a0f6b7c11' },
  'tag.added': { conversation_id, tag: 'billing', color: '#2f6fed' },
  'message.sent': {
    conversation_id,
    message_id: '0b5c9d52-6c0e-4f43-9a52-0f6f5b1f7a10',
    turn_id: null,
    seq: 3,
    role: 'operator',
    content: 'I have looked at your order. It leaves today.',
    channel: 'webhook',
    language: 'en',
  },
  'webhook.test': { ping: 'pong' },
};

const eventHeaders = (event: EventKind) =>
  z.object({
    'X-Factory-Signature': z.string().meta({
      description:
        '`t=<unix seconds>,v1=<hex>`: HMAC-SHA256, keyed with the endpoint’s secret, over `<t>.<raw body>`. During a ' +
        'rotation there are two `v1`. Compare in constant time; allow 300 s of clock difference.',
      example: 't=1777889730,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd',
    }),
    'X-Factory-Event': z.literal(event),
    'X-Factory-Event-Id': z.uuid().meta({ description: 'The same as `event_id`.' }),
    'X-Factory-Redelivery': z
      .literal('true')
      .optional()
      .meta({ description: 'Present when an operator resent this event.' }),
  });

const webhookOf = (event: EventKind): ZodOpenApiPathItemObject => ({
  post: {
    operationId: event.replace(/[._](\w)/g, (_match, letter: string) => letter.toUpperCase()),
    summary: WHEN[event],
    description: `Sent once, without automatic retry. Answer within ${DELIVERY_DEADLINE_MS / 1000} s. The events of a conversation arrive in order.`,
    tags: ['Events'],
    security: [],
    requestParams: { header: eventHeaders(event) },
    requestBody: {
      required: true,
      content: {
        'application/json': {
          schema: WIRE_EVENTS[event],
          example: {
            event,
            event_id: '9d1f7c2e-3b5a-4c6d-8e7f-0a1b2c3d4e5f',
            timestamp: 1_777_889_730,
            payload: PAYLOADS[event],
          },
        },
      },
    },
    responses: {
      '2XX': { description: 'Delivered. Any other status is recorded as rejected; redirects are not followed.' },
    },
  },
});

/** The events that a customer's server receives (docs/contract.md, Events). */
export const eventWebhooks: Record<EventKind, ZodOpenApiPathItemObject> = {
  'conversation.created': webhookOf('conversation.created'),
  'message.received': webhookOf('message.received'),
  'conversation.escalated': webhookOf('conversation.escalated'),
  'conversation.resolved': webhookOf('conversation.resolved'),
  'tag.added': webhookOf('tag.added'),
  'message.sent': webhookOf('message.sent'),
  'webhook.test': webhookOf('webhook.test'),
};
