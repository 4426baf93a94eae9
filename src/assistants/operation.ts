import { type RequestHandler, Router } from 'express';
import { bodyReader, type Declaration, mount, type Served } from '../platform/operation.ts';
import type { Access } from './access.ts';

/**
 * How a call is authenticated, and which rate-limit window counts it. `key or poll`: a long poll counts into its own
 * window. Without a limiter nothing is counted, and a missing token gives 404.
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
 * Checks in the order of docs/contract.md, Order of checks: 404 for a channel, 401, 429; then the body is read, 413 and
 * 422.
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
