import type { Redis } from 'ioredis';
import { LRUCache } from 'lru-cache';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { ApiError, unavailable } from '../platform/errors.ts';

const WINDOW_S = 60;
export const FAILING_LIMIT_PER_MINUTE = 60;
/** Playground turns of one operator: enough for a person, and few compared with visitors' turns. */
export const PLAYGROUND_LIMIT_PER_MINUTE = 60;

/** The kinds of rate-limit windows. */
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
 * Fixed windows of 60 s in Redis, shared by all API processes: for each API key, channel, network of failing requests,
 * and playground operator. `consume` throws 429 with all headers when the window is used up, and 503 when Redis is
 * unavailable.
 */
export const createRateLimiter = (
  redis: Redis,
  { prefix, onRefused }: { prefix: string; onRefused: (kind: LimitKind) => void },
) => {
  // The library sets the limit at construction, so each limit in use has an instance. All count into the same keys.
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
  // The first instance defines the library's script. ioredis must know it before any traffic: a pipeline that was
  // created earlier cannot use the script and would end the process.
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
    /** Only for requests that have already failed (401, unknown assistant), so it never refuses a valid key. */
    forFailing: (address: string) => consume('failing', address, FAILING_LIMIT_PER_MINUTE),
    forPlayground: (operatorId: string) => consume('playground', operatorId, PLAYGROUND_LIMIT_PER_MINUTE),
    /** `src/operators/sign-in-limits.ts` decides the subjects and limits. */
    forSignIn: (subject: string, limit: number) => consume('sign_in', subject, limit),
    refundSignIn: async (subject: string, limit: number): Promise<void> => {
      await limiterOf(limit)
        .reward(`sign_in:${subject}`)
        .catch(() => undefined);
    },
  };
};

export type RateLimiter = ReturnType<typeof createRateLimiter>;
