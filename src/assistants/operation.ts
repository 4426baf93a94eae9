import { type RequestHandler, Router } from 'express';
import { bodyReader, type Declaration, mount, type Served } from '../platform/operation.ts';
import type { Access } from './access.ts';

/**
 * Who may call, and which window counts the call. `key or poll`: a request that waits counts into a window of its own.
 * No limiter: nothing is counted, and whoever needs a token for it is told 404 without one.
 */
type Admission =
  | { auth: 'apiKey'; limiter: 'key' | 'key or poll' }
  | { auth: 'verifyToken'; limiter: 'channel' }
  | { auth: 'none' | 'metricsToken'; limiter?: never };

/** One operation of the public API. */
export type PublicOperation = Declaration & Admission;

export const publicOperation = <const One extends PublicOperation>(one: One): One => one;

type Limiter = NonNullable<PublicOperation['limiter']>;

/** The order of checks (docs/contract.md, Order of checks): 404 for a channel, 401, 429; then the body is read, 413 and 422. */
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
