import { LRUCache } from 'lru-cache';
import { RateLimiterMemory, RateLimiterRedis, type RateLimiterRes } from 'rate-limiter-flexible';
import { createLateLines } from '../platform/http/shares.ts';
import { createBatcher, ItemFailure } from '../platform/process/batch.ts';
import { ApiError, unavailable } from '../platform/process/errors.ts';
import type { RedisClient } from '../platform/redis/redis.ts';

const WINDOW_S = 60;
/** How many requests of a window are refused without delay. Each further refusal in the window is delayed. */
const REFUSED_AT_ONCE = 100;
const REFUSED_LATE_MS = 1_000;
/** Late refusals of one assistant, or one client address, are so far apart: it may have thousands of connections. */
const REFUSED_APART_MS = 10;
const FAILING_LIMIT_PER_MINUTE = 60;
/** Requests with a body but no sign-in: sign-ins, invitation and reset links. Many people may share a network. */
const ANONYMOUS_LIMIT_PER_MINUTE = 120;
/** Requests of one network for what does not exist, or is the same for everybody. */
const UNKNOWN_LIMIT_PER_MINUTE = 600;
/** Playground turns of one operator: enough for a person, and few compared with visitors' turns. */
const PLAYGROUND_LIMIT_PER_MINUTE = 60;
/** Reports of one operator who reads or writes: each open page reports every seven seconds. */
const PRESENCE_LIMIT_PER_MINUTE = 240;
/** Requests of one operator token: ten a second, enough for a program that follows the inbox of many assistants. */
const TOKEN_LIMIT_PER_MINUTE = 600;

/** Messages of one network through the web channel. Many visitors may share a network. */
const WEB_MESSAGES_LIMIT_PER_MINUTE = 600;
/** Sessions that one network starts. */
const WEB_STARTS_LIMIT_PER_MINUTE = 120;
/** Reads of the web channel by one network: settings and messages. Each open widget reads several times a minute. */
const WEB_READS_LIMIT_PER_MINUTE = 3_000;

/** The kinds of rate-limit windows. */
export type LimitKind =
  | 'key'
  | 'channel'
  | 'visitor'
  | 'poll'
  | 'failing'
  | 'anonymous'
  | 'unknown'
  | 'sign_in'
  | 'playground'
  | 'web_messages'
  | 'web_starts'
  | 'web_reads'
  | 'presence'
  | 'token';

/**
 * Kinds whose refusals may be delayed. Those of signed-in operators are not, because their requests hold shared slots. One
 * of a token holds a slot of the token.
 */
const SLOWED = new Set<LimitKind>([
  'anonymous',
  'sign_in',
  'unknown',
  'key',
  'channel',
  'visitor',
  'poll',
  'failing',
  'web_messages',
  'web_starts',
  'web_reads',
  'token',
]);

/**
 * Counts the requests of several windows in one call. The library needs a call for each window. Each visitor has a
 * window, so every turn would cost such a call.
 */
const COUNT = `
local counted = {}
for nth, key in ipairs(KEYS) do
  redis.call('SET', key, 0, 'EX', ARGV[1], 'NX')
  counted[2 * nth - 1] = redis.call('INCRBY', key, ARGV[nth + 1])
  counted[2 * nth] = redis.call('PTTL', key)
end
return counted`;

type Scripts = { parleyCount: (keys: number, ...args: (string | number)[]) => Promise<number[]> };

type RateLimitState = { limit: number; remaining: number; resetSeconds: number };

/** A request that takes one point from its subject's window. */
type Request = { subject: string; limit: number };
/** `consumed`: how many requests the window has counted, up to and including this one. */
type Counted = { consumed: number; msBeforeNext: number };
type Taken = Pick<RateLimiterRes, 'consumedPoints' | 'msBeforeNext'>;

const stateOf = (limit: number, { consumed, msBeforeNext }: Counted): RateLimitState => ({
  limit,
  remaining: Math.max(0, limit - consumed),
  resetSeconds: Math.max(1, Math.ceil(msBeforeNext / 1000)),
});

/**
 * Splits the result of one call that took points for several requests into one count for each request, in order of
 * arrival.
 */
const sharesOf = ({ consumedPoints, msBeforeNext }: Taken, requests: number): Counted[] =>
  Array.from({ length: requests }, (_, nth) => ({ consumed: consumedPoints - requests + 1 + nth, msBeforeNext }));

export const rateLimitHeaders = ({ limit, remaining, resetSeconds }: RateLimitState): Record<string, string> => ({
  'X-RateLimit-Limit': String(limit),
  'X-RateLimit-Remaining': String(remaining),
  'X-RateLimit-Reset': String(resetSeconds),
});

/**
 * Fixed windows of 60 s in Redis, shared by all API processes. There is one window for each API key, each channel, each
 * visitor's session, each client network that sends failing requests or uses the web channel, each operator token, and
 * each operator for the playground and for presence. `consume` throws 429 with all headers when the window is used up,
 * and 503 when Redis is unavailable. While only the window's node of a cluster is unavailable, each process counts for
 * itself, so that the key still reaches conversations on other nodes.
 */
export type RateLimiter = {
  /** `assistantId`: late refusals of all its keys come one after the other. */
  forApiKey: (keyId: string, limit: number, assistantId: string) => Promise<RateLimitState>;
  forChannel: (assistantId: string, limit: number) => Promise<RateLimitState>;

  /** Counts a visitor's message by its conversation key, so that no session id is stored in Redis. */
  forVisitor: (conversationKey: string, limit: number) => Promise<RateLimitState>;

  forLongPoll: (keyId: string, limit: number, assistantId: string) => Promise<RateLimitState>;

  /**
   * Counts only requests that have already failed (401, unknown assistant), so this limit never refuses a valid key.
   */
  forFailing: (address: string) => Promise<RateLimitState>;

  /** True while refusals of this address are late. */
  isLate: (address: string) => boolean;

  /** Waits like a late refusal, until the client leaves. */
  slowDown: (address: string) => Promise<void>;

  forAnonymous: (address: string) => Promise<RateLimitState>;

  /** Counts a request for a path or a hosted page that does not exist. */
  forUnknown: (address: string) => Promise<RateLimitState>;
  forPlayground: (operatorId: string) => Promise<RateLimitState>;
  forPresence: (operatorId: string) => Promise<RateLimitState>;
  forWebMessages: (address: string) => Promise<RateLimitState>;
  forWebStarts: (address: string) => Promise<RateLimitState>;
  forWebReads: (address: string) => Promise<RateLimitState>;

  /** `team`: late refusals of all its tokens come one after the other. */
  forToken: (tokenId: string, team?: string) => Promise<RateLimitState>;

  /** Counts an attempt to sign in. `src/operators/session.ts` decides the subjects and the limits. */
  forSignIn: (subject: string, limit: number) => Promise<RateLimitState>;

  refundSignIn: (subject: string, limit: number) => Promise<void>;
};

export const createRateLimiter = (
  redis: RedisClient,
  { prefix, onRefused }: { prefix: string; onRefused: (kind: LimitKind) => void },
): RateLimiter => {
  // The library sets the limit at construction, so each limit in use has its own limiter. All limiters count in the
  // same Redis keys.
  const limiters = new LRUCache<number, { shared: RateLimiterRedis; own: RateLimiterMemory }>({ max: 1000 });
  const limiterOf = (limit: number) => {
    const known = limiters.get(limit);
    if (known) return known;
    const options = { keyPrefix: `${prefix}:limit`, points: limit, duration: WINDOW_S };
    const made = {
      shared: new RateLimiterRedis({ ...options, storeClient: redis, rejectIfRedisNotReady: true }),
      own: new RateLimiterMemory(options),
    };
    limiters.set(limit, made);
    return made;
  };
  // The first limiter defines the library's script on the connection. The script must be defined before any traffic: a
  // pipeline that was created earlier cannot use the script and would end the process.
  limiterOf(FAILING_LIMIT_PER_MINUTE);

  redis.defineCommand('parleyCount', { lua: COUNT });
  const scripts = redis as RedisClient & Scripts; // `defineCommand` adds it

  /** Takes points for one subject. Only for a cluster, where the windows are on several nodes. */
  const takePoints = async ({ subject, limit }: Request, requests: number): Promise<Taken> => {
    const { shared, own } = limiterOf(limit);
    return shared.penalty(subject, requests).catch((cause: unknown) => {
      if (redis.isCluster && redis.status === 'ready') return own.penalty(subject, requests);
      throw cause;
    });
  };

  const takeAll = async (groups: Request[][]): Promise<(Taken | ItemFailure)[]> => {
    if (redis.isCluster) {
      const takeOf = (some: Request[]) => takePoints(some[0] as Request, some.length); // a group is never empty
      return Promise.all(groups.map((some) => takeOf(some).catch((cause: unknown) => new ItemFailure(cause))));
    }
    const keys = groups.map((some) => `${prefix}:limit:${some[0]?.subject}`);
    const counts = groups.map(({ length }) => length);
    try {
      const counted = await scripts.parleyCount(keys.length, ...keys, WINDOW_S, ...counts);
      return groups.map((_, nth) => ({
        consumedPoints: counted[2 * nth] ?? 0,
        msBeforeNext: counted[2 * nth + 1] ?? 0,
      }));
    } catch (cause) {
      return groups.map(() => new ItemFailure(cause));
    }
  };

  /** Requests that arrive in one tick take their points in one call. */
  const count = createBatcher<Request, Counted>(
    async (requests) => {
      const groups = [...Map.groupBy(requests, ({ subject, limit }) => `${limit} ${subject}`).values()];
      const counted = new Map<Request, Counted | ItemFailure>();
      const taken = await takeAll(groups);
      for (const [at, some] of groups.entries()) {
        const one = taken[at] as Taken | ItemFailure;
        const shares = one instanceof ItemFailure ? some.map(() => one) : sharesOf(one, some.length);
        for (const [nth, request] of some.entries()) counted.set(request, shares[nth] as Counted | ItemFailure);
      }
      return requests.map((request) => counted.get(request) as Counted | ItemFailure);
    },
    { maxInFlight: Number.POSITIVE_INFINITY },
  );

  /** Assistants and addresses whose refusals are late. */
  const late = createLateLines({ lateMs: REFUSED_LATE_MS, apartMs: REFUSED_APART_MS, mostMs: WINDOW_S * 1000 });

  /** `line`: whose late refusals come one after the other. If it is missing, those of the subject. */
  const consume = async (kind: LimitKind, subject: string, limit: number, line = subject): Promise<RateLimitState> => {
    const counted = await count({ subject: `${kind}:${subject}`, limit }).catch((cause: unknown) => {
      throw unavailable(cause);
    });
    const state = stateOf(limit, counted);
    if (counted.consumed <= limit) return state;
    onRefused(kind);
    // Without a delay, a client could send its next request right after each refusal: thousands in a second on a few
    // connections.
    if (SLOWED.has(kind) && counted.consumed > limit + REFUSED_AT_ONCE) await late.wait(line);
    throw new ApiError('rate_limited', {
      headers: { ...rateLimitHeaders(state), 'Retry-After': String(state.resetSeconds) },
    });
  };

  return {
    forApiKey: (keyId, limit, assistantId) => consume('key', keyId, limit, assistantId),
    forChannel: (assistantId, limit) => consume('channel', assistantId, limit),
    forVisitor: (conversationKey, limit) => consume('visitor', conversationKey, limit),
    forLongPoll: (keyId, limit, assistantId) => consume('poll', keyId, limit, assistantId),
    forFailing: (address) => consume('failing', address, FAILING_LIMIT_PER_MINUTE),
    isLate: late.isLate,
    slowDown: late.wait,
    forAnonymous: (address) => consume('anonymous', address, ANONYMOUS_LIMIT_PER_MINUTE),
    forUnknown: (address) => consume('unknown', address, UNKNOWN_LIMIT_PER_MINUTE),
    forPlayground: (operatorId) => consume('playground', operatorId, PLAYGROUND_LIMIT_PER_MINUTE),
    forPresence: (operatorId) => consume('presence', operatorId, PRESENCE_LIMIT_PER_MINUTE),
    forWebMessages: (address) => consume('web_messages', address, WEB_MESSAGES_LIMIT_PER_MINUTE),
    forWebStarts: (address) => consume('web_starts', address, WEB_STARTS_LIMIT_PER_MINUTE),
    forWebReads: (address) => consume('web_reads', address, WEB_READS_LIMIT_PER_MINUTE),
    forToken: (tokenId, team) => consume('token', tokenId, TOKEN_LIMIT_PER_MINUTE, team),
    forSignIn: (subject, limit) => consume('sign_in', subject, limit),
    refundSignIn: async (subject, limit) => {
      await limiterOf(limit)
        .shared.reward(`sign_in:${subject}`)
        .catch(() => undefined);
    },
  };
};
