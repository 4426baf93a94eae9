import type { RequestHandler, Response } from 'express';
import { unavailable } from '../platform/errors.ts';
import { requestIdOf } from '../platform/http.ts';
import type { Overload, TurnInFlight } from '../turns/overload.ts';
import { turnOperations } from './turn-operations.ts';

export const TURN_PATHS = [turnOperations.send.path, turnOperations.sendByChannel.path];

/** Counts a turn as in flight, at most until its response ends. */
export const enterUntilClosed = ({ enter }: Overload, res: Response): TurnInFlight => {
  const inFlight = enter();
  res.on('close', inFlight.leave);
  return inFlight;
};

/**
 * A request counts while it is checked, because the checks wait for Redis. It does not count while its body arrives,
 * because senders may be slow, and it counts again as a turn.
 */
export const untilBody =
  (check: RequestHandler): RequestHandler =>
  (req, res, next) =>
    check(req, res, (failure?: unknown) => {
      (res.locals.leaveChecks as TurnInFlight['leave'] | undefined)?.();
      next(failure);
    });

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
export const refuseInOverload = (overload: Overload): RequestHandler => {
  const { refuses } = overload;
  const error = unavailable();
  return ({ method }, res, next) => {
    if (method !== 'POST') return next();
    if (!refuses()) {
      res.locals.leaveChecks = enterUntilClosed(overload, res).leave;
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
