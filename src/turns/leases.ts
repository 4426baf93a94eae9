import type { Redis } from 'ioredis';
import { newToken } from '../platform/ids.ts';
import type { Partitions } from '../platform/redis.ts';

/** A worker's hold on a turn, renewed while it works; a dead worker's lapses by itself. */
export const TAKE_MS = 10_000;
const RENEW_EVERY_MS = 3_000;
/** Outlives a lapsed hold and the sweep after it many times over; a count lost begins anew. */
const TRIES_KEPT_MS = 120_000;
/** Longer than a turn can be resumed for. */
const DELIVERED_KEPT_MS = 660_000;

// One call takes the turn and counts the try; 0 = somebody else has it. Sent again over a new connection, since its answer
// was lost with the old one, it finds its own token.
const TAKE = `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local tries = redis.call('INCR', KEYS[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  return tries
end
if redis.call('GET', KEYS[1]) == ARGV[1] then return tonumber(redis.call('GET', KEYS[2]) or '1') end
return 0`;

// Only the owner renews or releases.
const RENEW = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0`;
const RELEASE = `
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
return 1`;

type Scripts = {
  parleyTake: (...args: (string | number)[]) => Promise<number>;
  parleyRenew: (...args: (string | number)[]) => Promise<number>;
  parleyRelease: (...args: (string | number)[]) => Promise<number>;
};

export type TurnRef = { key: string; turnId: string };

/**
 * What Redis knows of turns: who is answering one, and which replies reached a caller. All of it can be lost: a lost take
 * leads to a second, discarded answer; a lost delivery mark to the replay of the stored reply.
 */
export const createHints = (redis: Redis, partitions: Partitions) => {
  redis.defineCommand('parleyTake', { numberOfKeys: 2, lua: TAKE });
  redis.defineCommand('parleyRenew', { numberOfKeys: 1, lua: RENEW });
  redis.defineCommand('parleyRelease', { numberOfKeys: 2, lua: RELEASE });
  const scripts = redis as unknown as Scripts; // commands defined just above
  const takeKey = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:take:${turnId}`;
  const triesKey = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:tries:${turnId}`;
  const deliveredKey = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:delivered:${turnId}`;

  const held = new Map<string, { ref: TurnRef; token: string }>();
  const renewal = setInterval(() => {
    for (const { ref, token } of held.values()) {
      scripts.parleyRenew(takeKey(ref), token, TAKE_MS).catch(() => undefined);
    }
  }, RENEW_EVERY_MS);
  renewal.unref();

  return {
    /** Takes a turn and counts the try. Null: another worker has it. */
    take: async (ref: TurnRef): Promise<{ token: string; tries: number } | null> => {
      const token = newToken();
      const tries = await scripts.parleyTake(takeKey(ref), triesKey(ref), token, TAKE_MS, TRIES_KEPT_MS);
      if (tries === 0) return null;
      held.set(ref.turnId, { ref, token });
      return { token, tries };
    },

    /** An answered turn is never taken again: its hold and its count lapse by themselves, without a command. */
    letLapse: (ref: TurnRef): void => {
      held.delete(ref.turnId);
    },

    /** Lets go of a turn that may be taken again; `forgetTries` where its next try is to be the first. Not awaited. */
    release: (ref: TurnRef, token: string, forgetTries: boolean): void => {
      held.delete(ref.turnId);
      scripts.parleyRelease(takeKey(ref), triesKey(ref), token, forgetTries ? 1 : 0).catch(() => undefined);
    },

    /** Which of these turns a worker holds right now. */
    findTaken: async (refs: TurnRef[]): Promise<Set<string>> => {
      const values = await Promise.all(refs.map((ref) => redis.get(takeKey(ref))));
      return new Set(refs.filter((_, index) => values[index] !== null).map(({ turnId }) => turnId));
    },

    /** Recorded after a response was written, never taken back; losing the record errs to the stored reply's replay. */
    markDelivered: (ref: TurnRef): void => {
      redis.set(deliveredKey(ref), '1', 'PX', DELIVERED_KEPT_MS).catch(() => undefined);
    },

    /** Which of these turns' replies are recorded to have reached a caller; none when Redis is away. */
    findDelivered: async (refs: TurnRef[]): Promise<Set<string>> => {
      const values = await Promise.all(refs.map((ref) => redis.get(deliveredKey(ref)).catch(() => null)));
      return new Set(refs.filter((_, index) => values[index] !== null).map(({ turnId }) => turnId));
    },

    close: (): void => clearInterval(renewal),
  };
};

export type Hints = ReturnType<typeof createHints>;
