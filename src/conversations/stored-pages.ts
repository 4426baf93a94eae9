import type { Connection } from 'mongoose';
import { inBatches } from '../mongo/batches.ts';
import { DUPLICATE_KEY, toItemFailure } from '../mongo/failures.ts';
import { collectionOf, createStoreBatcher, insertMany } from '../mongo/mongo.ts';
import {
  conversationModels,
  type Message,
  PAGE_SIZE,
  type StoredConversation,
  type StoredPage,
} from './conversation.ts';

/** The length of the long texts in these messages, in UTF-16 units. Batches use this length to limit their size. */
export const lengthOfMessages = (messages: readonly Message[]): number =>
  messages.reduce((sum, { content, why, suggestedActions, sources }) => {
    const beside = why || suggestedActions || sources ? JSON.stringify([why, suggestedActions, sources]).length : 0;
    return sum + content.length + beside;
  }, 0);

const LAST_SEQ = 999_999_999_999;

export const pageOf = (seq: number): number => Math.floor((seq - 1) / PAGE_SIZE);

/**
 * The id is the conversation id plus the page number. History can then be read as a range on `_id`, and storing a page
 * again creates no duplicate.
 */
export const pageIdOf = (conversationId: string, page: number): string =>
  `${conversationId}:${String(page).padStart(12, '0')}`;

export const pageRange = (conversationId: string, { from, to }: { from: number; to: number }) => ({
  _id: { $gte: pageIdOf(conversationId, pageOf(from)), $lte: pageIdOf(conversationId, pageOf(to)) },
});

export const numbersOf = (texts: Record<string, unknown>): number[] =>
  Object.keys(texts)
    .map(Number)
    .toSorted((a, b) => a - b);

const lastOfFullPages = (seq: number): number => seq - (seq % PAGE_SIZE);

/** True if `texts` contains a full page that is not stored yet. The next write that adds a text stores this page. */
export const hasFullPage = ({ seq, storedTo }: Pick<StoredConversation, 'seq' | 'storedTo'>): boolean =>
  lastOfFullPages(seq) > storedTo;

/**
 * The messages that are now stored as pages. The write that sets `storedTo` also removes the messages with these
 * numbers from the document.
 */
export type StoredPages = { storedTo: number; numbers: number[] };

const textLengthOf = ({ entries }: StoredPage): number =>
  entries.reduce((sum, { messages }) => sum + lengthOfMessages(messages), 0);

/** Stores messages as pages. Messages stay in the conversation document (`texts`) until they fill a page. */
export type MessagePages = {
  /**
   * Stores the full pages of `texts`. A page always has the same eight numbers, so two writers that read different
   * states cannot store two versions of a page. A write that adds a text calls this function first if `texts` has a
   * full page, and then removes the stored messages from the document.
   */
  storeFullPages: (conversation: Pick<StoredConversation, 'conversationId' | 'seq' | 'texts'>) => Promise<StoredPages>;

  erase: (conversationId: string, until?: AbortSignal) => Promise<void>;

  /**
   * Call this after a write that matched nothing. If the conversation was erased meanwhile, this function deletes the
   * pages that were stored for the write.
   */
  eraseIfGone: (conversation: Pick<StoredConversation, '_id' | 'conversationId'>) => Promise<void>;
};

export const createMessagePages = (connection: Connection): MessagePages => {
  const models = conversationModels(connection);
  const pages = collectionOf<StoredPage>(models.messages);
  const conversations = collectionOf<StoredConversation>(models.conversations);

  const erase = (conversationId: string, until?: AbortSignal): Promise<void> => {
    const filter = pageRange(conversationId, { from: 1, to: LAST_SEQ });
    return inBatches({ collection: pages, filter, ...(until && { until }) }, (some) => pages.deleteMany(some));
  };

  const store = createStoreBatcher<StoredPage, void>(
    async (items) => {
      const { writeErrors = [] } = await insertMany(connection, 'messages', items);
      const failed = new Map(
        writeErrors.filter(({ code }) => code !== DUPLICATE_KEY).map((error) => [error.index, toItemFailure(error)]),
      );
      return items.map((_item, index) => failed.get(index));
    },
    { lengthOf: textLengthOf },
  );

  return {
    storeFullPages: async ({ conversationId, seq, texts }) => {
      const storedTo = lastOfFullPages(seq);
      const numbers = numbersOf(texts).filter((number) => number <= storedTo);
      await Promise.all(
        [...Map.groupBy(numbers, pageOf)].map(([page, pageNumbers]) => {
          const entries = pageNumbers.map((number) => ({ seq: number, messages: texts[String(number)] as Message[] }));
          return store({ _id: pageIdOf(conversationId, page), conversationId, entries });
        }),
      );
      return { storedTo, numbers };
    },

    erase,

    eraseIfGone: async ({ _id, conversationId }) => {
      const still = await conversations.findOne({ _id, conversationId }, { projection: { _id: 1 } });
      if (!still) await erase(conversationId);
    },
  };
};
