import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from 'mongoose';
import { createBatcher } from '../platform/batch.ts';
import { ApiError, unavailable } from '../platform/errors.ts';
import {
  collectionOf,
  DUPLICATE_KEY,
  isConnectionFailure,
  OutcomeUnknown,
  updateMany,
  type UpdateStatement,
  wasNeverSent,
  wasNotPrimary,
} from '../platform/mongo.ts';
import { conversationModels, type RecentTurn, REOPENED, type StoredConversation } from './conversation.ts';
import type { Hints } from './hints.ts';
import { type Decision, decide } from './line.ts';
import type { Messages } from './messages.ts';
import { acceptStatement, type NewTurn, pushTurn, received, toWaiting, untouchedBy } from './new-turn.ts';
import type { ReceiversOf } from './outbox.ts';

/** How long an accept whose outcome is unknown is looked for before the caller is told 500. */
const ACCEPT_DEADLINE_MS = 5_000;
const LOOK_AGAIN_MS = 50;

export type AcceptOptions = {
  receiversOf: ReceiversOf;
  windowMs: number;
  /**
   * The caller needs the conversation's id, or other turns of the session are known to be under way: then what was written
   * is read back. Otherwise the turn is taken for head of its line; where it is not, the worker finds so.
   */
  readBack: boolean;
  /** Called before a join is written, so that no answer can come between. */
  watch: (turnId: string) => void;
};

export type Accepted =
  | {
      kind: 'accepted';
      /** Null where it was not read back; the reply brings it. */
      conversationId: string | null;
      turnId: string;
      /** As known or believed: a worker asks MongoDB. */
      head: boolean;
      /** A failed turn, back in line under its old id. */
      resumed: boolean;
      /** The outbox may have something new to send. */
      announced: boolean;
    }
  | { kind: 'joined'; conversationId: string; turnId: string }
  | { kind: 'replayed'; conversation: StoredConversation; turn: RecentTurn }
  | { kind: 'busy' };

/** With nobody to tell there is no event, and nobody to wake. */
const isAnnounced = ({ receiversOf }: AcceptOptions): boolean =>
  receiversOf('message.received').length > 0 || receiversOf('conversation.created').length > 0;

type Upsert = Pick<AcceptOptions, 'receiversOf' | 'readBack'> & { turn: NewTurn };
type Upserted = { conversationId: string | null; head: boolean } | null;

/**
 * The conversation takes the turn: one atomic upsert, batched with what arrives beside it. Its duplicate-key error is the
 * sign that the document says more than the filter could; then it is read, and a compare-and-set on all that was read
 * decides (design §2).
 */
export const createAccept = ({
  connection,
  hints,
  messages,
}: {
  connection: Connection;
  hints: Hints;
  messages: Messages;
}) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const readBack = async (
    keys: string[],
  ): Promise<Map<string, Pick<StoredConversation, 'conversationId' | 'waiting'>>> => {
    if (keys.length === 0) return new Map();
    const rows = await conversations
      .find({ _id: { $in: [...new Set(keys)] } }, { projection: { conversationId: 1, 'waiting.turnId': 1 } })
      .toArray()
      .catch((cause: unknown) => {
        throw new OutcomeUnknown('accepted turns could not be read back', { cause });
      });
    return new Map(rows.map((row) => [row._id, row]));
  };

  const upsert = createBatcher<Upsert, Upserted>(async (items) => {
    const { writeErrors = [] } = await updateMany(
      connection,
      'conversations',
      items.map(({ turn, receiversOf }) => acceptStatement(turn, receiversOf)),
    ).catch((cause: unknown) => {
      // It may have stepped down between two statements of the batch.
      throw wasNotPrimary(cause) && items.length > 1 ? new OutcomeUnknown('a batch was refused', { cause }) : cause;
    });
    const refused = new Set<number>();
    for (const { index, code } of writeErrors) {
      if (code !== DUPLICATE_KEY) throw new OutcomeUnknown(`a turn of a batch could not be stored (code ${code})`);
      refused.add(index);
    }
    const written = items.filter((_, index) => !refused.has(index));
    const rows = await readBack(written.filter((item) => item.readBack).map(({ turn }) => turn.key));
    return items.map(({ turn, readBack: wasReadBack }, index) => {
      if (refused.has(index)) return null;
      if (!wasReadBack) return { conversationId: null, head: true };
      // Gone again already = erased between write and read; the waiting caller will be told 404.
      const row = rows.get(turn.key);
      return {
        conversationId: row?.conversationId ?? turn.conversationId,
        head: row?.waiting[0]?.turnId === turn.turnId,
      };
    });
  });

  /** A raw command: the driver would retry, and a retry that finds no server hides that the first try was sent. */
  const compareAndSet = async (q: Record<string, unknown>, u: UpdateStatement['u']): Promise<boolean> => {
    const { n, writeErrors = [] } = await updateMany(connection, 'conversations', [{ q, u }]);
    if (writeErrors[0]) throw new Error(`a turn could not be stored (code ${writeErrors[0].code})`);
    return n === 1;
  };

  /** Where nobody will wait, the write makes sure all the same that the turn joined is a durable one. */
  const join = async (conversation: StoredConversation, turnId: string, replyTo: string | null): Promise<boolean> => {
    const { _id, conversationId } = conversation;
    return compareAndSet(
      { _id, conversationId, 'waiting.turnId': turnId },
      replyTo === null ? { $set: { 'waiting.$.async': true } } : { $addToSet: { 'waiting.$.replyTo': replyTo } },
    );
  };

  const asRead = ({ _id, conversationId, seq, status }: StoredConversation) => ({ _id, conversationId, seq, status });
  const reopening = ({ status }: StoredConversation) => (status === 'resolved' ? REOPENED : {});

  const pushNew = (conversation: StoredConversation, turn: NewTurn, receiversOf: ReceiversOf): Promise<boolean> => {
    const { $push, $currentDate } = pushTurn(toWaiting(turn), received(turn, receiversOf));
    return compareAndSet(
      { ...asRead(conversation), ...untouchedBy(turn), 'recent.turnId': { $ne: turn.turnId } },
      {
        $push,
        $set: { language: turn.language, ...reopening(conversation) },
        $currentDate,
      },
    );
  };

  /** Back at the end of the line under its old id, announcing nothing new; its visitor message keeps its seq. */
  const pushAgain = (conversation: StoredConversation, failed: RecentTurn, turn: NewTurn): Promise<boolean> => {
    const waiting = { ...toWaiting(turn), turnId: failed.turnId, messageId: failed.messageId, seq: failed.seq };
    return compareAndSet(
      {
        ...asRead(conversation),
        ...untouchedBy({ ...turn, turnId: failed.turnId }),
        // Read as failed in `recent`, or, long after, in `messages` alone.
        ...(conversation.recent.includes(failed)
          ? { recent: { $elemMatch: { turnId: failed.turnId, outcome: 'failed' } } }
          : { 'recent.turnId': { $ne: failed.turnId } }),
      },
      {
        $push: { waiting },
        $pull: { recent: { turnId: failed.turnId } },
        $set: { headSince: turn.acceptedAt, ...reopening(conversation) },
        $currentDate: { updatedAt: true },
      },
    );
  };

  const decideOn = async (conversation: StoredConversation, turn: NewTurn, windowMs: number): Promise<Decision> => {
    const { turnId, dedupeKey, key } = turn;
    const similar = conversation.recent.filter((known) => known.dedupeKey === dedupeKey && dedupeKey !== null);
    const delivered = await hints.findDelivered(similar.map((known) => ({ key, turnId: known.turnId })));
    const query = { turnId, dedupeKey, reserved: turn.reservation !== null, windowMs, now: Date.now() };
    const decision = decide(conversation, query, (known) => delivered.has(known));
    const longAgo = decision.kind === 'new' && turn.reservation === 'known';
    const settled = longAgo ? await messages.findSettledTurn(conversation, turnId) : null;
    if (!settled) return decision;
    return settled.outcome === 'failed' ? { kind: 'resume', turn: settled } : { kind: 'replay', turn: settled };
  };

  /** One try at a conversation that exists; null = it changed in between, decide again. */
  const settle = async (
    conversation: StoredConversation,
    turn: NewTurn,
    options: AcceptOptions,
  ): Promise<Accepted | null> => {
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
          announced: isAnnounced(options),
        };
      case 'join':
        options.watch(decision.turn.turnId);
        return (await join(conversation, decision.turn.turnId, turn.replyTo))
          ? { kind: 'joined', conversationId, turnId: decision.turn.turnId }
          : null;
      case 'resume': {
        const { turnId } = decision.turn;
        options.watch(turnId);
        return (await pushAgain(conversation, decision.turn, turn))
          ? { kind: 'accepted', conversationId, turnId, head: waiting.length === 0, resumed: true, announced: false }
          : null;
      }
      case 'new': {
        if (!(await pushNew(conversation, turn, options.receiversOf))) return null;
        const head = waiting.length === 0;
        const announced = isAnnounced(options);
        return { kind: 'accepted', conversationId, turnId: turn.turnId, head, resumed: false, announced };
      }
    }
  };

  const tryOnce = async (turn: NewTurn, options: AcceptOptions, doubtful: boolean): Promise<Accepted | null> => {
    // What a doubtful write left counts once a majority has it: until then it may still be rolled back.
    const read = () => conversations.findOne({ _id: turn.key }, doubtful ? { readConcern: 'majority' } : {});
    // Under a known key the turn may have left `recent` long ago: the upsert's filter would not see it.
    const known = turn.reservation === 'known' ? await read() : null;
    const upserted = known ? null : await upsert({ turn, ...options });
    if (upserted) {
      const announced = isAnnounced(options);
      return { kind: 'accepted', ...upserted, turnId: turn.turnId, resumed: false, announced };
    }
    const conversation = known ?? (await read());
    return conversation && settle(conversation, turn, options);
  };

  /**
   * Accepts a turn, or finds the one it repeats. Throws 503 only for what was surely not accepted; an unknown outcome is
   * looked for under the same turn id until the deadline, then 500 (contract §5).
   */
  return async (turn: NewTurn, options: AcceptOptions): Promise<Accepted> => {
    const deadline = performance.now() + ACCEPT_DEADLINE_MS;
    let doubtful = false;
    for (;;) {
      try {
        const accepted = await tryOnce(turn, options, doubtful);
        if (accepted) return accepted;
      } catch (cause) {
        const refused = wasNotPrimary(cause) || wasNeverSent(cause);
        if (refused && !doubtful) throw unavailable(cause);
        if (!isConnectionFailure(cause)) throw cause;
        doubtful = true;
        await sleep(LOOK_AGAIN_MS);
      }
      if (performance.now() > deadline) throw new ApiError('internal_error');
    }
  };
};

export type Accept = ReturnType<typeof createAccept>;
