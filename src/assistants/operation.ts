import { type RequestHandler, Router } from 'express';
import { bodyReader, type Declaration, mount, type Served } from '../http/operation.ts';
import type { Access } from './access.ts';

/**
 * How a call is authenticated, and which rate-limit window counts the call. With `key or poll`, a long poll counts in a
 * window of its own. Without `limiter`, calls are not counted, and a missing token gives 404.
 */
type Admission =
  | { auth: 'apiKey'; limiter: 'key' | 'key or poll' }
  | { auth: 'verifyToken'; limiter: 'channel' }
  | { auth: 'none' | 'metricsToken'; limiter?: never };

/** One operation of the public API. */
export type PublicOperation = Declaration & Admission;

export const publicOperation = <const One extends PublicOperation>(one: One): One => one;

type Limiter = NonNullable<PublicOperation['limiter']>;

/**
 * Routes for public operations. The checks follow docs/contract.md, Order of checks: 404 for an unknown channel, 401
 * and 429 come first. Only then is the body read, which may give 413 or 422.
 */
export const createPublicRouter = (
  access: Access,
  all: { operation: PublicOperation; handle: RequestHandler }[],
): Router => {
  const admits: Record<Limiter, RequestHandler> = {
    key: access.byApiKey,
    'key or poll': access.byApiKeyOrPoll,
    channel: access.byChannel,
  };
  const router = Router({ caseSensitive: true });
  const served = all.map(({ operation, handle }): Served => {
    const admit = operation.limiter ? [admits[operation.limiter]] : [];
    return { operation, handlers: [...admit, ...bodyReader(operation), handle] };
  });
  mount(router, served);
  return router;
};
