import * as z from 'zod';
import { SuggestedAction } from '../assistants/suggested-action.ts';
import { LanguageTag } from '../assistants/knowledge/entry.ts';
import { SignedUser, WebSettings } from '../assistants/settings.ts';
import { EscalateRequest } from '../conversations/http.ts';
import { STREAM } from '../turns/http/turn-routes.ts';
import { STATUSES } from '../conversations/conversation.ts';
import type { Declaration } from '../platform/http/operation.ts';
import { wholeNumber } from '../platform/process/validation.ts';
import { ChatResponse, IdempotencyKey, MessageText } from '../turns/turn.ts';

/** The longest wait of a read. It is shorter than 30 s, after which some proxies end idle requests. */
export const WAIT_MAX_S = 25;

/**
 * Which rate-limit window counts a request. Each kind has a window per network. Messages count in the session's window
 * too.
 */
export type VisitorLimit = 'reads' | 'starts' | 'messages';

/** One operation of the web channel. Only allowed origins may call it; `visitor`: with a visitor token. */
export type WebOperation = Declaration & { auth: 'none' | 'visitor'; limiter: VisitorLimit };

const webOperation = <const One extends WebOperation>(one: One): One => one;

/** A date that is a string in JSON. */
const time = z.date().meta({ override: { type: 'string', format: 'date-time' }, example: '2026-05-04T10:15:30.123Z' });

const seq = (description: string) => wholeNumber(0, Number.MAX_SAFE_INTEGER).optional().meta({ description });

const Settings = WebSettings.omit({ enabled: true, origins: true }).meta({ id: 'WebSettings' });

const WebMessage = z
  .object({
    messageId: z.uuid(),
    turnId: z.uuid().nullable(),
    seq: z.int().nullable().meta({ description: 'Null while the message waits for its reply.' }),
    role: z.enum(['visitor', 'assistant', 'person']),
    content: z.string(),
    suggestedActions: z.array(SuggestedAction).optional(),
    createdAt: time,
  })
  .meta({ id: 'WebMessage' });

const Session = z
  .object({
    conversationId: z.uuid().nullable().meta({ description: 'Null before the first message, and after an erasure.' }),
    status: z.enum(STATUSES).meta({ description: '`escalated`: a person answers.' }),
    opensAt: time.nullable().meta({ description: 'When people answer next; null: they answer now.' }),
    messages: z.array(WebMessage),
    seq: z.int().meta({ description: 'For `after`: all messages up to this number are here or were before.' }),
    hasMore: z.boolean().meta({ description: 'Newer messages follow: read again at once.' }),
    hasEarlier: z.boolean(),
  })
  .meta({ id: 'WebSession' });
export type WebSession = z.input<typeof Session>;

const path = '/api/v1/web/:assistant_id';
const AT = '2026-05-04T10:15:30.123Z';
const IDS = {
  conversationId: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b',
  messageId: 'f3a1c9d2-5b7e-4c8a-8e1f-9d0b2a4c6e8f',
};

const common = { params: z.object({ assistant_id: z.uuid() }) } as const;

export const webOperations = {
  settings: webOperation({
    ...common,
    auth: 'none',
    limiter: 'reads',
    method: 'get',
    path: `${path}/settings`,
    id: 'getWebSettings',
    summary: 'How the widget looks',
    answer: Settings,
    answerExample: {
      title: 'Help',
      greeting: 'How can we help?',
      starters: ['When are you open?'],
      accent: '#2557d6',
      theme: 'auto',
      side: 'end',
    },
  }),
  start: webOperation({
    ...common,
    auth: 'none',
    limiter: 'starts',
    method: 'post',
    path: `${path}/sessions`,
    id: 'startWebSession',
    summary: 'Start a session; it is resumed with its token',
    description:
      'Without `user`, a new visitor. With it, the one conversation of this user of the customer, in every browser. The ' +
      'service makes the session’s id.',
    body: z.object({ user: SignedUser.nullish() }),
    bodyExample: {},
    status: 201,
    answer: z.object({ token: z.string(), expiresAt: time }),
    answerExample: { token: 'eyJzIjoi…', expiresAt: AT },
  }),
  send: webOperation({
    ...common,
    auth: 'visitor',
    limiter: 'messages',
    method: 'post',
    path: `${path}/messages`,
    id: 'sendWebMessage',
    summary: 'Send a message, get a reply',
    description:
      'Repeats, streams and waits like `sendMessage`. An `Idempotency-Key` for each message makes retries safe.',
    headers: z.object({ 'Idempotency-Key': IdempotencyKey.optional() }),
    body: z.object({ message: MessageText, language: LanguageTag.nullish() }),
    bodyExample: { message: 'What are your opening hours?' },
    answer: ChatResponse,
    answerExample: { reply: 'We are open from 9 to 5.', ...IDS },
    answerHeaders: { 'Idempotent-Replayed': z.literal('true').optional() },
    stream: STREAM,
    errors: ['idempotency_key_reused', 'session_busy', 'reply_timeout'],
  }),
  read: webOperation({
    ...common,
    auth: 'visitor',
    limiter: 'reads',
    method: 'get',
    path: `${path}/messages`,
    id: 'readWebMessages',
    summary: 'Read the session’s messages, or wait for something new',
    description:
      'Without parameters: the latest messages. With `after` and `wait`, answers as soon as there is a newer message, the ' +
      'status is another than `status`, or the conversation was erased.',
    query: z.object({
      after: seq('Only messages with a higher `seq`.'),
      before: seq('Only messages with a lower `seq`.'),
      status: z.enum(STATUSES).optional().meta({ description: 'The status that the caller knows.' }),
      wait: wholeNumber(0, WAIT_MAX_S).optional().meta({ description: 'Seconds to wait, with `after`.' }),
    }),
    answer: Session,
    answerExample: {
      conversationId: IDS.conversationId,
      status: 'open',
      opensAt: null,
      messages: [
        {
          messageId: IDS.messageId,
          turnId: '6f1d2c3b-8a49-4d10-a2f3-0a1b2c3d4e5f',
          seq: 1,
          role: 'assistant',
          content: 'We are open from 9 to 5.',
          createdAt: AT,
        },
      ],
      seq: 1,
      hasMore: false,
      hasEarlier: false,
    },
  }),
  escalate: webOperation({
    ...common,
    auth: 'visitor',
    limiter: 'messages',
    method: 'post',
    path: `${path}/escalate`,
    id: 'escalateWebSession',
    summary: 'Ask for a person, by a button of a reply',
    body: EscalateRequest.pick({ reason: true }),
    bodyExample: { reason: 'asked for a person' },
    answer: Session.pick({ conversationId: true, status: true }),
    answerExample: { conversationId: IDS.conversationId, status: 'escalated' },
    errors: ['not_found'],
  }),
};
