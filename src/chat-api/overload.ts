import type { RequestHandler, Response } from 'express';
import { unavailable } from '../platform/errors.ts';
import { requestIdOf } from '../platform/http.ts';
import type { Overload, TurnInFlight } from '../turns/overload.ts';
import { turnOperations } from './turn-operations.ts';

export const turnInFlightOf = (res: Response): TurnInFlight => res.locals.turnInFlight as TurnInFlight;

export const TURN_PATHS = [turnOperations.send.path, turnOperations.sendByChannel.path];

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
export const refuseInOverload = ({ refuses, enter }: Overload): RequestHandler => {
  const error = unavailable();
  return ({ method }, res, next) => {
    if (method !== 'POST') return next();
    if (!refuses()) {
      const inFlight = enter();
      res.locals.turnInFlight = inFlight;
      res.on('close', inFlight.leave);
      return next();
    }
    const body = JSON.stringify(error.toBody(requestIdOf(res)));
    res.writeHead(error.status, {
      ...error.headers,
      'Content-Type': 'application/json; charset=utf-8',
      'Content-Length': Buffer.byteLength(body),
    });
    res.end(body);
  };
};
