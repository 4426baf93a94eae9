import type { Connection } from 'mongoose';
import { serverNow } from '../platform/clock.ts';
import { collectionOf, createReader } from '../platform/mongo.ts';
import {
  conversationModels,
  type FindDelivered,
  MAX_PENDING,
  PAGE_SIZE,
  type RecentTurn,
  RESUMABLE_FOR_MS,
  type StoredConversation,
} from './conversation.ts';
import { hasFullPage, type MessagePages, type StoredPages } from './message-pages.ts';

/**
 * The number of finished turns that a conversation always keeps. A finished turn can be found only in this list until
 * its messages are stored as a page. So the list must have room for the turns of an incomplete page and for the most
 * turns that can be pending.
 */
const RECENT_MIN = PAGE_SIZE + MAX_PENDING;
/**
 * How many finished turns a compaction leaves in the document at most. Before the next compaction, at most RECENT_MIN
 * more turns finish, so the document never has more than 200.
 */
const RECENT_MAX = 200 - RECENT_MIN;

/** What a write removes from the document: messages that are stored as pages now, and the oldest finished turns. */
export type Compaction = StoredPages & { keepRecent: number };

/** The fields for `$unset`: messages that are stored as pages now. */
export const trimmedFields = ({ numbers }: Compaction): Record<string, 1> =>
  Object.fromEntries(numbers.map((seq) => [`texts.${seq}`, 1]));

/** The `$push` to `recent`. With a compaction, the oldest finished turns are removed. */
export const pushFinished = (finished: RecentTurn[], compaction: Compaction | null) => ({
  $each: finished,
  ...(compaction && { $slice: -compaction.keepRecent }),
});

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

type Read = Pick<StoredConversation, '_id' | 'conversationId' | 'seq' | 'storedTo'> &
  Partial<Pick<StoredConversation, 'texts' | 'recent'>>;

/** Decides what a write removes from the document. About once per eight `seq` numbers, there is something to remove. */
export const createCompact = (dependencies: {
  connection: Connection;
  pages: MessagePages;
  findDelivered: FindDelivered;
}) => {
  const { connection, pages, findDelivered } = dependencies;
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);
  const readForCompaction = createReader(conversations, { conversationId: 1, seq: 1, texts: 1, recent: 1 });

  /**
   * `ending` is the number of turns that the write ends. Returns `changed` if the conversation has changed since it was
   * read, and null if there is nothing to trim.
   */
  return async (
    { _id: key, conversationId, seq, storedTo, texts, recent }: Read,
    ending: number,
  ): Promise<Compaction | 'changed' | null> => {
    if (!hasFullPage({ seq, storedTo })) return null;
    // If the caller has already read the texts and finished turns, they are not read again. They cannot be outdated,
    // because the filter of the write contains their `seq`.
    const now = texts && recent ? { conversationId, seq, texts, recent } : await readForCompaction(key);
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

export type Compact = ReturnType<typeof createCompact>;
