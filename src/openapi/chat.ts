import * as z from 'zod';
import type { ZodOpenApiOperationObject, ZodOpenApiPathsObject } from 'zod-openapi';
import { ChatRequest, ChatResponse, IdempotencyKey } from '../turns/turn.ts';
import { AcceptedTurn, TurnView } from '../turns/turn-view.ts';
import { accepted, notFoundBehindTheDoor, ok, problems } from './responses.ts';

const HEADERS = z.object({
  'Idempotency-Key': IdempotencyKey.optional().meta({
    description:
      'Decides for 24 h whether this request repeats an earlier one; session and message no longer do. The same key with ' +
      'another session or message gets 422.',
  }),
  'X-Request-Id': z
    .string()
    .regex(/^[\w-]{8,64}$/)
    .optional()
    .meta({ description: 'Returned in the response. A malformed one is replaced.' }),
});

const ASYNC_HEADERS = HEADERS.extend({
  Prefer: z.string().optional().meta({
    description: '`respond-async`: get 202 immediately, and the reply later at `Location`.',
    example: 'respond-async',
  }),
});

const EXAMPLE = {
  reply: 'We are open from 9 to 5.',
  suggestedActions: [{ label: 'Directions', type: 'link', payload: '/directions' }],
  conversationId: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b',
  messageId: 'f3a1c9d2-5b7e-4c8a-8e1f-9d0b2a4c6e8f',
};

const ACCEPTED = {
  conversationId: EXAMPLE.conversationId,
  turnId: '6f1d2c3b-8a49-4d10-a2f3-0a1b2c3d4e5f',
  status: 'accepted',
};

const RETRYING =
  'It is safe to send the same `session_id` and `message` again. If the first request is in flight, the second joins it; ' +
  'if it failed, the turn resumes; for a minute after the reply, the reply is replayed, unless the visitor said something ' +
  'else. Such a response has `Idempotent-Replayed: true`.';

const event = (name: string, data: unknown): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

const STREAM = {
  description:
    'Sent for `Accept: text/event-stream`. First `accepted {turnId, conversationId}`, then `delta {text, attempt}` for each ' +
    'piece of the reply, then `message` with the chat response or `error` with an error body. A higher attempt starts the ' +
    'text again; only `message` is final. A comment line follows every 15 s. Errors before the turn is accepted are normal ' +
    'JSON errors.',
  example: [
    event('accepted', { turnId: ACCEPTED.turnId, conversationId: ACCEPTED.conversationId }),
    event('delta', { text: 'We are open ', attempt: 1 }),
    event('delta', { text: 'from 9 to 5.', attempt: 1 }),
    event('message', EXAMPLE),
  ].join(''),
};

const send = (
  operation: Pick<ZodOpenApiOperationObject, 'operationId' | 'summary' | 'security' | 'responses' | 'requestParams'>,
): ZodOpenApiOperationObject => ({
  tags: ['Chat'],
  description: `Answers a visitor's message. Messages of one session are answered one at a time, in order.\n\n${RETRYING}`,
  ...operation,
  requestBody: {
    required: true,
    content: {
      'application/json': {
        schema: ChatRequest,
        example: { session_id: 'visitor-42', message: 'What are your opening hours?' },
      },
    },
  },
  responses: {
    '200': ok(ChatResponse, { example: EXAMPLE, replays: true, stream: STREAM }),
    ...problems(
      'payload_too_large',
      'validation_failed',
      'invalid_json',
      'idempotency_key_reused',
      'rate_limited',
      'session_busy',
      'internal_error',
      'reply_timeout',
      'unavailable',
    ),
    ...operation.responses,
  },
});

/** The two ways in (contract §1). */
export const chatPaths: ZodOpenApiPathsObject = {
  '/api/v1/chat': {
    post: send({
      operationId: 'sendMessage',
      summary: 'Send a message, get a reply',
      security: [{ apiKey: [] }],
      requestParams: { header: ASYNC_HEADERS },
      // Erased while its caller was waiting: there is nothing to answer in any more.
      responses: {
        '202': accepted(AcceptedTurn, ACCEPTED),
        ...problems('missing_api_key', 'invalid_api_key', 'not_found'),
      },
    }),
  },
  '/api/v1/turns/{id}': {
    get: {
      operationId: 'getTurn',
      summary: 'Read a turn',
      description:
        'Available for 24 hours after it ended. Poll about once a second until it is `answered` or `failed`.',
      tags: ['Chat'],
      security: [{ apiKey: [] }],
      requestParams: { path: z.object({ id: z.uuid().meta({ description: 'A `turnId`.' }) }) },
      responses: {
        '200': ok(TurnView, { example: { turnId: ACCEPTED.turnId, status: 'answered', ...EXAMPLE } }),
        ...notFoundBehindTheDoor,
        ...problems('missing_api_key', 'invalid_api_key', 'rate_limited', 'internal_error', 'unavailable'),
      },
    },
  },
  '/api/v1/channels/webhook/{assistant_id}': {
    post: send({
      operationId: 'sendChannelMessage',
      summary: 'Send a message through the inbound webhook channel',
      security: [{ verifyToken: [] }, {}],
      requestParams: { header: HEADERS, path: z.object({ assistant_id: z.uuid() }) },
      responses: problems('invalid_verify_token', 'not_found'),
    }),
  },
};
