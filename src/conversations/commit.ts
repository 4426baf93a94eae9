import type { Connection } from 'mongoose';
import { collectionOf, createStoreBatcher, updateMany, type UpdateStatement } from '../platform/mongo.ts';
import { toItemFailure } from '../platform/mongo-failures.ts';
import { type Announce, newOutboxEvent, type ReceiversOf, sentEvents } from './announce.ts';
import { pushFinished, type Compact, type Compaction, trimmedFields } from './compaction.ts';
import { conversationModels, type OutboxEvent, type RecentTurn, type StoredConversation } from './conversation.ts';
import { lengthOfMessages } from './message-length.ts';
import type { MessagePages } from './message-pages.ts';
import { assigneeOf } from './transitions.ts';
import type { AnswerableConversation, TurnCommit } from './turn-commit.ts';

export type Committed = {
  /** The head of the pending turns after the commit. */
  nextTurnId: string | null;
  /** True if an event was added to the outbox. */
  announced: boolean;
};

/** The events of an ended turn: its reply, then the escalation, then the system message that the escalation leaves. */
const eventsOf = ({ entries, event, finished, language }: TurnCommit, receiversOf: ReceiversOf): OutboxEvent[] => {
  const [reply = [], ...others] = entries.map(({ seq, messages }) => sentEvents(messages, seq, language));
  return [...reply, ...(event ? [event] : []), ...others.flat()]
    .map((one) => newOutboxEvent(one, receiversOf, finished.finishedAt))
    .filter((one) => one !== null);
};

/**
 * One update that commits the first pending turns of a conversation. Its filter contains everything that the replies
 * depended on. If a handoff, an operator's message or a new waiter has changed the conversation meanwhile, the filter
 * matches nothing.
 */
export const commitStatement = (
  read: AnswerableConversation,
  ended: TurnCommit[],
  { receiversOf, compaction }: { receiversOf: ReceiversOf; compaction: Compaction | null },
): { statement: UpdateStatement; announced: boolean } => {
  const committed = read.waiting.slice(0, ended.length);
  const [head] = committed;
  if (!head) throw new Error('a commit needs a head');
  const entries = ended.flatMap((turn) => turn.entries);
  const events = ended.flatMap((turn) => eventsOf(turn, receiversOf));
  const finished = ended.map(({ finished }) => finished);
  const statement: UpdateStatement = {
    q: {
      _id: read._id,
      conversationId: read.conversationId,
      seq: read.seq,
      status: read.status,
      leadScore: read.leadScore,
      // Whether a handoff gets a take-by time depends on who has the conversation.
      ...(ended.some(({ changes }) => changes.escalatedAt) && assigneeOf(read)),
      // Turns leave the list at its head and are added at its end. So if this turn is still the head, the other
      // committed turns still follow it.
      'waiting.0.turnId': head.turnId,
      ...Object.fromEntries(committed.map(({ replyTo }, at) => [`waiting.${at}.replyTo`, { $size: replyTo.length }])),
      // If all pending turns are committed, no turn may have been added meanwhile. Such a turn would have no job,
      // because it was not the head when it was accepted. So the commit fails, and the next read finds the turn.
      ...(read.waiting.length === committed.length && { waiting: { $size: committed.length } }),
    },
    u: {
      $set: {
        ...Object.assign({}, ...ended.map(({ changes }) => changes)),
        ...Object.fromEntries(entries.map(({ seq, messages }) => [`texts.${seq}`, messages])),
        ...(compaction && { storedTo: compaction.storedTo }),
      },
      ...(compaction && { $unset: trimmedFields(compaction) }),
      ...(committed.length === 1
        ? { $pop: { waiting: -1 } }
        : { $pull: { waiting: { turnId: { $in: committed.map(({ turnId }) => turnId) } } } }),
      $push: {
        recent: pushFinished(finished, compaction),
        ...(events.length > 0 && { outbox: { $each: events } }),
      },
      $currentDate: { updatedAt: true, headSince: true },
    },
  };
  return { statement, announced: events.length > 0 };
};

type Write = { key: string; statement: UpdateStatement; finished: RecentTurn; length: number };

/** The length of the texts that a commit stores. */
const lengthOf = (ended: TurnCommit[]): number =>
  ended.flatMap(({ entries }) => entries).reduce((sum, { messages }) => sum + lengthOfMessages(messages), 0);

type Dependencies = { connection: Connection; pages: MessagePages; compact: Compact; announce: Announce };

/**
 * Ends the first pending turns of a conversation with one atomic update, in a batch with commits of other
 * conversations.
 */
export const createCommit = ({ connection, pages, compact, announce }: Dependencies) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const write = createStoreBatcher<Write, boolean>(
    async (items) => {
      const { n, writeErrors = [] } = await updateMany(
        connection,
        'conversations',
        items.map(({ statement }) => statement),
      );
      if (n === items.length) return items.map(() => true);
      // Some updates changed nothing, most likely because their conversations had changed before the write. A commit
      // has succeeded if its last finished turn is now stored.
      const rows = await conversations
        .find(
          { _id: { $in: items.map(({ key }) => key) } },
          { projection: { 'recent.turnId': 1, 'recent.finishedAt': 1, 'recent.replyMessageId': 1 } },
        )
        .toArray();
      const recentOf = new Map(rows.map((row) => [row._id, row.recent]));
      const hasWon = ({ key, finished }: Write): boolean =>
        recentOf
          .get(key)
          ?.some(
            (known) =>
              known.turnId === finished.turnId &&
              known.replyMessageId === finished.replyMessageId &&
              known.finishedAt.getTime() === finished.finishedAt.getTime(),
          ) === true;
      const errors = new Map(writeErrors.map((error) => [error.index, error]));
      return items.map((item, index) => {
        const error = errors.get(index);
        return error ? toItemFailure(error) : hasWon(item);
      });
    },
    { lengthOf: ({ length }) => length },
  );

  const commit = async (
    read: AnswerableConversation,
    ended: TurnCommit[],
    receiversOf: ReceiversOf,
  ): Promise<Committed | null> => {
    const compaction = await compact(read, ended.length);
    if (compaction === 'changed') return null;
    const { statement, announced } = commitStatement(read, ended, { receiversOf, compaction });
    const last = ended.at(-1);
    if (!last) throw new Error('a commit needs a turn that ended');
    const won = await write({ key: read._id, statement, finished: last.finished, length: lengthOf(ended) });
    if (!won) {
      if (compaction) await pages.eraseIfGone(read);
      return null;
    }
    return { announced, nextTurnId: last.after.waiting[0]?.turnId ?? null };
  };

  /**
   * Commits the ended turns. Returns null if the conversation has changed since it was read; the caller must then read
   * the conversation again.
   */
  return (read: AnswerableConversation, ended: TurnCommit[]): Promise<Committed | null> =>
    announce(read, (receiversOf) => commit(read, ended, receiversOf));
};

export type Commit = ReturnType<typeof createCommit>;
