import type { Request, RequestHandler, Response, Router } from 'express';
import type * as z from 'zod';
import type { ErrorCode } from '../process/errors.ts';
import { validate } from '../process/validation.ts';
import { methodNotAllowed } from './http.ts';
import { isSmallBody, jsonBody, type TakeTurn, toJson } from './json-body.ts';
import { freeCallerSlots, takeRoomForBody, takeRoomForUpload } from './request-slots.ts';

/** An additional response. With `code`, the response is an error and has the headers of that error. */
type OtherAnswer = {
  description: string;
  schema: z.ZodType;
  example?: unknown;
  headers?: Record<string, z.ZodType>;
  code?: ErrorCode;
};

/**
 * One operation, declared once. Its route, its entry in the OpenAPI document and the test client are derived from this
 * declaration. Each API adds fields for its authentication: see `assistants/access.ts` and
 * `operators/operation.ts`.
 */
export type Declaration = {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** The path in Express syntax. */
  path: string;
  id: string;
  summary: string;
  description?: string;
  /** Describes the path's parameters. If omitted, each parameter is a string. */
  params?: z.ZodObject;
  headers?: z.ZodObject;
  query?: z.ZodObject;
  body?: z.ZodType;
  bodyExample?: unknown;
  bodyLimitBytes?: number;
  /** The body has a message. It waits for no place that others have, because its handler drops it at once. */
  bodyIsMessage?: true;
  /** The body is a file. The handler reads it with `uploadedBytes`. `isHeld`: and keeps all of it in memory. */
  upload?: { description: string; isHeld?: true };
  /** If true, a missing body counts as `{}`. */
  bodyOptional?: boolean;
  /** The schema of the response's body. If omitted, the response is 204 without a body. */
  answer?: z.ZodType;
  answerExample?: unknown;
  answerDescription?: string;
  answerHeaders?: Record<string, z.ZodType>;
  contentType?: string;
  /** Describes the server-sent events, if a caller can also get the answer in this form. */
  stream?: { description: string; example: string };
  status?: 200 | 201 | 202;
  otherAnswers?: Record<number, OtherAnswer>;
  /** Errors that do not follow from the other fields. */
  errors?: readonly ErrorCode[];
};

export type QueryOf<One> = One extends { query: infer Schema extends z.ZodType } ? z.output<Schema> : undefined;
export type BodyOf<One> = One extends { body: infer Schema extends z.ZodType } ? z.output<Schema> : undefined;

/**
 * Validates the query. The handler calls this function itself, because some handlers must answer 404 before they read
 * the query.
 */
export const queryOf = <One extends { query: z.ZodObject }>(one: One, req: Request) =>
  validate<One['query']>(one.query, req.query);

/**
 * Validates the body and drops it, because the request may wait for seconds, and unknown fields would stay in memory.
 * So it can be read only once.
 */
export const bodyOf = <One extends { body: z.ZodType }>(one: One, req: Request) => {
  const body: unknown = req.body;
  req.body = undefined;
  return validate<One['body']>(one.body, body);
};

/** Sends the response that the operation declares. The type checker refuses any other value. */
export const answerWith = <One extends { answer: z.ZodType; status?: number }>(
  one: One,
  res: Response,
  value: z.input<One['answer']>,
): void => {
  if (one.status !== undefined) res.status(one.status);
  res.json(value);
};

/** A body that may be large is not read before it has its place. */
const room: RequestHandler = async (req, res, next) => {
  if (!isSmallBody(req)) await takeRoomForBody(req, res);
  next();
};

const roomForUpload: RequestHandler = async (req, res, next) => {
  await takeRoomForUpload(req, res);
  freeCallerSlots(res); // a file may take minutes, and has its own share
  next();
};

/** An answer with fewer bytes is encoded in one step. */
const LARGE_BYTES = 100_000;

/**
 * Sends the response that the operation declares, with the field `list` last. If it has many `bytes`, it is encoded in
 * pieces, and other requests run in between. The pieces do not wait for the caller to read, so the whole answer must be
 * bounded.
 */
export const answerWithList = async <
  One extends { answer: z.ZodType },
  Name extends string & keyof z.input<One['answer']>,
>(
  one: One,
  res: Response,
  value: z.input<One['answer']> & { [Key in Name]: object[] },
  { list, bytes }: { list: Name; bytes: number },
): Promise<void> => {
  if (bytes < LARGE_BYTES) return answerWith(one, res, value);
  const { [list]: items, ...head } = value;
  res.type('json');
  for await (const piece of toJson(head, { [list]: [items] })) {
    if (res.writableEnded) return; // MongoDB was silent, and 503 was answered
    res.write(piece);
  }
  res.end();
  freeCallerSlots(res);
};

const waiting =
  (takeTurn: TakeTurn): RequestHandler =>
  async (_req, res, next) => {
    await takeTurn(res);
    next();
  };

/** Reads the body, if there is one. With `takeTurn`, the request waits for its turn. */
export const bodyReader = (operation: Declaration, takeTurn?: TakeTurn): RequestHandler[] => {
  const { body, upload, bodyLimitBytes, bodyIsMessage, bodyOptional } = operation;
  if (upload) return [upload.isHeld ? room : roomForUpload];
  if (!body) return takeTurn ? [waiting(takeTurn)] : [];
  const limit = bodyLimitBytes === undefined ? {} : { limitBytes: bodyLimitBytes };
  return [
    ...(bodyLimitBytes === undefined || bodyIsMessage ? [] : [room]),
    jsonBody({ ...limit, ...(bodyOptional && { optional: true }), ...(takeTurn && { takeTurn }) }),
  ];
};

/** An operation with its handlers, in order. */
export type Served = { operation: Declaration; handlers: RequestHandler[] };

const headBesideGet = (methods: string[]): string[] =>
  methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));

/** Adds all operations to the router. Other methods on the same paths get 405. */
export const mount = (router: Router, all: Served[], allowed = headBesideGet): void => {
  for (const [path, some] of Map.groupBy(all, ({ operation }) => operation.path)) {
    const route = router.route(path);
    for (const { operation, handlers } of some) route[operation.method](...handlers);
    route.all(methodNotAllowed(...allowed(some.map(({ operation }) => operation.method.toUpperCase()))));
  }
};
