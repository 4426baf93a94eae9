import { timingSafeEqual } from 'node:crypto';
import { hashSecret } from './api-keys.ts';
import type { Channel } from './assistant.ts';

/** What the operator chooses: closed, open to everybody who knows the address, or behind a verify token. */
export type ChannelChange =
  | { connected: false }
  | { connected: true; token: string | null; limitPerMinute?: number }
  | { limitPerMinute: number };

export const OPEN_CHANNEL_WARNING =
  'This channel is open: whoever knows a session_id can continue that conversation. Set a verify token to close it.';

/** The channel after a change. The token is kept only as its hash. */
export const applyChannelChange = (channel: Channel, change: ChannelChange): Channel => {
  if (!('connected' in change)) return { ...channel, limitPerMinute: change.limitPerMinute };
  if (!change.connected) return { ...channel, connected: false, tokenHash: null };
  return {
    connected: true,
    tokenHash: change.token === null ? null : hashSecret(change.token),
    limitPerMinute: change.limitPerMinute ?? channel.limitPerMinute,
  };
};

/** True where no token is set, or the one given is it; compared in constant time, by hash. */
export const isTokenAccepted = (channel: Channel, token: string | null): boolean => {
  if (channel.tokenHash === null) return true;
  if (token === null) return false;
  return timingSafeEqual(Buffer.from(channel.tokenHash), Buffer.from(hashSecret(token)));
};
