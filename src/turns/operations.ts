import * as z from 'zod';
import { publicOperation } from '../assistants/operation.ts';
import { BODY_LIMIT_BYTES } from '../platform/json-body.ts';
import { ChatRequest, ChatResponse, IdempotencyKey, MESSAGE_MAX, SESSION_ID_MAX } from './turn.ts';
import { AcceptedTurn, TurnView } from './turn-view.ts';

const HEADERS = z.object({
  'Idempotency-Key': IdempotencyKey.optional().meta({
    description:
      'Decides for 24 h, in place of session and message, whether this request repeats an earlier one. With another ' +
      'session or message under the same key: 422.',
  }),
  'X-Request-Id': z
    .string()
    .regex(/^[\w-]{8,64}$/)
    .optional()
    .meta({ description: 'Comes back in the response; one that is not well-formed is replaced.' }),
});

const ASYNC_HEADERS = HEADERS.extend({
  Prefer: z.string().optional().meta({
    description: '`respond-async`: 202 at once, and the answer under `Location`.',
    example: 'respond-async',
  }),
});

const REPLAYED = {
  'Idempotent-Replayed': z
    .literal('true')
    .optional()
    .meta({ description: 'The answer of an earlier or concurrent request with the same message.' }),
};

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

const ANSWERS = "Answers a visitor's message. Messages of one session are answered one at a time, in order.";

const RETRYING =
  'Sending the same `session_id` and `message` again is safe: while the first is in flight it is joined, after a failure ' +
  'resumed, and for a minute after its answer replayed, as long as nothing else was said. Such an answer carries ' +
  '`Idempotent-Replayed: true`.';

const LIMITS =
  `Limits: \`message\` 1–${MESSAGE_MAX.toLocaleString('en')} characters, \`session_id\` 1–${SESSION_ID_MAX} characters without ` +
  'control characters, neither blank, both counted in Unicode code points (422); the whole body ' +
  `${BODY_LIMIT_BYTES / 1024} KiB (413); 20 unanswered messages a session (429 \`session_busy\`).`;

const NEVER_ASYNC = 'This way in has no 202: `Prefer: respond-async` is ignored.';

const event = (name: string, data: unknown): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

const STREAM = {
  description:
    'For `Accept: text/event-stream`. `accepted {turnId, conversationId}`, then `delta {text, attempt}` while the reply is ' +
    'being made, then `message` with the chat response, or `error` with an error body. A delta of a higher attempt starts ' +
    'from nothing; `message` is what counts. A comment line every 15 s. What is wrong before the turn is accepted is a ' +
    'normal JSON error.',
  example: [
    event('accepted', { turnId: ACCEPTED.turnId, conversationId: ACCEPTED.conversationId }),
    event('delta', { text: 'We are open ', attempt: 1 }),
    event('delta', { text: 'from 9 to 5.', attempt: 1 }),
    event('message', EXAMPLE),
  ].join(''),
};

/**
 * What both ways in have in common; they differ by who may call, the limit, and `Prefer`
 * (docs/contract.md, Health and metrics).
 */
const send = {
  method: 'post',
  tag: 'Chat',
  body: ChatRequest,
  bodyExample: { session_id: 'visitor-42', message: 'What are your opening hours?' },
  answer: ChatResponse,
  answerExample: EXAMPLE,
  answerHeaders: REPLAYED,
  stream: STREAM,
  // Not found: erased while its caller was waiting, so there is nothing left to answer in.
  errors: ['idempotency_key_reused', 'session_busy', 'reply_timeout', 'not_found'],
} as const;

export const turnOperations = {
  send: publicOperation({
    ...send,
    path: '/api/v1/chat',
    id: 'sendMessage',
    summary: 'Send a message, get a reply',
    description: [ANSWERS, RETRYING, LIMITS].join('\n\n'),
    auth: 'apiKey',
    limiter: 'key',
    headers: ASYNC_HEADERS,
    otherAnswers: {
      202: {
        description: 'Accepted: nobody has to wait. Sent for `Prefer: respond-async`.',
        schema: AcceptedTurn,
        example: ACCEPTED,
        headers: {
          ...REPLAYED,
          Location: z.string().meta({ description: 'Where the turn can be looked at.' }),
          'Preference-Applied': z.literal('respond-async'),
        },
      },
    },
  }),
  get: publicOperation({
    method: 'get',
    path: '/api/v1/turns/:id',
    id: 'getTurn',
    tag: 'Chat',
    summary: 'Look at a turn',
    description: 'For 24 hours after it ended. Ask every second or so until it is `answered` or `failed`.',
    auth: 'apiKey',
    limiter: 'key',
    params: z.object({ id: z.uuid().meta({ description: 'A `turnId`.' }) }),
    answer: TurnView,
    answerExample: { turnId: ACCEPTED.turnId, status: 'answered', ...EXAMPLE },
    errors: ['not_found'],
  }),
  sendByChannel: publicOperation({
    ...send,
    path: '/api/v1/channels/webhook/:assistant_id',
    id: 'sendChannelMessage',
    summary: 'The same for tools that can only POST JSON',
    description: [ANSWERS, NEVER_ASYNC, RETRYING, LIMITS].join('\n\n'),
    auth: 'verifyToken',
    limiter: 'channel',
    params: z.object({ assistant_id: z.uuid() }),
    headers: HEADERS,
  }),
};
