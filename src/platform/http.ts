import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import * as z from 'zod';
import { newId } from './ids.ts';
import { ApiError, MAX_DETAILS, notFound, unavailable } from './errors.ts';
import type { Logger } from './logger.ts';
import { isConnectionFailure } from './mongo.ts';
import { detailOf } from './validation.ts';

const REQUEST_ID = /^[\w-]{8,64}$/;

export const requestIdOf = (res: Response): string => res.locals.requestId as string;

/** A caller's own request id if it is well-formed, else a new one; on every response (docs/contract.md, Request). */
export const requestId: RequestHandler = (req, res, next) => {
  const given = req.headers['x-request-id'];
  const id = typeof given === 'string' && REQUEST_ID.test(given) ? given : newId();
  res.locals.requestId = id;
  res.setHeader('X-Request-Id', id);
  next();
};

export const methodNotAllowed =
  (...allowed: string[]): RequestHandler =>
  () => {
    throw new ApiError('method_not_allowed', { headers: { Allow: allowed.join(', ') } });
  };

export const notFoundHandler: RequestHandler = () => {
  throw notFound();
};

/** An error of Express' own (a malformed path, an aborted body) or ours, as what the caller may know of it. */
const toApiError = (failure: unknown, { method }: Request): ApiError => {
  if (failure instanceof ApiError) return failure;
  if (failure instanceof z.ZodError)
    return new ApiError('validation_failed', { details: failure.issues.slice(0, MAX_DETAILS).map(detailOf) });
  if (failure instanceof URIError || (failure as { status?: number }).status === 400) return notFound();
  // What reads before it writes says so itself (`beforeWriting`); a lost write is an unknown outcome, never "not accepted".
  const onlyRead = method === 'GET' || method === 'HEAD';
  if (onlyRead && isConnectionFailure(failure)) return unavailable(failure);
  return new ApiError('internal_error', { cause: failure });
};

/** What the caller may know of a failure; the only place where our own faults are logged. */
export const createToApiError =
  (logger: Logger) =>
  (failure: unknown, req: Request, res: Response): ApiError => {
    const error = toApiError(failure, req);
    if (error.code === 'internal_error') {
      const level = isConnectionFailure(failure) ? 'warn' : 'error';
      logger[level]({ err: error.cause ?? failure, requestId: requestIdOf(res), path: req.path }, 'request failed');
    }
    res.locals.errorCode = error.code;
    return error;
  };

/** The one place where an error becomes an answer. */
export const errorHandler = (logger: Logger): ErrorRequestHandler => {
  const describe = createToApiError(logger);
  return (failure: unknown, req: Request, res: Response, _next) => {
    if (res.writableEnded) return; // answered already, since it took too long
    const error = describe(failure, req, res);
    if (res.headersSent) {
      res.destroy();
      return;
    }
    res
      .status(error.status)
      .set(error.headers)
      .json(error.toBody(requestIdOf(res)));
  };
};
