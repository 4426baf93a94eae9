import type { Request, Response } from 'express';
import { noteCall } from '../assistants/access.ts';
import type { ApiError } from '../platform/errors.ts';
import { requestIdOf } from '../platform/http.ts';
import { type StartTurn, knownConversationOf } from './start-turn.ts';
import type { TurnRequest } from './prepare-turn.ts';
import { complete, NOTHING_YET, type Progress } from './progress.ts';

const COMMENT_EVERY_MS = 15_000;

const HEADERS = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  'Cache-Control': 'no-cache, no-transform',
  // Proxies of the nginx kind would keep the events back until the answer is whole.
  'X-Accel-Buffering': 'no',
};

export const wantsStream = (req: Request): boolean =>
  req.accepts(['application/json', 'text/event-stream']) === 'text/event-stream';

/** Writes events, and of a reply in the making what has not been said yet. */
const createWriter = (res: Response) => {
  let sent: Progress = NOTHING_YET;

  const send = (event: string, data: unknown): void => {
    if (!res.destroyed) res.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  const sendProgress = (progress: Progress): void => {
    const known = progress.attempt === sent.attempt ? sent.text.length : 0;
    const text = progress.text.slice(known);
    if (text !== '') send('delta', { text, attempt: progress.attempt });
    sent = progress;
  };
  return { send, sendProgress, sendRest: (reply: string): void => sendProgress(complete(sent, reply)) };
};

type Dependencies = {
  startTurn: StartTurn;
  /** An error as the caller may know it; our own faults are logged. */
  toApiError: (failure: unknown, req: Request, res: Response) => ApiError;
};

/**
 * The reply as server-sent events (docs/contract.md, Streaming). What is wrong before the turn is accepted is thrown, for a
 * normal JSON error; from then on it is an event. Who leaves before the message was written counts as not having got it.
 */
export const createStreamTurn =
  ({ startTurn, toApiError }: Dependencies) =>
  async (request: TurnRequest, req: Request, res: Response): Promise<void> => {
    const writer = createWriter(res);
    let early: Progress | null = NOTHING_YET;
    const onProgress = (progress: Progress): void => {
      if (early) early = progress;
      else writer.sendProgress(progress);
    };
    const started = await startTurn({ ...request, onProgress });
    const { turnId, replayed, response, delivered, end } = started;
    const conversationId = knownConversationOf(started);
    noteCall(res, { conversationId });
    if (replayed) res.set('Idempotent-Replayed', 'true');
    res.set(HEADERS).flushHeaders();
    const comments = setInterval(() => res.write(': the reply is being made\n\n'), COMMENT_EVERY_MS);
    const leave = (): void => {
      clearInterval(comments);
      end();
    };
    res.on('close', leave);
    writer.send('accepted', { turnId, conversationId });
    writer.sendProgress(early);
    early = null;
    try {
      const message = await response();
      writer.sendRest(message.reply);
      writer.send('message', message);
      res.on('finish', delivered);
    } catch (failure) {
      writer.send('error', toApiError(failure, req, res).toBody(requestIdOf(res)));
    } finally {
      // Who left while the turn was accepted will not be heard closing.
      leave();
    }
    res.end();
  };

export type StreamTurn = ReturnType<typeof createStreamTurn>;
