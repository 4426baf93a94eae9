import type { Connection } from 'mongoose';
import { createBatcher } from '../platform/batch.ts';
import { collectionOf, updateMany } from '../platform/mongo.ts';
import { conversationModels, type RecentTurn, RESUMABLE_FOR_MS, type StoredConversation } from './conversation.ts';
import type { Hints } from './hints.ts';
import type { Messages } from './messages.ts';
import type { ReceiversOf } from './outbox.ts';
import {
  type AnswerableConversation,
  type PreparedCommit,
  prepareCommit,
  type TurnEnd,
  type TurnReply,
} from './turn-end.ts';

/** Finished turns a conversation keeps in any case. */
export const RECENT_MIN = 20;
const RECENT_MAX = 200;

export type Committed = {
  reply: TurnReply;
  seq: number;
  /** Turn that is head now. */
  nextTurnId: string | null;
  /** An event was put into the outbox. */
  announced: boolean;
};

/**
 * How many finished turns stay: the last 20, plus failed and undelivered ones of 10 minutes, at most 200. `falling` = the
 * oldest ones, beyond the last 19 of those there are.
 */
const countRecent = (
  { falling, count }: { falling: RecentTurn[]; count: number },
  isDelivered: (turnId: string) => boolean,
  now: number,
): number => {
  const kept = falling.findIndex(
    ({ turnId, outcome, finishedAt, async }) =>
      now - finishedAt.getTime() < RESUMABLE_FOR_MS && (outcome === 'failed' || (!async && !isDelivered(turnId))),
  );
  return kept === -1 ? RECENT_MIN : Math.min(RECENT_MAX, count + 1 - kept);
};

/** One atomic update ends the head, batched with the commits beside it; null = the conversation changed, read it again. */
export const createCommit = (dependencies: { connection: Connection; messages: Messages; hints: Hints }) => {
  const { connection, messages, hints } = dependencies;
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const write = createBatcher<PreparedCommit, boolean>(async (items) => {
    const { n } = await updateMany(
      connection,
      'conversations',
      items.map(({ statement }) => statement),
    );
    if (n === items.length) return items.map(() => true);
    // Some changed in between; whose mark stands has won.
    const rows = await conversations
      .find(
        { _id: { $in: items.map(({ key }) => key) } },
        { projection: { 'recent.turnId': 1, 'recent.finishedAt': 1, 'recent.replyMessageId': 1 } },
      )
      .toArray();
    const recentOf = new Map(rows.map((row) => [row._id, row.recent]));
    return items.map(
      ({ key, mark }) =>
        recentOf
          .get(key)
          ?.some(
            (known) =>
              known.turnId === mark.turnId &&
              known.replyMessageId === mark.replyMessageId &&
              known.finishedAt.getTime() === mark.finishedAt.getTime(),
          ) === true,
    );
  });

  return async (
    conversation: AnswerableConversation,
    end: TurnEnd,
    receiversOf: ReceiversOf,
  ): Promise<Committed | null> => {
    const { _id: key } = conversation;
    const falling = conversation.recent.slice(0, Math.max(0, conversation.recentCount + 1 - RECENT_MIN));
    const [storedSeqs, delivered] = await Promise.all([
      messages.storeFullPages(conversation),
      hints.findDelivered(falling.map(({ turnId }) => ({ key, turnId }))),
    ]);
    const kept = { falling, count: conversation.recentCount };
    const keepRecent = countRecent(kept, (turnId) => delivered.has(turnId), Date.now());
    const prepared = prepareCommit(conversation, end, { receiversOf, storedSeqs, keepRecent });
    if (!(await write(prepared))) {
      await messages.eraseIfGone(conversation);
      return null;
    }
    const { reply, mark, nextTurnId, announced } = prepared;
    return { reply, seq: mark.seq, nextTurnId, announced };
  };
};

export type Commit = ReturnType<typeof createCommit>;
