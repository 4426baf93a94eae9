import type { Request, RequestHandler, Response, Router } from 'express';
import { type Access, callerOf, noteCall } from '../assistants/access.ts';
import { createPublicRouter } from '../assistants/operation.ts';
import { invalid } from '../process/errors.ts';
import { answerWith, bodyOf, queryOf } from '../http/operation.ts';
import { knownConversationOf, type StartTurn, type Submit, type TurnRequest } from '../turns/start-turn.ts';
import type { Gate } from '../turns/gate.ts';
import { chatTurnOperations } from './turn-operations.ts';
import { type StreamTurn, wantsStream } from '../turns/stream.ts';
import { IdempotencyKey } from '../turns/turn.ts';
import type { AcceptedTurn, ReadTurn } from '../turns/turn-view.ts';

const idempotencyKeyOf = (header: string | undefined): string | null => {
  if (header === undefined) return null;
  const parsed = IdempotencyKey.safeParse(header);
  if (!parsed.success) throw invalid('Idempotency-Key', 'invalid', 'must be 1–255 visible ASCII characters');
  return parsed.data;
};

/** True if the caller sent `Prefer: respond-async` (RFC 7240), alone or among other preferences. */
const prefersAsync = (req: Request): boolean =>
  (req.get('Prefer') ?? '').split(',').some((one) => one.split(';')[0]?.trim().toLowerCase() === 'respond-async');

const asksForSources = (req: Request): boolean => queryOf(chatTurnOperations.send, req).include === 'sources';

const turnOf = (req: Request, res: Response): Omit<TurnRequest, 'pass'> => {
  const { assistant, channel, keyId } = callerOf(res);
  const { session_id, message, language } = bodyOf(chatTurnOperations.send, req);
  const withSources = asksForSources(req);
  const idempotencyKey = idempotencyKeyOf(req.get('Idempotency-Key'));
  noteCall(res, { sessionId: session_id });
  return {
    assistant,
    channel,
    keyId,
    sessionId: session_id,
    message,
    language: language ?? null,
    idempotencyKey,
    withSources,
  };
};

const setReplayed = (res: Response, replayed: boolean): void => {
  if (replayed) res.set('Idempotent-Replayed', 'true');
};

type Dependencies = {
  access: Access;
  gate: Gate;
  startTurn: StartTurn;
  submit: Submit;
  streamTurn: StreamTurn;
  readTurn: ReadTurn;
};

export const TURN_PATHS = [chatTurnOperations.send.path, chatTurnOperations.sendByChannel.path];

/**
 * The routes of the chat API and the inbound webhook channel (docs/contract.md, Sending a message). The two differ only
 * in authentication, limit and channel name.
 */
export const chatTurnRoutes = ({ access, gate, startTurn, submit, streamTurn, readTurn }: Dependencies): Router => {
  const gatedTurnOf = (req: Request, res: Response): TurnRequest => {
    const turn = turnOf(req, res);
    const { assistant, keyId } = callerOf(res);
    const bytes = 2 * turn.message.length;
    return { ...turn, pass: () => gate.pass({ assistantId: assistant.assistantId, keyId, bytes, req, res }) };
  };

  const answer: RequestHandler = async (req, res) => {
    const { response, replayed, delivered } = await submit(gatedTurnOf(req, res));
    setReplayed(res, replayed);
    noteCall(res, { conversationId: response.conversationId });
    // The delivery is recorded only after the response has been written. Until then, a retry gets the stored reply.
    res.on('finish', delivered);
    answerWith(chatTurnOperations.send, res, response);
  };

  const accept: RequestHandler = async (req, res) => {
    const turn = gatedTurnOf(req, res);
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

  const stream: RequestHandler = (req, res) => streamTurn(gatedTurnOf(req, res), req, res);

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
  ]);
};
