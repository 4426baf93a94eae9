import type { TurnRef } from '../conversations/conversation.ts';
import { serverNow } from '../platform/process/clock.ts';
import { newToken } from '../platform/process/ids.ts';
import type { RedisClient } from '../platform/redis/redis.ts';
import type { Partitions } from '../platform/redis/queue.ts';
import type { Timing } from '../platform/process/time-limits.ts';

// Acquires the lease and counts the try. Returns 0 if another worker has the lease. If the connection breaks before the
// answer, the command is sent again, finds its own token and succeeds.
const ACQUIRE = `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local tries = redis.call('INCR', KEYS[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  return tries
end
if redis.call('GET', KEYS[1]) == ARGV[1] then return tonumber(redis.call('GET', KEYS[2]) or '1') end
return 0`;

// Only the owner of a lease can renew or release it. If it has run out and nobody has acquired it, because this process stood
// still or Redis lost it, its owner has it again.
const RENEW = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`;
const RELEASE = `
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
return 1`;

type Scripts = {
  parleyAcquire: (...args: (string | number)[]) => Promise<number>;
  parleyRenew: (...args: (string | number)[]) => Promise<number>;
  parleyRelease: (...args: (string | number)[]) => Promise<number>;
};

/**
 * Leases show which worker is answering a turn. If Redis loses a lease, a second worker may answer the turn, and the
 * second answer is discarded.
 */
export type TurnLeases = {
  /** Acquires the lease of a turn and counts the try. Null if another worker has the lease. */
  acquire: (turn: TurnRef) => Promise<{ token: string; tries: number } | null>;

  /** Stops renewing the lease of an answered turn. No worker needs this lease any more, so it may expire. */
  expire: (turn: TurnRef) => void;

  /**
   * Releases the lease of a turn that may be leased again. With `forgetTries`, the next try counts as the first. Does
   * not wait for Redis.
   */
  release: (turn: TurnRef, token: string, forgetTries: boolean) => void;

  /** Returns the ids of those turns that a worker has leased now. */
  findLeased: (turns: TurnRef[]) => Promise<Set<string>>;

  /** The process that has leased the turn, and until when, unless it renews the lease. Null if nobody has. */
  findHolder: (turn: TurnRef) => Promise<{ worker: string; until: Date } | null>;

  close: () => void;
};

export const createTurnLeases = (
  redis: RedisClient,
  { partitions, worker, timing }: { partitions: Partitions; worker: string; timing: Timing },
): TurnLeases => {
  const { turnLeaseMs, turnLeaseRenewMs, triesKeptMs } = timing;
  redis.defineCommand('parleyAcquire', { numberOfKeys: 2, lua: ACQUIRE });
  redis.defineCommand('parleyRenew', { numberOfKeys: 1, lua: RENEW });
  redis.defineCommand('parleyRelease', { numberOfKeys: 2, lua: RELEASE });
  const scripts = redis as unknown as Scripts; // commands defined just above
  const leaseKey = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:lease:${turnId}`;
  const triesKey = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:tries:${turnId}`;

  const renewed = new Map<string, { turn: TurnRef; token: string }>();
  const renewal = setInterval(() => {
    for (const { turn, token } of renewed.values()) {
      scripts.parleyRenew(leaseKey(turn), token, turnLeaseMs).catch(() => undefined);
    }
  }, turnLeaseRenewMs);
  renewal.unref();

  return {
    acquire: async (turn) => {
      const token = `${worker}.${newToken()}`;
      const tries = await scripts.parleyAcquire(leaseKey(turn), triesKey(turn), token, turnLeaseMs, triesKeptMs);
      if (tries === 0) return null;
      renewed.set(turn.turnId, { turn, token });
      return { token, tries };
    },

    expire: ({ turnId }) => {
      renewed.delete(turnId);
    },

    release: (turn, token, forgetTries) => {
      renewed.delete(turn.turnId);
      scripts.parleyRelease(leaseKey(turn), triesKey(turn), token, forgetTries ? 1 : 0).catch(() => undefined);
    },

    findLeased: async (turns) => {
      const values = await Promise.all(turns.map((turn) => redis.get(leaseKey(turn))));
      return new Set(turns.filter((_, index) => values[index] !== null).map(({ turnId }) => turnId));
    },

    findHolder: async (turn) => {
      const [token, forMs] = await Promise.all([redis.get(leaseKey(turn)), redis.pttl(leaseKey(turn))]);
      if (token === null) return null;
      return { worker: token.split('.')[0] ?? '', until: new Date(serverNow() + Math.max(0, forMs)) };
    },

    close: () => clearInterval(renewal),
  };
};
