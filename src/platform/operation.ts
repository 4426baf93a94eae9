import type { Request, RequestHandler, Response, Router } from 'express';
import type * as z from 'zod';
import type { ErrorCode } from './errors.ts';
import { methodNotAllowed } from './http.ts';
import { jsonBody } from './json-body.ts';
import { validate } from './validation.ts';

/** A response beside the usual one. With `code` it is an error, and has the headers of that error. */
export type OtherAnswer = {
  description: string;
  schema: z.ZodType;
  example?: unknown;
  headers?: Record<string, z.ZodType>;
  code?: ErrorCode;
};

/**
 * One operation, declared once: its router, its page in the OpenAPI document and the suite's client are all derived from
 * this. Who may call it is added by each API: see `assistants/operation.ts` and `operator-api/operation.ts`.
 */
export type Declaration = {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** As Express writes it. */
  path: string;
  id: string;
  tag: string;
  summary: string;
  description?: string;
  /** Describes the path's parameters; left out, each is a string. */
  params?: z.ZodObject;
  headers?: z.ZodObject;
  query?: z.ZodObject;
  body?: z.ZodType;
  bodyExample?: unknown;
  bodyLimitBytes?: number;
  /** No body at all counts as `{}`. */
  bodyOptional?: boolean;
  /** Left out: 204 without a body. */
  answer?: z.ZodType;
  answerExample?: unknown;
  answerDescription?: string;
  answerHeaders?: Record<string, z.ZodType>;
  contentType?: string;
  /** The same answer as server-sent events. */
  stream?: { description: string; example: string };
  status?: 200 | 201 | 202;
  otherAnswers?: Record<number, OtherAnswer>;
  /** Errors beyond those that follow from the rest of the declaration. */
  errors?: readonly ErrorCode[];
};

export type QueryOf<One> = One extends { query: infer Schema extends z.ZodType } ? z.output<Schema> : undefined;
export type BodyOf<One> = One extends { body: infer Schema extends z.ZodType } ? z.output<Schema> : undefined;

/** Validated when the handler asks, since some answer 404 before they look at what was sent. */
export const queryOf = <One extends { query: z.ZodObject }>(one: One, req: Request) =>
  validate<One['query']>(one.query, req.query);

export const bodyOf = <One extends { body: z.ZodType }>(one: One, req: Request) =>
  validate<One['body']>(one.body, req.body);

/** Sends what the declaration promises; the types refuse anything else. */
export const answerWith = <One extends { answer: z.ZodType; status?: number }>(
  one: One,
  res: Response,
  value: z.input<One['answer']>,
): void => {
  if (one.status !== undefined) res.status(one.status);
  res.json(value);
};

export const bodyReader = ({ body, bodyLimitBytes, bodyOptional }: Declaration): RequestHandler[] => {
  if (!body) return [];
  const limit = bodyLimitBytes === undefined ? {} : { limitBytes: bodyLimitBytes };
  return [jsonBody({ ...limit, ...(bodyOptional && { optional: true }) })];
};

/** An operation with what runs for it, in order. */
export type Served = { operation: Declaration; handlers: RequestHandler[] };

const headBesideGet = (methods: string[]): string[] =>
  methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));

/** Adds every operation to the router, and 405 for any other method on their paths. */
export const mount = (router: Router, all: Served[], allowed = headBesideGet): void => {
  for (const [path, some] of Map.groupBy(all, ({ operation }) => operation.path)) {
    const route = router.route(path);
    for (const { operation, handlers } of some) route[operation.method](...handlers);
    route.all(methodNotAllowed(...allowed(some.map(({ operation }) => operation.method.toUpperCase()))));
  }
};
