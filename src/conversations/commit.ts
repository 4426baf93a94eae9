import type { Connection } from 'mongoose';
import type { ItemFailure } from '../platform/process/batch.ts';
import { serverNow } from '../platform/process/clock.ts';
import { type TraceSpan, type Tracing, within } from '../platform/process/tracing.ts';
import { toItemFailure } from '../platform/mongo/failures.ts';
import {
  collectionOf,
  createReader,
  createUpdateBatcher,
  readRows,
  updateMany,
  type UpdateStatement,
} from '../platform/mongo/mongo.ts';
import { type Announce, countAnnounced, type ReceiversOf, toOutbox } from './outbox.ts';
import {
  conversationModels,
  CONVERSATIONS,
  type FindDelivered,
  LONG_AT_ONCE,
  MAX_PENDING,
  type OutboxEvent,
  PAGE_SIZE,
  type RecentTurn,
  RESUMABLE_FOR_MS,
  type StoredConversation,
  unchangedFilter,
  updateOf,
} from './conversation.ts';
import { hasFullPage, lengthOfMessages, type MessagePages, type StoredPages } from './history.ts';
import type { Effect, Ended } from './state.ts';

/**
 * The fields of a conversation that an answer can depend on. A worker reads these fields, and computes them again after
 * each turn that it ends.
 */
export type AnswerableConversation = Pick<
  StoredConversation,
  | '_id'
  | 'conversationId'
  | 'assistantId'
  | 'channel'
  | 'status'
  | 'leadScore'
  | 'leadBecause'
  | 'lowConfidenceStreak'
  | 'engineErrorStreak'
  | 'holding'
  | 'waitingSince'
  | 'assigneeId'
  | 'seq'
  | 'storedTo'
  | 'waiting'
>;

/**
 * The number of finished turns that a conversation always keeps. A finished turn can be found only in this list until
 * its messages are stored as a page. So the list must have room for the turns of an incomplete page and for the maximum
 * number of pending turns.
 */
const RECENT_MIN = PAGE_SIZE + MAX_PENDING;
/**
 * A compaction leaves at most this many finished turns in the document. Before the next compaction, at most RECENT_MIN
 * more turns finish, so the document never has more than 200.
 */
const RECENT_MAX = 200 - RECENT_MIN;

/** What a write removes from the document: messages that are stored as pages now, and the oldest finished turns. */
type Compaction = StoredPages & { keepRecent: number };

type Written = Pick<Effect, 'changes' | 'entries'> & {
  finished?: RecentTurn[];
  events: OutboxEvent[];
  compaction: Compaction | null;
};

/** The parts of an update that store a change: its fields, messages, ended turns and events, and a compaction. */
export const updateWith = ({ changes, entries, finished = [], events, compaction }: Written) => {
  const { $set, $unset } = updateOf(changes);
  const trimmed = compaction?.numbers.map((seq) => [`texts.${seq}`, 1] as const) ?? [];
  const removed = { ...$unset, ...Object.fromEntries(trimmed) };
  return {
    $set: {
      ...$set,
      ...Object.fromEntries(entries.map(({ seq, messages }) => [`texts.${seq}`, messages])),
      ...(compaction && { storedTo: compaction.storedTo }),
    },
    ...(Object.keys(removed).length > 0 && { $unset: removed }),
    $push: {
      ...((finished.length > 0 || compaction) && {
        recent: { $each: finished, ...(compaction && { $slice: -compaction.keepRecent }) },
      }),
      ...(events.length > 0 && { outbox: { $each: events } }),
    },
    ...countAnnounced(events),
  };
};

/**
 * How many finished turns the document keeps. The last `RECENT_MIN` turns are always kept. The older turns
 * (`candidates`, oldest first) are kept from the first one that can still be resumed or replayed, up to `RECENT_MAX`
 * turns in all. `count` is the number of all finished turns.
 */
const countKept = (
  { candidates, count }: { candidates: RecentTurn[]; count: number },
  isDelivered: (turnId: string) => boolean,
  now: number,
): number => {
  const firstKept = candidates.findIndex(
    ({ turnId, outcome, finishedAt, async }) =>
      now - finishedAt.getTime() < RESUMABLE_FOR_MS && (outcome === 'failed' || (!async && !isDelivered(turnId))),
  );
  return firstKept === -1 ? RECENT_MIN : Math.min(RECENT_MAX, count - firstKept);
};

/**
 * `ending` is the number of turns that the write ends. Returns `changed` if the conversation has changed since it was
 * read, and null if there is nothing to trim.
 */
export type Compact = (
  read: Pick<StoredConversation, '_id' | 'conversationId' | 'seq' | 'storedTo'>,
  ending: number,
) => Promise<Compaction | 'changed' | null>;

/** Decides what a write removes from the document. About once per eight `seq` numbers, there is something to remove. */
export const createCompact = (dependencies: {
  connection: Connection;
  pages: MessagePages;
  findDelivered: FindDelivered;
}): Compact => {
  const { connection, pages, findDelivered } = dependencies;
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);
  const fields = { conversationId: 1, seq: 1, texts: 1, recent: 1 };
  const readForCompaction = createReader(conversations, fields, { maxItems: 4 * LONG_AT_ONCE });

  return async ({ _id: key, conversationId, seq, storedTo }, ending) => {
    if (!hasFullPage({ seq, storedTo })) return null;
    const now = await readForCompaction(key);
    if (now?.conversationId !== conversationId || now.seq !== seq) return 'changed';
    const count = now.recent.length + ending;
    const candidates = now.recent.slice(0, Math.max(0, count - RECENT_MIN));
    const [stored, delivered] = await Promise.all([
      pages.storeFullPages(now),
      findDelivered(candidates.map(({ turnId }) => ({ key, turnId }))),
    ]);
    return { ...stored, keepRecent: countKept({ candidates, count }, (turnId) => delivered.has(turnId), serverNow()) };
  };
};

type Committed = {
  /** The head of the pending turns after the commit. */
  nextTurnId: string | null;
  /** True if an event was added to the outbox. */
  announced: boolean;
};

/**
 * One update that commits the first pending turns of a conversation. Its filter contains everything that the replies
 * depended on. If a handoff, an operator's message or a new waiter has changed the conversation meanwhile, the filter
 * matches nothing.
 */
export const commitStatement = (
  read: AnswerableConversation,
  ended: Ended[],
  { receiversOf, compaction }: { receiversOf: ReceiversOf; compaction: Compaction | null },
): { statement: UpdateStatement; announced: boolean } => {
  const committed = read.waiting.slice(0, ended.length);
  const [head] = committed;
  if (!head) throw new Error('a commit needs a head');
  const entries = ended.flatMap((turn) => turn.entries);
  const events = ended.flatMap(({ events: own, finished }, at) =>
    toOutbox(own, receiversOf, { key: read._id, at: finished.finishedAt, trace: committed[at]?.trace }),
  );
  const finished = ended.map(({ finished }) => finished);
  const statement: UpdateStatement = {
    q: {
      _id: read._id,
      conversationId: read.conversationId,
      seq: read.seq,
      status: read.status,
      leadScore: read.leadScore,
      ...unchangedFilter(
        read,
        ended.flatMap(({ dependsOn }) => dependsOn),
      ),
      // Turns leave the list at its head and are added at its end. So if this turn is still the head, the other
      // committed turns still follow it.
      'waiting.0.turnId': head.turnId,
      ...Object.fromEntries(committed.map(({ replyTo }, at) => [`waiting.${at}.replyTo`, { $size: replyTo.length }])),
      // If all pending turns are committed, the commit must fail if a turn was added meanwhile. That turn has no job,
      // because it was not the head when it was accepted. The next read finds it.
      ...(read.waiting.length === committed.length && { waiting: { $size: committed.length } }),
    },
    u: {
      ...updateWith({
        changes: Object.assign({}, ...ended.map(({ changes }) => changes)),
        entries,
        finished,
        events,
        compaction,
      }),
      ...(committed.length === 1
        ? { $pop: { waiting: -1 } }
        : { $pull: { waiting: { turnId: { $in: committed.map(({ turnId }) => turnId) } } } }),
      $currentDate: { updatedAt: true, headSince: true },
    },
  };
  return { statement, announced: events.length > 0 };
};

type Write = { read: AnswerableConversation; ended: Ended[]; statement: UpdateStatement; spans: TraceSpan[] };

/** The length of the texts that a commit stores. */
const lengthOf = (ended: Ended[]): number =>
  ended.flatMap(({ entries }) => entries).reduce((sum, { messages }) => sum + lengthOfMessages(messages), 0);

type Dependencies = {
  connection: Connection;
  pages: MessagePages;
  compact: Compact;
  announce: Announce;
  tracing: Tracing;
};

/**
 * Commits the ended turns. `spans`: the spans of these turns. Returns null if the conversation has changed since it was
 * read; the caller must then read the conversation again.
 */
export type Commit = (read: AnswerableConversation, ended: Ended[], spans: TraceSpan[]) => Promise<Committed | null>;

/**
 * Ends the first pending turns of a conversation with one atomic update, in a batch with commits of other
 * conversations.
 */
export const createCommit = ({ connection, pages, compact, announce, tracing }: Dependencies): Commit => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const write = createUpdateBatcher(
    conversations,
    async (items: Write[]): Promise<(boolean | ItemFailure)[]> => {
      const statements = items.map(({ statement }) => statement);
      const { n, writeErrors = [] } = await within(
        tracing.share(
          'write conversations',
          items.flatMap(({ spans }) => spans),
        ),
        updateMany(connection, CONVERSATIONS, statements),
      );
      if (n === items.length) return items.map(() => true);
      // Some updates changed nothing, most likely because their conversations had changed before the write. A commit
      // has succeeded if its last finished turn is now stored.
      const keys = items.map(({ read }) => read._id);
      const rows = await readRows(conversations, keys, { recent: { turnId: 1, finishedAt: 1, replyMessageId: 1 } });
      const hasWon = ({ read, ended }: Write): boolean => {
        const last = ended.at(-1)?.finished;
        const isLast = (known: RecentTurn): boolean =>
          known.turnId === last?.turnId &&
          known.replyMessageId === last.replyMessageId &&
          known.finishedAt.getTime() === last.finishedAt.getTime();
        return rows.get(read._id)?.recent.some(isLast) === true;
      };
      const errors = new Map(writeErrors.map((error) => [error.index, error]));
      return items.map((item, index) => {
        const error = errors.get(index);
        return error ? toItemFailure(error) : hasWon(item);
      });
    },
    { documentOf: ({ read }) => [read._id, read.assistantId], lengthOf: ({ ended }) => lengthOf(ended) },
  );

  const commit = async (
    read: AnswerableConversation,
    { ended, spans }: { ended: Ended[]; spans: TraceSpan[] },
    receiversOf: ReceiversOf,
  ): Promise<Committed | null> => {
    const compaction = await compact(read, ended.length);
    if (compaction === 'changed') return null;
    const { statement, announced } = commitStatement(read, ended, { receiversOf, compaction });
    if (!(await write({ read, ended, statement, spans }))) {
      if (compaction) await pages.eraseIfGone(read);
      return null;
    }
    return { announced, nextTurnId: read.waiting[ended.length]?.turnId ?? null };
  };

  return (read, ended, spans) => announce(read, (receiversOf) => commit(read, { ended, spans }, receiversOf));
};
