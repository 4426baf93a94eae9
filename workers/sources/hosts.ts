import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Timing } from '../../src/process/time-limits.ts';
import type { RedisClient } from '../../src/redis/redis.ts';

// Takes the next time at which a request may go to the host, and moves it on. Returns how long to wait, or -1 if that is
// too long.
const TAKE = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
if at - now > tonumber(ARGV[2]) then return -1 end
local next = at + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%d', next), 'PX', string.format('%d', next - now))
return at - now`;

const LEAVE_ALONE = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local next = math.max(now + tonumber(ARGV[1]), tonumber(redis.call('GET', KEYS[1]) or '0'))
redis.call('SET', KEYS[1], string.format('%d', next), 'PX', string.format('%d', next - now))
return 1`;

type Scripts = {
  parleyTakeHost: (key: string, everyMs: number, mostMs: number) => Promise<number>;
  parleyLeaveHost: (key: string, forMs: number) => Promise<number>;
};

/**
 * Spaces the requests of all sources and processes to one host. The times are in Redis. If Redis loses them, one request
 * comes too early.
 */
export type Hosts = {
  /** Waits until a request may be sent. False if so many wait for this host that others should go first. */
  waitFor: (host: string, options: { everyMs: number; signal: AbortSignal }) => Promise<boolean>;

  /** Sends nothing to a host for a while. */
  leaveAlone: (host: string, forMs: number) => Promise<void>;
};

export const createHosts = (redis: RedisClient, prefix: string, timing: Timing): Hosts => {
  redis.defineCommand('parleyTakeHost', { numberOfKeys: 1, lua: TAKE });
  redis.defineCommand('parleyLeaveHost', { numberOfKeys: 1, lua: LEAVE_ALONE });
  const scripts = redis as unknown as Scripts; // commands defined just above
  const keyOf = (host: string): string =>
    `${prefix}:host:${createHash('sha256').update(host).digest('base64url').slice(0, 22)}`;
  return {
    waitFor: async (host, { everyMs, signal }) => {
      const most = timing.sourceBackoffMaxMs + timing.sourceRequestEveryMaxMs;
      const ms = await scripts.parleyTakeHost(keyOf(host), Math.ceil(everyMs), most);
      if (ms > 0) await sleep(ms, undefined, { signal });
      return ms >= 0;
    },

    leaveAlone: async (host, forMs) => {
      await scripts.parleyLeaveHost(keyOf(host), Math.ceil(forMs));
    },
  };
};
