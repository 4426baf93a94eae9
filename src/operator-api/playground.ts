import * as z from 'zod';
import { type RateLimiter, rateLimitHeaders } from '../assistants/rate-limit.ts';
import type { AssistantStore } from '../assistants/store.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import { STREAM } from '../chat-api/turn-operations.ts';
import { type StreamTurn, wantsStream } from '../turns/stream.ts';
import type { Submit } from '../turns/start-turn.ts';
import { ChatRequest, ChatResponse, SessionId } from '../turns/turn.ts';
import { type Handled, handled, operation } from './operation.ts';

const SESSION_MAX = 200;

/**
 * The session id in the playground. It contains the operator's id, so that two operators who choose the same id get
 * different sessions.
 */
const ownSession = (operatorId: string, sessionId: string): string => `${operatorId}:${sessionId}`;

export const isPlaygroundOf = (
  operatorId: string,
  { channel, sessionId }: Pick<StoredConversation, 'channel' | 'sessionId'>,
): boolean => channel === 'playground' && sessionId.startsWith(ownSession(operatorId, ''));

export const playgroundOperations = {
  turn: operation({
    method: 'post',
    path: '/assistants/:id/playground',
    lasts: true,
    id: 'playgroundTurn',
    tag: 'Operators',
    summary: 'Try the assistant; no events are sent',
    audience: 'operators',
    resource: 'assistant',
    body: z.object({
      sessionId: SessionId.refine((value) => value.length <= SESSION_MAX, `must be at most ${SESSION_MAX} characters`),
      message: ChatRequest.shape.message,
      language: ChatRequest.shape.language,
    }),
    answer: ChatResponse,
    stream: STREAM,
    limited: true,
    errors: ['not_found', 'rate_limited', 'session_busy', 'reply_timeout'],
  }),
};

type Dependencies = {
  assistants: Pick<AssistantStore, 'getAssistant'>;
  submit: Submit;
  streamTurn: StreamTurn;
  rateLimiter: Pick<RateLimiter, 'forPlayground'>;
};

/** Playground operations add no line to the audit trail, because only the operator sees the conversation. */
export const playgroundRoutes = ({ assistants, submit, streamTurn, rateLimiter }: Dependencies): Handled[] => [
  handled(playgroundOperations.turn, async ({ params: { id = '' }, body, operator, req, res }) => {
    res.set(rateLimitHeaders(await rateLimiter.forPlayground(operator.operatorId)));
    const { sessionId, message, language = null } = body;
    const turn = {
      assistant: await assistants.getAssistant(id),
      channel: 'playground' as const,
      sessionId: ownSession(operator.operatorId, sessionId),
      message,
      language,
      idempotencyKey: null,
    };
    if (wantsStream(req)) {
      await streamTurn(turn, req, res);
      return null;
    }
    const { response, delivered } = await submit(turn);
    res.on('finish', delivered);
    return response;
  }),
];
