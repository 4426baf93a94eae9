import type { mongo } from 'mongoose';
import type { StoredConversation } from '../conversations/conversation.ts';

type Snoozed = Pick<StoredConversation, 'snoozedUntil' | 'snoozedAt' | 'waiting' | 'recent'>;

/**
 * The end of the snooze, or null if the conversation is not snoozed now. A visitor's message ends a snooze. This is
 * computed from the pending and finished turns, so that accepting a turn writes nothing more.
 */
export const snoozedUntilOf = ({ snoozedUntil, snoozedAt, waiting, recent }: Snoozed, now: Date): Date | null => {
  if (!snoozedUntil || !snoozedAt || snoozedUntil <= now) return null;
  const hasTurnSince =
    waiting.some(({ acceptedAt }) => acceptedAt > snoozedAt) || recent.some(({ finishedAt }) => finishedAt > snoozedAt);
  return hasTurnSince ? null : snoozedUntil;
};

const LAST_TURN = { $max: [{ $max: '$recent.finishedAt' }, { $max: '$waiting.acceptedAt' }] };

/** The same rule as a filter. */
export const snoozedFilter = (snoozed: boolean, now: Date): mongo.Filter<StoredConversation> =>
  snoozed
    ? { snoozedUntil: { $gt: now }, $expr: { $lte: [LAST_TURN, '$snoozedAt'] } }
    : { $or: [{ snoozedUntil: { $not: { $gt: now } } }, { $expr: { $gt: [LAST_TURN, '$snoozedAt'] } }] };
