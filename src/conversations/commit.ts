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

const RECENT_MIN = 20;
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

  const write = createBatcher<PreparedCommit, { won: boolean; nextTurnId: string | null }>(async (items) => {
    const { n } = await updateMany(
      connection,
      'conversations',
      items.map(({ statement }) => statement),
    );
    const allWon = n === items.length;
    const unsure = items.filter(({ crowded }) => crowded || !allWon);
    if (unsure.length === 0) return items.map(({ nextTurnId }) => ({ won: true, nextTurnId }));
    const rows = await conversations
      .find(
        { _id: { $in: unsure.map(({ key }) => key) } },
        {
          projection: {
            'waiting.turnId': 1,
            'recent.turnId': 1,
            'recent.finishedAt': 1,
            'recent.replyMessageId': 1,
          },
        },
      )
      .toArray();
    const byKey = new Map(rows.map((row) => [row._id, row]));
    return items.map(({ key, mark, crowded, nextTurnId }) => {
      if (allWon && !crowded) return { won: true, nextTurnId };
      const row = byKey.get(key);
      const won =
        allWon ||
        row?.recent.some(
          (known) =>
            known.turnId === mark.turnId &&
            known.replyMessageId === mark.replyMessageId &&
            known.finishedAt.getTime() === mark.finishedAt.getTime(),
        ) === true;
      return { won, nextTurnId: row?.waiting[0]?.turnId ?? null };
    });
  });

  const fallingOf = async ({ _id, recent, recentCount }: AnswerableConversation): Promise<RecentTurn[]> => {
    const size = Math.max(0, recentCount + 1 - RECENT_MIN);
    if (size <= recent.length) return recent.slice(0, size);
    const whole = await conversations.findOne({ _id }, { projection: { recent: 1 } });
    return whole?.recent.slice(0, size) ?? [];
  };

  return async (
    conversation: AnswerableConversation,
    end: TurnEnd,
    { receiversOf, crowded }: { receiversOf: ReceiversOf; crowded: boolean },
  ): Promise<Committed | null> => {
    const { _id: key } = conversation;
    const findFalling = async () => {
      const falling = await fallingOf(conversation);
      const delivered = await hints.findDelivered(falling.map(({ turnId }) => ({ key, turnId })));
      return { falling, delivered };
    };
    const [storedSeqs, { falling, delivered }] = await Promise.all([
      messages.storeFullPages(conversation),
      findFalling(),
    ]);
    const kept = { falling, count: conversation.recentCount };
    const keepRecent = countRecent(kept, (turnId) => delivered.has(turnId), Date.now());
    const prepared = prepareCommit(conversation, end, { receiversOf, storedSeqs, keepRecent, crowded });
    const { won, nextTurnId } = await write(prepared);
    if (!won) {
      await messages.eraseIfGone(conversation);
      return null;
    }
    return { reply: prepared.reply, seq: prepared.mark.seq, nextTurnId, announced: prepared.announced };
  };
};

export type Commit = ReturnType<typeof createCommit>;
