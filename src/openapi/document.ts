import * as z from 'zod';
import { createDocument, type ZodOpenApiPathItemObject } from 'zod-openapi';
import type { EventKind } from '../webhooks/event.ts';
import { WIRE_EVENTS } from '../webhooks/wire.ts';
import { DELIVERY_DEADLINE_MS } from '../platform/timing.ts';
import { VERSION } from '../platform/version.ts';
import { apiPaths } from './paths.ts';

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
const eventWebhooks: Record<EventKind, ZodOpenApiPathItemObject> = {
  'conversation.created': webhookOf('conversation.created'),
  'message.received': webhookOf('message.received'),
  'conversation.escalated': webhookOf('conversation.escalated'),
  'conversation.resolved': webhookOf('conversation.resolved'),
  'tag.added': webhookOf('tag.added'),
  'message.sent': webhookOf('message.sent'),
  'webhook.test': webhookOf('webhook.test'),
};

const DESCRIPTION = `An assistant that answers visitors' messages and groups them into conversations.

Every response that is not 2xx is \`{"error": {"code", "message", "field"?, "details"?, "requestId"}}\`; \`field\` is the first
wrong field. An unknown path gets 404 \`not_found\`; a wrong method gets 405 \`method_not_allowed\` with \`Allow\`. HEAD
works wherever GET does. Bytes that are not an HTTP request get 400 \`malformed_request\`, 408 \`request_timeout\` or 431
\`headers_too_large\`.

Checks run in this order: 404 (channel), 401, 429, 413, 422. Failing requests (401, unknown assistant) have a limit for each
client address; above it, only failing requests get 429. Unknown fields of a request are ignored. New fields of a response come only with a new
version.`;

const bearer = (description: string) => ({ type: 'http', scheme: 'bearer', description }) as const;

/** The whole API as an OpenAPI 3.1 document, built once at the start from the schemas that the code uses. */
export const createApiDocument = ({ serverUrl = '/' }: { serverUrl?: string | undefined } = {}) =>
  createDocument({
    openapi: '3.1.1',
    info: { title: 'Parley', version: VERSION, description: DESCRIPTION, license: { name: 'MIT', identifier: 'MIT' } },
    servers: [{ url: serverUrl }],
    tags: [
      { name: 'Chat', description: 'Send visitors’ messages and get replies.' },
      { name: 'Conversations', description: 'Read, escalate and erase conversations.' },
      { name: 'Events', description: 'The events that an endpoint receives.' },
      { name: 'Operation', description: 'Health, metrics and this document.' },
      {
        name: 'Operators',
        description:
          'The API of the dashboard. Changes requested by pages of other sites are refused. Programs use an operator token.',
      },
    ],
    paths: apiPaths,
    webhooks: eventWebhooks,
    components: {
      securitySchemes: {
        apiKey: bearer('An API key of one assistant. For servers only; shown once, when created.'),
        verifyToken: bearer('The channel’s verify token, if it has one.'),
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: '__Host-parley',
          description: 'Set by `signIn`. Without TLS, its name is `parley`.',
        },
        operatorToken: bearer(
          'For programs: `op_…`, created by an owner in the dashboard or with `npm run admin -- token create`. Its scope is ' +
            '`read` (only GET) or `manage`, for all assistants or some.',
        ),
        metricsToken: bearer('`METRICS_TOKEN` of the service.'),
      },
    },
  });

export type ApiDocument = ReturnType<typeof createApiDocument>;
