import { createRateLimiter, type RateLimiter } from '../../src/assistants/rate-limit.ts';
import type { Stack } from './stack.ts';

/** Counts in the stack's own windows, so that a test can use up most of one without as many requests. */
export const limiterOf = ({ env, service }: Stack): RateLimiter =>
  createRateLimiter(service.redis, { prefix: env['REDIS_PREFIX'] ?? '', onRefused: () => undefined });
