import type { Connection } from 'mongoose';
import { createBatcher } from '../platform/batch.ts';
import { collectionOf, createReader, updateMany, type UpdateStatement } from '../platform/mongo.ts';
import {
  conversationModels,
  MAX_WAITING,
  PAGE_SIZE,
  type RecentTurn,
  RESUMABLE_FOR_MS,
  type StoredConversation,
} from './conversation.ts';
import type { Hints } from './hints.ts';
import { hasFullPage, type Messages, type StoredPages, takenOut } from './messages.ts';
import { newOutboxEvent, type ReceiversOf } from './outbox.ts';
import type { AnswerableConversation, EndedTurn } from './turn-end.ts';

/** Finished turns a conversation keeps in any case. */
const RECENT_MIN = 20;
/** At most so many after a clearing; those that end before the next one come on top, 200 in all. */
const RECENT_MAX = 200 - PAGE_SIZE - MAX_WAITING;

export type Committed = {
  /** Turn that is head now. */
  nextTurnId: string | null;
  /** An event was put into the outbox. */
  announced: boolean;
};

/** What a commit takes out of the document, about once in eight turns: pages that were stored, marks that may fall. */
export type Clearing = { pages: StoredPages; keepRecent: number };

/**
 * How many finished turns stay: the last 20, plus failed and undelivered ones of 10 minutes. `falling` = the oldest ones,
 * those that are not among the last 20 once `count` are there.
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
  return kept === -1 ? RECENT_MIN : Math.min(RECENT_MAX, count - kept);
};

/**
 * The commit of a line's first turns as one update on the conversation as it was read. Everything the choice of the replies
 * rested on is in the filter, so that a handoff, an operator's message or a new waiter in between makes it match nothing.
 */
export const commitStatement = (
  read: AnswerableConversation,
  ended: EndedTurn[],
  { receiversOf, clearing }: { receiversOf: ReceiversOf; clearing: Clearing | null },
): { statement: UpdateStatement; announced: boolean } => {
  const committed = read.waiting.slice(0, ended.length);
  const [head] = committed;
  if (!head) throw new Error('a commit needs a head');
  const entries = ended.flatMap((turn) => turn.entries);
  const events = ended
    .map(({ event, mark }) => event && newOutboxEvent(event, receiversOf, mark.finishedAt))
    .filter((event) => event !== null);
  const marks = ended.map(({ mark }) => mark);
  const statement: UpdateStatement = {
    q: {
      _id: read._id,
      conversationId: read.conversationId,
      seq: read.seq,
      status: read.status,
      leadScore: read.leadScore,
      // A line moves at its head and grows at its end: where this one is first, those read after it still follow.
      'waiting.0.turnId': head.turnId,
      ...Object.fromEntries(committed.map(({ replyTo }, at) => [`waiting.${at}.replyTo`, { $size: replyTo.length }])),
      // Whoever came meanwhile was told that another is head: nobody but the next reading would find them.
      ...(read.waiting.length === committed.length && { waiting: { $size: committed.length } }),
    },
    u: {
      $set: {
        ...Object.assign({}, ...ended.map(({ changes }) => changes)),
        ...Object.fromEntries(entries.map(({ seq, messages }) => [`texts.${seq}`, messages])),
        ...(clearing && { storedTo: clearing.pages.storedTo }),
      },
      ...(clearing && { $unset: takenOut(clearing.pages) }),
      ...(committed.length === 1
        ? { $pop: { waiting: -1 } }
        : { $pull: { waiting: { turnId: { $in: committed.map(({ turnId }) => turnId) } } } }),
      $push: {
        recent: clearing ? { $each: marks, $slice: -clearing.keepRecent } : { $each: marks },
        ...(events.length > 0 && { outbox: { $each: events } }),
      },
      $currentDate: { updatedAt: true, headSince: true },
    },
  };
  return { statement, announced: events.length > 0 };
};

type Write = { key: string; statement: UpdateStatement; mark: RecentTurn };

/** One atomic update ends the first turns of a line, batched with the commits beside it. */
export const createCommit = (dependencies: { connection: Connection; messages: Messages; hints: Hints }) => {
  const { connection, messages, hints } = dependencies;
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const write = createBatcher<Write, boolean>(async (items) => {
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

  const readForClearing = createReader(conversations, { conversationId: 1, seq: 1, texts: 1, recent: 1 });

  /** `changed`: the conversation is no longer what was read. Null: it is too early for a clearing. */
  const clear = async (
    { _id: key, conversationId, seq, storedTo }: AnswerableConversation,
    ending: number,
  ): Promise<Clearing | 'changed' | null> => {
    if (!hasFullPage({ seq, storedTo })) return null;
    const now = await readForClearing(key);
    if (now?.conversationId !== conversationId || now.seq !== seq) return 'changed';
    const count = now.recent.length + ending;
    const falling = now.recent.slice(0, Math.max(0, count - RECENT_MIN));
    const [pages, delivered] = await Promise.all([
      messages.storeFullPages(now),
      hints.findDelivered(falling.map(({ turnId }) => ({ key, turnId }))),
    ]);
    return { pages, keepRecent: countRecent({ falling, count }, (turnId) => delivered.has(turnId), Date.now()) };
  };

  /** Null: the conversation changed since it was read, read it again. */
  return async (
    read: AnswerableConversation,
    ended: EndedTurn[],
    receiversOf: ReceiversOf,
  ): Promise<Committed | null> => {
    const clearing = await clear(read, ended.length);
    if (clearing === 'changed') return null;
    const { statement, announced } = commitStatement(read, ended, { receiversOf, clearing });
    const last = ended.at(-1);
    if (!last) throw new Error('a commit needs a turn that ended');
    if (!(await write({ key: read._id, statement, mark: last.mark }))) {
      if (clearing) await messages.eraseIfGone(read);
      return null;
    }
    return { announced, nextTurnId: last.after.waiting[0]?.turnId ?? null };
  };
};

export type Commit = ReturnType<typeof createCommit>;
