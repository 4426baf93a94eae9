import type { Connection } from 'mongoose';
import { serverNow } from '../platform/clock.ts';
import { collectionOf, createReader } from '../platform/mongo.ts';
import {
  conversationModels,
  type FindDelivered,
  MAX_WAITING,
  PAGE_SIZE,
  type RecentTurn,
  RESUMABLE_FOR_MS,
  type StoredConversation,
} from './conversation.ts';
import { hasFullPage, type MessagePages, type StoredPages } from './message-pages.ts';

/**
 * Finished turns a conversation keeps in any case: of each whose messages are not in `messages` yet, which may be those of a
 * page not full and of a whole line, the mark is where it is found.
 */
const RECENT_MIN = PAGE_SIZE + MAX_WAITING;
/** At most so many after a clearing; those that end before the next one come on top, 200 in all. */
const RECENT_MAX = 200 - RECENT_MIN;

/** What a write that adds a text takes out of the document: numbers that are stored as pages now, marks that may fall. */
export type Clearing = StoredPages & { keepRecent: number };

/** What to `$unset`. */
export const takenOut = ({ numbers }: Clearing): Record<string, 1> =>
  Object.fromEntries(numbers.map((seq) => [`texts.${seq}`, 1]));

/** What to `$push` to `recent`. */
export const addMarks = (marks: RecentTurn[], clearing: Clearing | null) => ({
  $each: marks,
  ...(clearing && { $slice: -clearing.keepRecent }),
});

/**
 * How many finished turns stay: the last ones, plus failed and undelivered ones of 10 minutes. `falling` = the oldest ones,
 * those that are not among the last ones once `count` are there.
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

type Read = Pick<StoredConversation, '_id' | 'conversationId' | 'seq' | 'storedTo'> &
  Partial<Pick<StoredConversation, 'texts' | 'recent'>>;

/** About once in eight numbers the document is relieved of what it need not carry, in the write that comes next. */
export const createClear = (dependencies: {
  connection: Connection;
  pages: MessagePages;
  findDelivered: FindDelivered;
}) => {
  const { connection, pages, findDelivered } = dependencies;
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);
  const readForClearing = createReader(conversations, { conversationId: 1, seq: 1, texts: 1, recent: 1 });

  /** For a write that ends so many turns. `changed`: the conversation is no longer what was read. Null: it is too early. */
  return async (
    { _id: key, conversationId, seq, storedTo, texts, recent }: Read,
    ending: number,
  ): Promise<Clearing | 'changed' | null> => {
    if (!hasFullPage({ seq, storedTo })) return null;
    // Who read the whole document need not read it again: the write is filtered on its `seq`.
    const now = texts && recent ? { conversationId, seq, texts, recent } : await readForClearing(key);
    if (now?.conversationId !== conversationId || now.seq !== seq) return 'changed';
    const count = now.recent.length + ending;
    const falling = now.recent.slice(0, Math.max(0, count - RECENT_MIN));
    const [stored, delivered] = await Promise.all([
      pages.storeFullPages(now),
      findDelivered(falling.map(({ turnId }) => ({ key, turnId }))),
    ]);
    return { ...stored, keepRecent: countRecent({ falling, count }, (turnId) => delivered.has(turnId), serverNow()) };
  };
};

export type Clear = ReturnType<typeof createClear>;
