import { existsSync, readdirSync, readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from 'express';
import helmet from 'helmet';
import * as z from 'zod';
import { failureBeforeWriting, isMongoUnavailable } from '../mongo/failures.ts';
import { ApiError, type ErrorBody, MAX_DETAILS, notFound } from '../process/errors.ts';
import { logHint } from '../process/hints.ts';
import { isUuid, newId } from '../process/ids.ts';
import type { Logger } from '../process/logger.ts';
import { detailOf } from '../process/validation.ts';

const CODINGS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const;

/** For pages of any site: scripts that a page imports need both headers. */
const forAnySite: RequestHandler = (_req, res, next) => {
  res.setHeader('Access-Control-Allow-Origin', '*');
  res.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
  next();
};

type Source = string | ((req: IncomingMessage, res: ServerResponse) => string);
type Allowed = Record<'styleSrc' | 'baseUri' | 'formAction', Source[]> &
  Partial<Record<'scriptSrc' | 'imgSrc' | 'fontSrc' | 'connectSrc', Source[]>> & {
    /**
     * The policies that may create markup and addresses of scripts. Without this, any script may create them from any
     * text.
     */
    trustedTypes?: string[];
  };

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
export const pageHeaders = (tls: boolean, { scriptSrc, styleSrc, trustedTypes, ...others }: Allowed): RequestHandler =>
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
        ...(trustedTypes && { requireTrustedTypesFor: ["'script'"], trustedTypes }),
      },
    },
  });

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
 * Sends bytes that all callers share, as fast as the caller reads them. A TLS connection copies what is written to it,
 * so otherwise each caller who does not read would hold a copy of all bytes.
 */
export const sendBytes = async (res: ServerResponse, bytes: Buffer): Promise<void> => {
  res.setHeader('Content-Length', bytes.length);
  if (res.req.method === 'HEAD') return void res.end();
  await pipeline(piecesOf(bytes), res).catch(() => undefined); // the caller has left
};

/** A file with a hash of its content in its name never changes. A page refers to the others by fixed names. */
const HASHED = /-[\w-]{8}\.\w+$/;
const YEAR = 'public, max-age=31536000, immutable';
const HOUR = 'public, max-age=3600';

const readAll = (folder: string): Map<string, Buffer> =>
  new Map(existsSync(folder) ? readdirSync(folder).map((name) => [name, readFileSync(join(folder, name))]) : []);

/**
 * Serves the files of a build, a few MB, which are read once: a file that is read for each caller costs more than 64 KiB
 * for each who does not read it. Files with a content hash in their names are cached for a year, the others for an hour.
 */
export const builtFiles = (folder: string, { for: readers }: { for: 'this site' | 'any site' }): Router => {
  const files = readAll(folder);

  const send: RequestHandler = (req, res, next) => {
    const name = req.path.slice(1);
    const plain = files.get(name);
    if (!plain || (req.method !== 'GET' && req.method !== 'HEAD')) return next();
    const isAccepted = ([coding, ending]: (typeof CODINGS)[number]): boolean =>
      files.has(name + ending) && req.acceptsEncodings(coding) === coding;
    const [coding, ending] = CODINGS.find(isAccepted) ?? [null, ''];
    if (coding) res.setHeader('Content-Encoding', coding);
    res.setHeader('Cache-Control', HASHED.test(name) ? YEAR : HOUR);
    res.vary('Accept-Encoding').type(extname(name));
    return sendBytes(res, files.get(name + ending) ?? plain);
  };

  const router = Router({ caseSensitive: true });
  router.use(helmet.xContentTypeOptions(), readers === 'any site' ? forAnySite : helmet.crossOriginResourcePolicy());
  router.use(send);
  return router;
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

/** What a caller prefers. Libraries take milliseconds to read long lists. */
const PREFERENCES = ['accept', 'accept-encoding', 'accept-language', 'prefer'];
const PREFERENCE_MAX = 1_000;

/** Ignores preferences that are too long to be honest. */
export const ignoreLongPreferences: RequestHandler = (req, _res, next) => {
  for (const name of PREFERENCES) if (String(req.headers[name] ?? '').length > PREFERENCE_MAX) delete req.headers[name];
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
  const told = onlyRead ? failureBeforeWriting(failure) : failure;
  return told instanceof ApiError ? told : new ApiError('internal_error', { cause: failure });
};

/**
 * The path of a request with its ids. Any other parameter, such as a tag, is a person's text and is replaced by its
 * name.
 */
const pathWithoutTexts = ({ path, route }: Request): string | undefined => {
  if (typeof (route as { path?: unknown } | undefined)?.path !== 'string') return undefined;
  const [given, named] = [path.replace(/\/$/, '').split('/'), (route as { path: string }).path.split('/')];
  const before = given.length - named.length; // a router's own part
  const isId = (part: string): boolean => part.split(':').every(isUuid);
  return given
    .map((part, at) => {
      const name = named[at - before];
      return name?.startsWith(':') && !isId(part) ? name : part;
    })
    .join('/');
};

/** Converts a failure to the error that the caller may see. Our own faults are logged here and nowhere else. */
export const createToApiError =
  (logger: Logger) =>
  (failure: unknown, req: Request, res: Response): ApiError => {
    const error = toApiError(failure, req);
    if (error.code === 'internal_error') {
      const level = isMongoUnavailable(failure) ? 'warn' : 'error';
      const path = pathWithoutTexts(req);
      logger[level]({ err: error.cause ?? failure, requestId: requestIdOf(res), path }, 'request failed');
    }
    if (error.code === 'unavailable') logHint(logger, error.cause);
    res.locals.errorCode = error.code;
    return error;
  };

type ErrorShape = (error: ApiError, requestId: string) => ErrorBody;

/** Gives all errors of a path the shape of another protocol than the chat API's. */
export const withErrorShape =
  (shape: ErrorShape): RequestHandler =>
  (_req, res, next) => {
    res.locals.errorShape = shape;
    next();
  };

/** The body of an error response, in the shape of the protocol of this path. */
export const errorBodyOf = (error: ApiError, res: Response): ErrorBody => {
  const shape = res.locals.errorShape as ErrorShape | undefined;
  return shape ? shape(error, requestIdOf(res)) : error.toBody(requestIdOf(res));
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
    res.status(error.status).set(error.headers).json(errorBodyOf(error, res));
  };
};

/**
 * Call this once the caller of a request is known or refused. From then on, the request no longer counts as one of an
 * unknown caller (src/turns/gate.ts), however long its answer or its body takes.
 */
export const noStranger = (res: Response): void => (res.locals.noStranger as (() => void) | undefined)?.();
