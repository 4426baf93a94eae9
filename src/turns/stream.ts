import type { Request, Response } from 'express';
import { noteCall } from '../assistants/access.ts';
import type { ApiError } from '../platform/process/errors.ts';
import { EVENT_STREAM_HEADERS, requestIdOf } from '../platform/http/http.ts';
import { knownConversationOf, type StartTurn, type TurnRequest } from './start-turn.ts';
import { complete, NOTHING_YET, type Progress } from './waiters.ts';
import type { ChatResponse } from './turn.ts';

const COMMENT_EVERY_MS = 15_000;

/** Writes a turn as server-sent events, in the form of one protocol. Nothing is written to a caller who has left. */
export type StreamWriter = {
  accepted: (turn: { turnId: string; conversationId: string }) => void;
  /** Writes what is new in the text that is known so far. */
  progress: (progress: Progress) => void;
  /** Writes the end. Throws if what was sent already cannot become this reply. */
  message: (response: ChatResponse) => void;
  error: (error: ApiError) => void;
};

/** The events of the chat API. For a reply, writes only the text that was not sent before. */
const createChatWriter = (res: Response): StreamWriter => {
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
  return {
    accepted: (turn) => send('accepted', turn),
    progress: sendProgress,
    message: (response) => {
      // The caller of the last message of its group shows the text.
      if (response.mergedInto === undefined) sendProgress(complete(sent, response.reply));
      send('message', response);
    },
    error: (error) => send('error', error.toBody(requestIdOf(res))),
  };
};

type Dependencies = {
  startTurn: StartTurn;
  /** Converts a failure to the error that the caller sees. Logs our own faults. */
  toApiError: (failure: unknown, req: Request, res: Response) => ApiError;
};

/**
 * Sends the reply as server-sent events (docs/contract.md, Streaming). An error before the turn is accepted is thrown
 * and becomes a normal JSON error. A later error becomes an event. If the caller disconnects before the final message
 * was written, the reply does not count as delivered.
 */
export type StreamTurn = (request: TurnRequest, req: Request, res: Response, writer?: StreamWriter) => Promise<void>;

/** Passes on what becomes known of a reply. Until the stream is open, only the newest is kept. */
const createPieces = (res: Response, writer: StreamWriter) => {
  let early: Progress | null = NOTHING_YET;
  return {
    onProgress: (progress: Progress): void => {
      if (early) early = progress;
      // Whoever does not read gets no more pieces, which would wait in memory: the next piece has their text.
      else if (!res.writableNeedDrain) writer.progress(progress);
    },
    open: (): void => {
      if (early) writer.progress(early);
      early = null;
    },
  };
};

export const createStreamTurn = ({ startTurn, toApiError }: Dependencies): StreamTurn => {
  /** Gets the turn only once it has started, because its message would stay in memory while the reply is made. */
  const stream = async (
    starting: ReturnType<StartTurn>,
    open: () => void,
    { req, res, writer }: { req: Request; res: Response; writer: StreamWriter },
  ): Promise<void> => {
    const started = await starting;
    const { turnId, replayed, response, delivered, end } = started;
    const conversationId = knownConversationOf(started);
    noteCall(res, { conversationId });
    if (replayed) res.set('Idempotent-Replayed', 'true');
    res.set(EVENT_STREAM_HEADERS).flushHeaders();
    const comments = setInterval(() => res.write(': the reply is being made\n\n'), COMMENT_EVERY_MS);
    const leave = (): void => {
      clearInterval(comments);
      end();
    };
    res.on('close', leave);
    writer.accepted({ turnId, conversationId });
    open();
    try {
      writer.message(await response());
      res.on('finish', delivered);
    } catch (failure) {
      writer.error(toApiError(failure, req, res));
    } finally {
      // If the caller disconnected before the listener was added, the `close` event does not come again.
      leave();
    }
    res.end();
  };

  return (request, req, res, writer = createChatWriter(res)) => {
    const { onProgress, open } = createPieces(res, writer);
    return stream(startTurn({ ...request, onProgress }), open, { req, res, writer });
  };
};
