import type { Redis } from 'ioredis';
import { LRUCache } from 'lru-cache';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { ApiError, unavailable } from '../platform/errors.ts';

const WINDOW_S = 60;
export const FAILING_LIMIT_PER_MINUTE = 60;
/** Turns that one operator tries: many for a person, few beside what visitors ask. */
export const PLAYGROUND_LIMIT_PER_MINUTE = 60;

/** Which window a request counts into. */
export type LimitKind = 'key' | 'channel' | 'poll' | 'failing' | 'sign_in' | 'playground';

export type RateLimitState = { limit: number; remaining: number; resetSeconds: number };

const stateOf = (limit: number, result: RateLimiterRes): RateLimitState => ({
  limit,
  remaining: Math.max(0, result.remainingPoints),
  resetSeconds: Math.max(1, Math.ceil(result.msBeforeNext / 1000)),
});

export const rateLimitHeaders = ({ limit, remaining, resetSeconds }: RateLimitState): Record<string, string> => ({
  'X-RateLimit-Limit': String(limit),
  'X-RateLimit-Remaining': String(remaining),
  'X-RateLimit-Reset': String(resetSeconds),
});

/**
 * Fixed windows of 60 s in Redis, one for each API key, channel, failing client address and operator at the playground; so every API process counts
 * into the same ones. `consume` throws 429 with all headers when the window is used up, 503 when Redis is away.
 */
export const createRateLimiter = (
  redis: Redis,
  { prefix, onRefused }: { prefix: string; onRefused: (kind: LimitKind) => void },
) => {
  // The library fixes the limit at construction: one instance for each limit in use, all counting into the same keys.
  const limiters = new LRUCache<number, RateLimiterRedis>({ max: 1000 });
  const limiterOf = (limit: number): RateLimiterRedis => {
    const known = limiters.get(limit);
    if (known) return known;
    const made = new RateLimiterRedis({
      storeClient: redis,
      keyPrefix: `${prefix}:limit`,
      points: limit,
      duration: WINDOW_S,
      rejectIfRedisNotReady: true,
    });
    limiters.set(limit, made);
    return made;
  };
  // The first one defines the library's script. ioredis must know it before any traffic: a pipeline begun before a script
  // was defined cannot carry it, and its other commands would end the process.
  limiterOf(FAILING_LIMIT_PER_MINUTE);

  const consume = async (kind: LimitKind, subject: string, limit: number): Promise<RateLimitState> => {
    try {
      return stateOf(limit, await limiterOf(limit).consume(`${kind}:${subject}`));
    } catch (refused) {
      if (!(refused instanceof RateLimiterRes)) throw unavailable(refused);
      onRefused(kind);
      const state = stateOf(limit, refused);
      throw new ApiError('rate_limited', {
        headers: { ...rateLimitHeaders(state), 'Retry-After': String(state.resetSeconds) },
      });
    }
  };

  return {
    forApiKey: (keyId: string, limit: number) => consume('key', keyId, limit),
    forChannel: (assistantId: string, limit: number) => consume('channel', assistantId, limit),
    forLongPoll: (keyId: string, limit: number) => consume('poll', keyId, limit),
    /** Only for requests that have already failed (401, unknown assistant): a valid key is never refused by it. */
    forFailing: (address: string) => consume('failing', address, FAILING_LIMIT_PER_MINUTE),
    forPlayground: (operatorId: string) => consume('playground', operatorId, PLAYGROUND_LIMIT_PER_MINUTE),
    /** Whose tries are counted, and how many there may be, is the operators' matter. */
    forSignIn: (subject: string, limit: number) => consume('sign_in', subject, limit),
    refundSignIn: async (subject: string, limit: number): Promise<void> => {
      await limiterOf(limit)
        .reward(`sign_in:${subject}`)
        .catch(() => undefined);
    },
  };
};

export type RateLimiter = ReturnType<typeof createRateLimiter>;
