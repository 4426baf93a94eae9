import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIPv6 } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import helmet from 'helmet';
import * as z from 'zod';
import { ApiError, MAX_DETAILS, notFound, unavailable } from '../process/errors.ts';
import { logHint } from '../process/hints.ts';
import { newId } from '../process/ids.ts';
import type { Logger } from '../process/logger.ts';
import { isMongoUnavailable } from '../mongo/failures.ts';
import { detailOf } from '../process/validation.ts';

type Source = string | ((req: IncomingMessage, res: ServerResponse) => string);
type Allowed = Record<'styleSrc' | 'baseUri' | 'formAction', Source[]> &
  Partial<Record<'scriptSrc' | 'imgSrc' | 'fontSrc' | 'connectSrc', Source[]>>;

/** The allowed sources for operators' pages. These pages load only from this service. */
export const OWN_ORIGIN = {
  scriptSrc: ["'self'"],
  imgSrc: ["'self'", 'data:'],
  fontSrc: ["'self'"],
  connectSrc: ["'self'"],
};

/**
 * Sets the headers of a page. The policy forbids every source that is not listed. HSTS is sent only with TLS: over
 * plain HTTP, this header would send a browser to an https address that does not exist.
 */
export const pageHeaders = (tls: boolean, { scriptSrc, styleSrc, ...others }: Allowed): RequestHandler =>
  helmet({
    strictTransportSecurity: tls,
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        ...(scriptSrc && { scriptSrc }),
        styleSrc,
        ...others,
        frameAncestors: ["'none'"],
      },
    },
  });

const groupsOf = (part: string): string[] => (part === '' ? [] : part.split(':'));

/** The network of one subscriber. An IPv6 subscriber has a whole /64 and could use a new address for every try. */
export const networkOf = (ip: string): string => {
  const address = ip.replace(/^::ffff:(?=\d+\.)/i, '').split('%', 1)[0] ?? '';
  if (!isIPv6(address)) return address;
  // The URL parser converts all spellings of an address to the same text.
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const [before, after] = [groupsOf(head), groupsOf(tail ?? '')];
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => '0');
  return `${[...before, ...zeros, ...after].slice(0, 4).join(':')}::/64`;
};

/** The headers of a response that consists of server-sent events. */
export const EVENT_STREAM_HEADERS = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  'Cache-Control': 'no-cache, no-transform',
  // Without this header, nginx and similar proxies buffer the events until the response ends.
  'X-Accel-Buffering': 'no',
};

const PIECE_BYTES = 64 * 1024;

function* piecesOf(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}

/**
 * Sends bytes that all callers share, as fast as the caller reads them. A TLS connection copies what is written to it, so
 * callers who do not read would otherwise hold a copy of the whole each.
 */
export const sendBytes = async (res: ServerResponse, bytes: Buffer): Promise<void> => {
  res.setHeader('Content-Length', bytes.length);
  if (res.req.method === 'HEAD') return void res.end();
  await pipeline(piecesOf(bytes), res).catch(() => undefined); // the caller has left
};

const REQUEST_ID = /^[\w-]{8,64}$/;

export const requestIdOf = (res: Response): string => res.locals.requestId as string;

/**
 * Gives every response a request id: the caller's id if it is well-formed, otherwise a new id (docs/contract.md,
 * Request).
 */
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

/**
 * Turns any error into an error that a caller may see. Express itself throws for a malformed path or an aborted body.
 */
const toApiError = (failure: unknown, { method }: Request): ApiError => {
  if (failure instanceof ApiError) return failure;
  if (failure instanceof z.ZodError)
    return new ApiError('validation_failed', { details: failure.issues.slice(0, MAX_DETAILS).map(detailOf) });
  if (failure instanceof URIError || (failure as { status?: number }).status === 400) return notFound();
  // A lost connection to MongoDB becomes 503 here only for requests that do not write. Requests that write use
  // `orUnavailable` for their reads. A lost write must not become 503, because its outcome is unknown.
  const onlyRead = method === 'GET' || method === 'HEAD';
  if (onlyRead && isMongoUnavailable(failure)) return unavailable(failure);
  return new ApiError('internal_error', { cause: failure });
};

/** Converts a failure to the error that the caller may see. Our own faults are logged here and nowhere else. */
export const createToApiError =
  (logger: Logger) =>
  (failure: unknown, req: Request, res: Response): ApiError => {
    const error = toApiError(failure, req);
    if (error.code === 'internal_error') {
      const level = isMongoUnavailable(failure) ? 'warn' : 'error';
      logger[level]({ err: error.cause ?? failure, requestId: requestIdOf(res), path: req.path }, 'request failed');
    }
    if (error.code === 'unavailable') logHint(logger, error.cause);
    res.locals.errorCode = error.code;
    return error;
  };

/** The only place where an error becomes a response. */
export const errorHandler = (logger: Logger): ErrorRequestHandler => {
  const describe = createToApiError(logger);
  return (failure: unknown, req: Request, res: Response, _next) => {
    if (res.writableEnded) return; // a timeout has already answered
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
