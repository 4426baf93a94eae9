import { timingSafeEqual } from 'node:crypto';
import { hashSecret } from './api-keys.ts';
import type { Channel } from './assistant.ts';

/**
 * What the operator chooses: closed, open to everybody who knows the address, or behind a verify token. What is left out
 * stays; without a token only a channel that is connected already stays so.
 */
export type ChannelChange = { connected?: boolean; token?: string | null; limitPerMinute?: number };

export const OPEN_CHANNEL_WARNING =
  'This channel is open: anyone who knows a session_id can continue that conversation. Set a verify token to prevent this.';

/**
 * The change as one write of the fields it names: of two changes at once each keeps its own. `expected` is what the channel
 * must be for it. The token is kept only as its hash, and goes with the connection.
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

/** True where no token is set, or the one given is it; compared in constant time, by hash. */
export const isTokenAccepted = (channel: Channel, token: string | null): boolean => {
  if (channel.tokenHash === null) return true;
  if (token === null) return false;
  return timingSafeEqual(Buffer.from(channel.tokenHash), Buffer.from(hashSecret(token)));
};
