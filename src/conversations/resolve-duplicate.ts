import type { Connection } from 'mongoose';
import { serverNow } from '../platform/clock.ts';
import { updateMany, type UpdateStatement } from '../platform/mongo.ts';
import { toItemFailure } from '../platform/mongo-failures.ts';
import type { Accepted, AcceptOptions } from './accepted.ts';
import type { ReceiversOf } from './announce.ts';
import { type FindDelivered, type RecentTurn, REOPENED, type StoredConversation } from './conversation.ts';
import { type Decision, decide } from './duplicates.ts';
import type { History } from './history.ts';
import { mayAnnounce, type NewTurn, pushTurn, newReceivedEvent, toPending, notPendingFilter } from './new-turn.ts';

type Dependencies = { connection: Connection; findDelivered: FindDelivered; history: History };
type Options = AcceptOptions & { receiversOf: ReceiversOf };

/**
 * Decides what to do with a message that the upsert refused: new turn, duplicate or busy. The decision uses the
 * conversation as it was read. The write is a compare-and-set on that state.
 */
export const createResolveDuplicate = ({ connection, findDelivered, history }: Dependencies) => {
  /**
   * Sends a raw command, because the driver would retry an update of its own. If such a retry finds no server, its
   * error looks as if nothing was written, although the first try may be stored.
   */
  const compareAndSet = async (q: Record<string, unknown>, u: UpdateStatement['u']): Promise<boolean> => {
    const { n, writeErrors = [] } = await updateMany(connection, 'conversations', [{ q, u }]);
    if (writeErrors[0]) throw toItemFailure(writeErrors[0]).cause;
    return n === 1;
  };

  /**
   * Joins a pending turn. If `replyTo` is null, nobody waits for the reply, but the write still ensures that the joined
   * turn is durable.
   */
  const join = async (conversation: StoredConversation, turnId: string, replyTo: string | null): Promise<boolean> => {
    const { _id, conversationId } = conversation;
    return compareAndSet(
      { _id, conversationId, 'waiting.turnId': turnId },
      replyTo === null ? { $set: { 'waiting.$.async': true } } : { $addToSet: { 'waiting.$.replyTo': replyTo } },
    );
  };

  const unchangedFilter = ({ _id, conversationId, seq, status }: StoredConversation) => ({
    _id,
    conversationId,
    seq,
    status,
  });
  const reopenedFields = ({ status }: StoredConversation) => (status === 'resolved' ? REOPENED : {});
  const endedAssignment = ({ status }: StoredConversation) =>
    status === 'resolved' ? { $unset: { assigneeId: 1 } } : {};

  const pushNew = (conversation: StoredConversation, turn: NewTurn, receiversOf: ReceiversOf): Promise<boolean> => {
    const { $push, $currentDate } = pushTurn(toPending(turn), newReceivedEvent(turn, receiversOf));
    return compareAndSet(
      { ...unchangedFilter(conversation), ...notPendingFilter(turn), 'recent.turnId': { $ne: turn.turnId } },
      {
        $push,
        $set: { language: turn.language, ...reopenedFields(conversation) },
        ...endedAssignment(conversation),
        $currentDate,
      },
    );
  };

  /**
   * Appends the failed turn to the pending turns under its old id. Its visitor message keeps its `seq`. No event is
   * announced.
   */
  const pushResumed = (conversation: StoredConversation, failed: RecentTurn, turn: NewTurn): Promise<boolean> => {
    const waiting = { ...toPending(turn), turnId: failed.turnId, messageId: failed.messageId, seq: failed.seq };
    return compareAndSet(
      {
        ...unchangedFilter(conversation),
        ...notPendingFilter({ ...turn, turnId: failed.turnId }),
        // A failed turn that was found in `recent` must still be there. An older turn was found only in `messages`, so
        // it must not be in `recent`.
        ...(conversation.recent.includes(failed)
          ? { recent: { $elemMatch: { turnId: failed.turnId, outcome: 'failed' } } }
          : { 'recent.turnId': { $ne: failed.turnId } }),
      },
      {
        $push: { waiting },
        $pull: { recent: { turnId: failed.turnId } },
        $set: { headSince: turn.acceptedAt, ...reopenedFields(conversation) },
        ...endedAssignment(conversation),
        $currentDate: { updatedAt: true },
      },
    );
  };

  const decideOn = async (conversation: StoredConversation, turn: NewTurn, windowMs: number): Promise<Decision> => {
    const { turnId, dedupeKey, key } = turn;
    const similar = conversation.recent.filter((known) => known.dedupeKey === dedupeKey && dedupeKey !== null);
    const delivered = await findDelivered(similar.map((known) => ({ key, turnId: known.turnId })));
    const query = { turnId, dedupeKey, reserved: turn.reservation !== null, windowMs, now: serverNow() };
    const decision = decide(conversation, query, (known) => delivered.has(known));
    const longAgo = decision.kind === 'new' && turn.reservation === 'known';
    const finished = longAgo ? await history.findFinishedTurn(conversation, turnId) : null;
    if (!finished) return decision;
    return finished.outcome === 'failed' ? { kind: 'resume', turn: finished } : { kind: 'replay', turn: finished };
  };

  /**
   * Tries once. Returns null if the conversation has changed since it was read; the caller must then read it and try
   * again.
   */
  return async (conversation: StoredConversation, turn: NewTurn, options: Options): Promise<Accepted | null> => {
    const { conversationId, waiting } = conversation;
    const decision = await decideOn(conversation, turn, options.windowMs);
    switch (decision.kind) {
      case 'busy':
        return { kind: 'busy' };
      case 'replay':
        return { kind: 'replayed', conversation, turn: decision.turn };
      case 'own':
        return {
          kind: 'accepted',
          conversationId,
          turnId: turn.turnId,
          head: waiting[0]?.turnId === turn.turnId,
          resumed: false,
          announced: mayAnnounce(options.receiversOf),
        };
      case 'join':
        options.watch(decision.turn.turnId);
        return (await join(conversation, decision.turn.turnId, turn.replyTo))
          ? { kind: 'joined', conversationId, turnId: decision.turn.turnId }
          : null;
      case 'resume': {
        const { turnId } = decision.turn;
        options.watch(turnId);
        return (await pushResumed(conversation, decision.turn, turn))
          ? { kind: 'accepted', conversationId, turnId, head: waiting.length === 0, resumed: true, announced: false }
          : null;
      }
      case 'new': {
        if (!(await pushNew(conversation, turn, options.receiversOf))) return null;
        const head = waiting.length === 0;
        const announced = mayAnnounce(options.receiversOf);
        return { kind: 'accepted', conversationId, turnId: turn.turnId, head, resumed: false, announced };
      }
    }
  };
};

export type ResolveDuplicate = ReturnType<typeof createResolveDuplicate>;
