import { createHash } from 'node:crypto';
import {
  MAX_PENDING,
  type RecentTurn,
  RESUMABLE_FOR_MS,
  type StoredConversation,
  type PendingTurn,
} from './conversation.ts';

/** How the exact text of a message is recognised within its session (docs/contract.md, Retry is safe). */
export const dedupeKeyOf = (message: string): string =>
  createHash('sha256').update(message).digest('base64url').slice(0, 22);

export type DedupeQuery = {
  turnId: string;
  /** Null under an `Idempotency-Key`: content matching is off. */
  dedupeKey: string | null;
  /** Set where the turn id was reserved by an `Idempotency-Key`: whoever comes under it too may have brought the turn. */
  reserved: boolean;
  windowMs: number;
  now: number;
};

/**
 * What a message means for a conversation that already knows something of it. `own` = this very turn, accepted by a write
 * whose answer was lost. All but `new` and `resume` accept nothing.
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

/** Nothing came after it: no turn, waiting or answered, and no operator's or system message. */
const isLatest = (turn: RecentTurn, { seq, waiting, recent }: KnownTurns): boolean =>
  waiting.length === 0 && recent.at(-1)?.turnId === turn.turnId && seq === lastSeqOf(turn);

const resumeOrBusy = (turn: RecentTurn, conversation: KnownTurns): Decision =>
  conversation.waiting.length >= MAX_PENDING ? { kind: 'busy' } : { kind: 'resume', turn };

/**
 * The decision table, in its order (docs/contract.md, Retry is safe). `isDelivered` = some caller is recorded to have got
 * the response.
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
      // Written by another machine's clock, which may be ahead.
      const age = Math.max(0, now - known.finishedAt.getTime());
      if (age <= RESUMABLE_FOR_MS && known.outcome === 'failed') return resumeOrBusy(known, conversation);
      if (age <= RESUMABLE_FOR_MS && !known.async && !isDelivered(known.turnId)) return { kind: 'replay', turn: known };
      if (known.outcome === 'answered' && age < query.windowMs && isLatest(known, conversation))
        return { kind: 'replay', turn: known };
    }
  }
  return conversation.waiting.length >= MAX_PENDING ? { kind: 'busy' } : { kind: 'new' };
};
