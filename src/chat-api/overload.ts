import type { RequestHandler, Response } from 'express';
import { unavailable } from '../platform/errors.ts';
import { requestIdOf } from '../platform/http.ts';
import type { Overload } from '../turns/overload.ts';
import type { WaitingTurn } from '../turns/waiting-turns.ts';
import { turnOperations } from './turn-operations.ts';

export const TURN_PATHS = [turnOperations.send.path, turnOperations.sendByChannel.path];

/** Counts a turn as waiting, at most until its response ends. Refuses it if too many came at the same moment. */
export const enterUntilClosed = ({ enter }: Overload, res: Response): WaitingTurn => {
  const waiting = enter();
  if (!waiting) throw unavailable();
  res.on('close', waiting.leave);
  return waiting;
};

/** Reports how long each request with a message took. A request that its caller left is not reported. */
export const measureTurns =
  (report: (status: number, seconds: number) => void): RequestHandler =>
  ({ method }, res, next) => {
    const startedAt = performance.now();
    if (method === 'POST') res.on('finish', () => report(res.statusCode, (performance.now() - startedAt) / 1000));
    next();
  };

/**
 * Answers 503 to a turn in an overload. This comes before all other checks and reads no body, because a refusal must
 * cost far less than a turn.
 */
export const refuseInOverload = ({ refuses }: Overload): RequestHandler => {
  const error = unavailable();
  return ({ method }, res, next) => {
    if (method !== 'POST' || !refuses()) return next();
    const body = JSON.stringify(error.toBody(requestIdOf(res)));
    res.writeHead(error.status, {
      ...error.headers,
      'Content-Type': 'application/json; charset=utf-8',
      'Content-Length': Buffer.byteLength(body),
    });
    res.end(body);
  };
};
