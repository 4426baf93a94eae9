import { createHash } from 'node:crypto';
import {
  MAX_PENDING,
  type RecentTurn,
  RESUMABLE_FOR_MS,
  type StoredConversation,
  type PendingTurn,
} from './conversation.ts';

/**
 * A hash of a message's exact text, to recognise a repeated message in its session (docs/contract.md, Retry is safe).
 */
export const dedupeKeyOf = (message: string): string =>
  createHash('sha256').update(message).digest('base64url').slice(0, 22);

type DedupeQuery = {
  turnId: string;
  /** Null for a message with an `Idempotency-Key`, because such a message is not matched by content. */
  dedupeKey: string | null;
  /**
   * True if an `Idempotency-Key` reserved the turn id. Another request with this key may then have created the turn.
   */
  reserved: boolean;
  windowMs: number;
  now: number;
};

/**
 * What to do with a message whose conversation exists. `own`: an earlier write of this request stored the turn, but the
 * answer to that write was lost. Only `new` and `resume` accept a turn.
 */
export type Decision =
  | { kind: 'own'; turn: PendingTurn }
  | { kind: 'join'; turn: PendingTurn }
  | { kind: 'replay'; turn: RecentTurn }
  | { kind: 'resume'; turn: RecentTurn }
  | { kind: 'busy' }
  | { kind: 'new' };

type KnownTurns = Pick<StoredConversation, 'seq' | 'waiting' | 'recent'>;

const lastSeqOf = ({ seq, replySeq }: RecentTurn): number => Math.max(seq, replySeq ?? 0);

/**
 * True if the turn is the last entry of the conversation: no other turn, pending or finished, and no operator or system
 * message came later.
 */
const isLatest = (turn: RecentTurn, { seq, waiting, recent }: KnownTurns): boolean =>
  waiting.length === 0 && recent.at(-1)?.turnId === turn.turnId && seq === lastSeqOf(turn);

const resumeOrBusy = (turn: RecentTurn, conversation: KnownTurns): Decision =>
  conversation.waiting.length >= MAX_PENDING ? { kind: 'busy' } : { kind: 'resume', turn };

/**
 * Implements the decision table of docs/contract.md (Retry is safe), in the same order. `isDelivered`: the response is
 * recorded as delivered to a caller.
 */
export const decide = (
  conversation: KnownTurns,
  query: DedupeQuery,
  isDelivered: (turnId: string) => boolean,
): Decision => {
  const { turnId, dedupeKey, now } = query;
  const ownWaiting = conversation.waiting.find((turn) => turn.turnId === turnId);
  if (ownWaiting) return { kind: query.reserved ? 'join' : 'own', turn: ownWaiting };
  const ownRecent = conversation.recent.find((turn) => turn.turnId === turnId);
  if (ownRecent)
    return ownRecent.outcome === 'failed' ? resumeOrBusy(ownRecent, conversation) : { kind: 'replay', turn: ownRecent };

  if (dedupeKey !== null) {
    const inFlight = conversation.waiting.find((turn) => turn.dedupeKey === dedupeKey);
    if (inFlight) return { kind: 'join', turn: inFlight };
    const known = conversation.recent.findLast((turn) => turn.dedupeKey === dedupeKey);
    if (known) {
      // `finishedAt` may come from a clock that is ahead of this one, so the age is never below zero.
      const age = Math.max(0, now - known.finishedAt.getTime());
      if (age <= RESUMABLE_FOR_MS && known.outcome === 'failed') return resumeOrBusy(known, conversation);
      if (age <= RESUMABLE_FOR_MS && !known.async && !isDelivered(known.turnId)) return { kind: 'replay', turn: known };
      if (known.outcome === 'answered' && age < query.windowMs && isLatest(known, conversation))
        return { kind: 'replay', turn: known };
    }
  }
  return conversation.waiting.length >= MAX_PENDING ? { kind: 'busy' } : { kind: 'new' };
};
