import { timingSafeEqual } from 'node:crypto';
import { hashSecret } from './api-keys.ts';
import type { Channel } from './assistant.ts';

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
 * hash.
 */
export const channelWrite = ({ connected, token, limitPerMinute }: ChannelChange) => {
  const limited = limitPerMinute === undefined ? {} : { 'channel.limitPerMinute': limitPerMinute };
  if (connected === false) {
    return { expected: {}, set: { 'channel.connected': false, 'channel.tokenHash': null, ...limited } };
  }
  if (token !== undefined) {
    const tokenHash = token === null ? null : hashSecret(token);
    return { expected: {}, set: { 'channel.connected': true, 'channel.tokenHash': tokenHash, ...limited } };
  }
  return { expected: connected ? { 'channel.connected': true } : {}, set: limited };
};

/** True if the channel requires no token or the given token matches. Hashes are compared in constant time. */
export const isTokenAccepted = (channel: Channel, token: string | null): boolean => {
  if (channel.tokenHash === null) return true;
  if (token === null) return false;
  return timingSafeEqual(Buffer.from(channel.tokenHash), Buffer.from(hashSecret(token)));
};
