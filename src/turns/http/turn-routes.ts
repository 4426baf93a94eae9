import type { Request, RequestHandler, Response, Router } from 'express';
import * as z from 'zod';
import { type Access, callerOf, createPublicRouter, noteCall, publicOperation } from '../../assistants/access.ts';
import type { RateLimiter } from '../../assistants/rate-limit.ts';
import { IncludeQuery } from '../../assistants/suggested-action.ts';
import { BODY_LIMIT_BYTES } from '../../platform/http/json-body.ts';
import { answerWith, bodyOf, queryOf } from '../../platform/http/operation.ts';
import { freeCallerSlots } from '../../platform/http/request-slots.ts';
import { invalid } from '../../platform/process/errors.ts';
import { quotasOf } from '../allowances.ts';
import type { Gate } from '../gate.ts';
import { knownConversationOf, type StartTurn, type Submit, type TurnRequest } from '../start-turn.ts';
import type { StreamTurn } from '../stream.ts';
import {
  AcceptedTurn,
  ChatRequest,
  ChatResponse,
  IdempotencyKey,
  MESSAGE_MAX,
  type ReadTurn,
  SESSION_ID_MAX,
  TurnView,
} from '../turn.ts';

const HEADERS = z.object({
  'Idempotency-Key': IdempotencyKey.optional().meta({
    description:
      'Decides for 24 h whether this request repeats an earlier one; session and message no longer do. The same key with ' +
      'another session or message gets 422.',
  }),
  'X-Request-Id': z.string().optional().meta({
    description: 'Returned in the response if it has 8–64 letters, digits, `_` or `-`. Any other is replaced.',
  }),
  traceparent: z.string().optional().meta({
    description:
      'W3C Trace Context of the caller. Continued if the service records traces; a malformed one is ignored.',
    example: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  }),
});

const QUERY = z.object({ include: IncludeQuery });

const ASYNC_HEADERS = HEADERS.extend({
  Prefer: z.string().optional().meta({
    description: '`respond-async`: get 202 immediately, and the reply later at `Location`.',
    example: 'respond-async',
  }),
});

export const MERGED = {
  'Merged-Into': z.uuid().optional().meta({
    description:
      'As `mergedInto`: this message was answered together with a later one, whose caller gets the same reply.',
  }),
};

const REPLAYED = {
  'Idempotent-Replayed': z
    .literal('true')
    .optional()
    .meta({ description: 'The response belongs to an earlier or concurrent request with the same message.' }),
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
  'It is safe to send the same `session_id` and `message` again. If the first request is in flight, the second joins it; ' +
  'if it failed, the turn resumes; for a minute after the reply, the reply is replayed, unless the visitor said something ' +
  'else. Such a response has `Idempotent-Replayed: true`.';

const LIMITS =
  `Limits: \`message\` has 1–${MESSAGE_MAX.toLocaleString('en')} characters and \`session_id\` 1–${SESSION_ID_MAX}, counted in Unicode code ` +
  'points. Neither is blank, and `session_id` has no control characters (422). The whole body has at most ' +
  `${BODY_LIMIT_BYTES / 1024} KiB (413). A session has at most 20 unanswered messages (429 \`session_busy\`) and a limit for each minute.`;

const NEVER_ASYNC = 'This channel never answers 202: `Prefer: respond-async` is ignored.';

const event = (name: string, data: unknown): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

export const STREAM = {
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

/** What the chat API and the inbound webhook channel have in common (docs/contract.md, Sending a message). */
const send = {
  method: 'post',
  isMessage: true,
  tag: 'Chat',
  query: QUERY,
  body: ChatRequest,
  bodyExample: { session_id: 'visitor-42', message: 'What are your opening hours?' },
  answer: ChatResponse,
  answerExample: EXAMPLE,
  answerHeaders: { ...REPLAYED, ...MERGED },
  stream: STREAM,
  // 404: the conversation was erased while the caller waited.
  errors: ['idempotency_key_reused', 'session_busy', 'quota_exceeded', 'reply_timeout', 'not_found'],
} as const;

export const chatTurnOperations = {
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
        description: 'Accepted; the reply follows at `Location`. Sent for `Prefer: respond-async`.',
        schema: AcceptedTurn,
        example: ACCEPTED,
        headers: {
          ...REPLAYED,
          Location: z.string().meta({ description: 'Where to read the turn.' }),
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
    summary: 'Read a turn',
    description: 'Available for 24 hours after it ended. Poll about once a second until it is `answered` or `failed`.',
    auth: 'apiKey',
    limiter: 'key',
    params: z.object({ id: z.uuid().meta({ description: 'A `turnId`.' }) }),
    query: QUERY,
    answer: TurnView,
    answerExample: { turnId: ACCEPTED.turnId, status: 'answered', ...EXAMPLE },
    errors: ['not_found'],
  }),
  sendByChannel: publicOperation({
    ...send,
    path: '/api/v1/channels/webhook/:assistant_id',
    id: 'sendChannelMessage',
    summary: 'Send a message through the inbound webhook channel',
    description: [ANSWERS, NEVER_ASYNC, RETRYING, LIMITS].join('\n\n'),
    auth: 'verifyToken',
    limiter: 'channel',
    params: z.object({ assistant_id: z.uuid() }),
    headers: HEADERS,
  }),
  sendBySecretAddress: publicOperation({
    ...send,
    path: '/api/v1/channels/webhook/:assistant_id/:secret',
    id: 'sendSecretChannelMessage',
    summary: 'Send a message through the inbound webhook channel, with a secret in the address in place of the token',
    description: [ANSWERS, NEVER_ASYNC, RETRYING, LIMITS].join('\n\n'),
    auth: 'secretAddress',
    limiter: 'channel',
    params: z.object({ assistant_id: z.uuid(), secret: z.string().meta({ description: 'As it was shown once.' }) }),
    headers: HEADERS,
  }),
};

/** What the body of a request says, whichever protocol it speaks. */
type Said = Pick<TurnRequest, 'sessionId' | 'message' | 'language' | 'withSources'>;

export type GatedTurn = (req: Request, res: Response, said: Said) => TurnRequest;

const idempotencyKeyOf = (header: string | undefined): string | null => {
  if (header === undefined) return null;
  const parsed = IdempotencyKey.safeParse(header);
  if (!parsed.success) throw invalid('Idempotency-Key', 'invalid', 'must be 1–255 visible ASCII characters');
  return parsed.data;
};

/** Makes the turn of a request whose caller is known. It passes the gate with the turns of its assistant. */
export const createGatedTurn =
  ({ gate, rateLimiter }: { gate: Gate; rateLimiter: Pick<RateLimiter, 'forVisitor'> }): GatedTurn =>
  (req, res, said) => {
    const { assistant, channel, keyId, keyTurnsPerMonth } = callerOf(res);
    const { assistantId, sessionLimitPerMinute } = assistant;
    const bytes = 2 * said.message.length;
    noteCall(res, { sessionId: said.sessionId });
    return {
      ...said,
      assistant,
      channel,
      keyId,
      quotas: quotasOf(assistant, keyId === null ? null : { keyId, turnsPerMonth: keyTurnsPerMonth }),
      idempotencyKey: idempotencyKeyOf(req.get('Idempotency-Key')),
      traceparent: req.get('traceparent'),
      pass: async (conversationKey) => {
        freeCallerSlots(res);
        await rateLimiter.forVisitor(conversationKey, sessionLimitPerMinute);
        return gate.pass({ assistantId, keyId, bytes, req, res });
      },
    };
  };

/** True if the caller sent `Prefer: respond-async` (RFC 7240), alone or among other preferences. */
const prefersAsync = (req: Request): boolean =>
  (req.get('Prefer') ?? '').split(',').some((one) => one.split(';')[0]?.trim().toLowerCase() === 'respond-async');

export const wantsStream = (req: Request): boolean =>
  req.accepts(['application/json', 'text/event-stream']) === 'text/event-stream';

const asksForSources = (req: Request): boolean => queryOf(chatTurnOperations.send, req).include === 'sources';

const saidIn = (req: Request) => {
  const { session_id: sessionId, message, language = null } = bodyOf(chatTurnOperations.send, req);
  return { sessionId, message, language, withSources: asksForSources(req) };
};

export const setReplayed = (res: Response, replayed: boolean): void => {
  if (replayed) res.set('Idempotent-Replayed', 'true');
};

export const setMerged = (res: Response, { mergedInto }: ChatResponse): void => {
  if (mergedInto !== undefined) res.set('Merged-Into', mergedInto);
};

type Dependencies = {
  access: Access;
  gatedTurn: GatedTurn;
  startTurn: StartTurn;
  submit: Submit;
  streamTurn: StreamTurn;
  readTurn: ReadTurn;
};

/** Where turns come in, with what is below: the secret address of a channel. */
export const TURN_PATHS = [chatTurnOperations.send.path, chatTurnOperations.sendByChannel.path];

/**
 * The routes of the chat API and the inbound webhook channel (docs/contract.md, Sending a message). The two differ only
 * in authentication, limit and channel name.
 */
export const chatTurnRoutes = (dependencies: Dependencies): Router => {
  const { access, gatedTurn, startTurn, submit, streamTurn, readTurn } = dependencies;
  const turnOf = (req: Request, res: Response): TurnRequest => gatedTurn(req, res, saidIn(req));

  const answer: RequestHandler = async (req, res) => {
    const { response, replayed, delivered } = await submit(turnOf(req, res));
    setReplayed(res, replayed);
    setMerged(res, response);
    noteCall(res, { conversationId: response.conversationId });
    // The delivery is recorded only after the response has been written. Until then, a retry gets the stored reply.
    res.on('finish', delivered);
    answerWith(chatTurnOperations.send, res, response);
  };

  const accept: RequestHandler = async (req, res) => {
    const turn = turnOf(req, res);
    const started = await startTurn({ ...turn, async: true });
    const { turnId, replayed, delivered } = started;
    const conversationId = knownConversationOf(started);
    setReplayed(res, replayed);
    noteCall(res, { conversationId });
    // A new turn is stored as asynchronous, so it counts as delivered when it is answered. A turn that another request
    // created may not be asynchronous, so its delivery is recorded here.
    if (replayed) res.on('finish', delivered);
    const body: AcceptedTurn = { conversationId, turnId, status: 'accepted' };
    // The address keeps the parameter, so a caller who asked for sources gets them there.
    const location = `/api/v1/turns/${turnId}${turn.withSources ? '?include=sources' : ''}`;
    res.status(202).location(location).set('Preference-Applied', 'respond-async').json(body);
  };

  const stream: RequestHandler = (req, res) => streamTurn(turnOf(req, res), req, res);

  /** A stream takes precedence over `respond-async`, because a stream also responds before the reply is ready. */
  const answerOrStream: RequestHandler = (req, res, next) => (wantsStream(req) ? stream : answer)(req, res, next);
  const chat: RequestHandler = (req, res, next) =>
    (prefersAsync(req) && !wantsStream(req) ? accept : answerOrStream)(req, res, next);

  const read: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    const turn = await readTurn(String(req.params.id), { assistantId, withSources: asksForSources(req) });
    answerWith(chatTurnOperations.get, res, turn);
  };

  return createPublicRouter(access, [
    { operation: chatTurnOperations.send, handle: chat },
    { operation: chatTurnOperations.get, handle: read },
    { operation: chatTurnOperations.sendByChannel, handle: answerOrStream },
    { operation: chatTurnOperations.sendBySecretAddress, handle: answerOrStream },
  ]);
};
