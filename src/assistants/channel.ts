import { createHash, timingSafeEqual } from 'node:crypto';
import { serverDate } from '../platform/process/clock.ts';
import type { RedisClient } from '../platform/redis/redis.ts';
import { hashSecret } from './api-keys.ts';
import type { Channel } from './assistant.ts';

/**
 * One request to an inbound webhook channel, shown to people who set up the channel. The record has no message text.
 */
export type ChannelCall = {
  at: string;
  status: number;
  ms: number;
  /** The error code of a failed request. */
  error?: string;
  sessionId?: string;
  conversationId?: string;
};

const KEPT = 20;
const KEPT_S = 7 * 86_400;
const WRITTEN_EVERY_MS = 500;
/** How long an erasure is remembered. Requests that began before it have ended by then. */
const FORGOTTEN_S = 300;

const parse = (line: string): ChannelCall => JSON.parse(line) as ChannelCall; // as `write` stores it

/**
 * The last calls of each channel. Calls are collected in memory and written in batches. No turn waits for these writes.
 * Calls are lost while Redis is unavailable, which affects only this list.
 */
export type ChannelCalls = {
  /** Records a call. The assistant must exist, because every unknown id would create another Redis key. */
  record: (assistantId: string, call: ChannelCall) => void;

  /**
   * Removes a session's calls when its conversation is erased. Removes them again a little later, because another
   * process may be writing a call just now. A call that is recorded later is not written. Does not wait for Redis. If
   * Redis is unavailable, the calls expire with the list after seven days.
   */
  forget: (assistantId: string, sessionId: string) => void;

  /** The calls, newest first. Calls that another process recorded may appear half a second late. */
  list: (assistantId: string) => Promise<ChannelCall[]>;

  close: () => Promise<void>;
};

export const createChannelCalls = (redis: RedisClient, prefix: string): ChannelCalls => {
  const keyOf = (assistantId: string): string => `${prefix}:channel-calls:${assistantId}`;
  /** Key of a session's time of erasure. Contains a hash, because the session id must be forgotten. */
  const forgottenKeyOf = (assistantId: string, sessionId: string): string =>
    `${prefix}:channel-forgotten:${assistantId}:${createHash('sha256').update(sessionId).digest('base64url')}`;
  let pending = new Map<string, ChannelCall[]>();

  /** False for a call that began before its session was erased, and is recorded after it. */
  const isKept = async (assistantId: string, { at, sessionId }: ChannelCall): Promise<boolean> => {
    if (sessionId === undefined) return true;
    const erasedAt = await redis.get(forgottenKeyOf(assistantId, sessionId));
    return erasedAt === null || at > erasedAt;
  };
  let timer: NodeJS.Timeout | null = null;

  const write = async (): Promise<void> => {
    if (timer) clearTimeout(timer);
    timer = null;
    if (pending.size === 0) return;
    const batch = pending;
    pending = new Map();
    // One pipeline for each list, because the lists may be on several nodes of a cluster.
    const written = [...batch].map(async ([assistantId, calls]) => {
      const key = keyOf(assistantId);
      const kept = await Promise.all(calls.map((call) => isKept(assistantId, call)));
      const lines = calls.filter((_call, nth) => kept[nth]).map((call) => JSON.stringify(call));
      if (lines.length === 0) return;
      const commands = redis.pipeline().lpush(key, ...lines);
      await commands
        .ltrim(key, 0, KEPT - 1)
        .expire(key, KEPT_S)
        .exec();
    });
    await Promise.allSettled(written);
  };

  return {
    record: (assistantId, call) => {
      const calls = pending.get(assistantId) ?? [];
      if (calls.length === 0) pending.set(assistantId, calls);
      calls.push(call);
      if (calls.length > KEPT) calls.shift();
      timer ??= setTimeout(() => void write(), WRITTEN_EVERY_MS).unref();
    },

    forget: (assistantId, sessionId) => {
      const erasedAt = serverDate().toISOString();
      const remove = async (): Promise<void> => {
        await write();
        await redis.set(forgottenKeyOf(assistantId, sessionId), erasedAt, 'EX', FORGOTTEN_S);
        const key = keyOf(assistantId);
        const own = (await redis.lrange(key, 0, KEPT - 1)).filter((line) => parse(line).sessionId === sessionId);
        await Promise.all(own.map((line) => redis.lrem(key, 0, line)));
      };
      const now = (): void => void remove().catch(() => undefined);
      now();
      setTimeout(now, 2 * WRITTEN_EVERY_MS).unref();
    },

    list: async (assistantId) => {
      await write();
      const lines = await redis.lrange(keyOf(assistantId), 0, KEPT - 1);
      return lines.map(parse).toSorted((a, b) => b.at.localeCompare(a.at));
    },

    close: write,
  };
};

/**
 * A change of the channel: disconnect it, open it to everyone who knows the address, or protect it with a verify token.
 * Omitted fields keep their values. A change without `token` requires that the channel is already connected.
 */
export type ChannelChange = { connected?: boolean; token?: string | null; limitPerMinute?: number };

export const OPEN_CHANNEL_WARNING =
  'This channel is open: anyone who knows a session_id can continue that conversation. Set a verify token to prevent this.';

/**
 * The update for a change. The update sets only the given fields, so that concurrent changes do not overwrite each
 * other. The channel must be in the state `expected`. Only the token's hash is stored, and disconnecting deletes this
 * hash and that of the secret address.
 */
export const channelWrite = ({ connected, token, limitPerMinute }: ChannelChange) => {
  const limited = limitPerMinute === undefined ? {} : { 'channel.limitPerMinute': limitPerMinute };
  if (connected === false) {
    const ended = { 'channel.tokenHash': null, 'channel.secretAddress': null };
    return { expected: {}, set: { 'channel.connected': false, ...ended, ...limited } };
  }
  if (token !== undefined) {
    const tokenHash = token === null ? null : hashSecret(token);
    return { expected: {}, set: { 'channel.connected': true, 'channel.tokenHash': tokenHash, ...limited } };
  }
  return { expected: connected ? { 'channel.connected': true } : {}, set: limited };
};

/** Compares hashes in constant time. */
const isSecretOf = (hash: string, secret: string): boolean =>
  timingSafeEqual(Buffer.from(hash), Buffer.from(hashSecret(secret)));

/** True if the channel requires no token or the given token matches. */
export const isTokenAccepted = ({ tokenHash }: Channel, token: string | null): boolean =>
  tokenHash === null || (token !== null && isSecretOf(tokenHash, token));

/** True if the secret is that of the channel's secret address. */
export const isAddressAccepted = ({ secretAddress }: Channel, secret: string): boolean =>
  secretAddress ? isSecretOf(secretAddress.hash, secret) : false;
