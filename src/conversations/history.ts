import type { Connection } from 'mongoose';
import * as z from 'zod';
import { createCursor } from '../platform/process/validation.ts';
import { inBatches, inPages } from '../platform/mongo/batches.ts';
import { DUPLICATE_KEY, toItemFailure } from '../platform/mongo/failures.ts';
import {
  collectionOf,
  createPartReader,
  createReader,
  createStoreBatcher,
  insertMany,
} from '../platform/mongo/mongo.ts';
import {
  BY_TURN,
  conversationModels,
  type Entry,
  LONG_AT_ONCE,
  type Message,
  PAGE_SIZE,
  type RecentTurn,
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
/** How many pages one statement deletes. A page may have 640 KB. */
const PAGES_ERASED_AT_ONCE = 16;

const pageOf = (seq: number): number => Math.floor((seq - 1) / PAGE_SIZE);

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
    const few = { maxItems: PAGES_ERASED_AT_ONCE, rests: true, ...(until && { until }) };
    return inBatches({ collection: pages, filter, ...few }, (some) => pages.deleteMany(some));
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

export const HISTORY_MAX = 1000;
/** The visitor message and the reply of a resumed turn may be in two pages. */
const PAGES_OF_TURN = 2;
/**
 * The maximum JSON size of the messages of one page. If messages are long, a page has fewer than its limit, but at
 * least one.
 */
const HISTORY_MAX_BYTES = 1024 * 1024;
/** Characters that JSON escapes. */
// oxlint-disable-next-line no-control-regex -- these are control characters
const ESCAPED = /["\\\u0000-\u001f]/;

/** The length of a message as JSON. A text in which nothing is escaped is not encoded but measured, which is faster. */
const jsonBytesOf = ({ content, ...others }: Message): number =>
  Buffer.byteLength(JSON.stringify(others)) +
  Buffer.byteLength(ESCAPED.test(content) || !content.isWellFormed() ? JSON.stringify(content) : content);

/** About how many characters are read at once, so that decoding them never holds the event loop for long. */
const READ_CHARS = 100_000;
/** How many pages are read at once at most: one may have 640 KB, however short those before it are. */
const PAGES_AT_ONCE = 8;

export type NumberedMessage = Message & { seq: number | null };

/**
 * Where the previous page of history ended: after message `index` of `seq`, and after the pending message
 * `waitingAfter`, if any.
 */
const HistoryPosition = z.object({ seq: z.int(), index: z.int(), waitingAfter: z.string().nullable() });
export type HistoryPosition = z.infer<typeof HistoryPosition>;

const START: HistoryPosition = { seq: 0, index: -1, waitingAfter: null };
/** The position after all messages up to this number. */
export const afterSeq = (seq: number): HistoryPosition => ({ seq, index: Number.MAX_SAFE_INTEGER, waitingAfter: null });

export const historyCursor = createCursor(HistoryPosition);

/** `bytes`: about how long its JSON is. */
export type HistoryPage = {
  messages: NumberedMessage[];
  bytes: number;
  hasMore: boolean;
  next: HistoryPosition | null;
};

/**
 * Messages of pending turns. They follow all other messages and have no number. The message of a resumed turn is left
 * out, because it has kept its number.
 */
const pendingMessages = ({ waiting }: Pick<StoredConversation, 'waiting'>): NumberedMessage[] =>
  waiting
    .filter((turn) => turn.seq === undefined)
    .map(({ turnId, messageId, message, language, acceptedAt }) => ({
      messageId,
      turnId,
      seq: null,
      role: 'user',
      content: message,
      language,
      createdAt: acceptedAt,
    }));

/** Reads all messages in order of `seq`, from the stored pages and from the conversation document. */
export type History = {
  /** Finds a final message. Null if the conversation was erased. */
  findMessage: (
    conversation: Pick<StoredConversation, '_id' | 'conversationId'>,
    message: { seq: number; messageId: string },
  ) => Promise<Message | null>;

  /**
   * Finds a finished turn that is no longer in `recent`, and returns it in the shape of `recent`. Null if no such
   * turn finished in this conversation.
   */
  findFinishedTurn: (
    conversation: Pick<StoredConversation, 'conversationId'>,
    turnId: string,
  ) => Promise<RecentTurn | null>;

  /**
   * The messages of the last `limit` entries, oldest first. Entries after the given conversation's `seq` are left
   * out. Empty if the conversation was erased.
   */
  findLatest: (
    conversation: Pick<StoredConversation, '_id' | 'conversationId' | 'seq'>,
    limit: number,
  ) => Promise<Message[]>;

  /**
   * A page of history: messages in order of `seq`, up to the `seq` of the conversation, then pending messages. It ends
   * at the limit or at `HISTORY_MAX_BYTES`. Read the conversation before this call. Otherwise the page could miss a
   * reply that is stored between the two reads.
   */
  readPage: (
    conversation: StoredConversation,
    options?: { from?: HistoryPosition; limit?: number; finalOnly?: boolean },
  ) => Promise<HistoryPage>;
};

export const createHistory = (connection: Connection): History => {
  const models = conversationModels(connection);
  const pages = collectionOf<StoredPage>(models.messages);
  const conversations = collectionOf<StoredConversation>(models.conversations);
  const readTexts = createReader(conversations, { conversationId: 1, texts: 1 }, { maxItems: 4 * LONG_AT_ONCE });
  /** Reads only the messages with one `seq`, because all of them together may have a MiB. */
  const readText = createPartReader(conversations, (seq) => ({ conversationId: 1, [`texts.${seq}`]: 1 }));

  /**
   * Finds one entry in the document or in a stored page. Read the document before this call, because entries move from
   * the document to pages.
   */
  const findEntry = async (
    { conversationId, texts }: Pick<StoredConversation, 'conversationId' | 'texts'>,
    seq: number,
  ): Promise<Message[] | null> => {
    const inDocument = texts[String(seq)];
    if (inDocument) return inDocument;
    const projection = { entries: { $elemMatch: { seq } } };
    const page = await pages.findOne({ _id: pageIdOf(conversationId, pageOf(seq)) }, { projection });
    return page?.entries?.[0]?.messages ?? null;
  };

  /**
   * The entries from one number to another, in order. Stored pages are read as the caller iterates: first one, then as
   * many as have about `READ_CHARS` if they are like those before. Other requests run between decoding two pages.
   */
  async function* entriesOf(
    { conversationId, texts }: Pick<StoredConversation, 'conversationId' | 'texts'>,
    { from, to }: { from: number; to: number },
  ): AsyncGenerator<Entry> {
    const inDocument = numbersOf(texts);
    const lastStored = Math.min(to, (inDocument[0] ?? to + 1) - 1);
    for (let first = from, count = 1; first <= lastStored; ) {
      const last = Math.min(lastStored, (pageOf(first) + count) * PAGE_SIZE);
      const stored = pages.find(pageRange(conversationId, { from: first, to: last })).sort({ _id: 1 });
      let chars = 1;
      for await (const some of inPages(stored, 1)) {
        const entries = some.flatMap((page) => page.entries);
        yield* entries.filter(({ seq }) => seq >= first && seq <= last);
        for (const { messages } of entries) chars += lengthOfMessages(messages);
      }
      count = Math.min(PAGES_AT_ONCE, Math.max(1, Math.floor((READ_CHARS * count) / chars)));
      first = last + 1;
    }
    for (const seq of inDocument)
      if (seq >= from && seq <= to) yield { seq, messages: texts[String(seq)] as Message[] };
  }

  return {
    findMessage: async ({ _id, conversationId }, { seq, messageId }) => {
      const now = await readText({ id: _id, part: seq });
      if (now?.conversationId !== conversationId) return null;
      const messages = await findEntry(now, seq);
      return messages?.find((message) => message.messageId === messageId) ?? null;
    },

    findFinishedTurn: async ({ conversationId }, turnId) => {
      const found = await pages
        .find({ 'entries.messages.turnId': turnId, conversationId }, { projection: { 'entries.messages.content': 0 } })
        .hint(BY_TURN)
        .limit(PAGES_OF_TURN)
        .toArray();
      const numbered = found
        .flatMap(({ entries }) => entries)
        .flatMap(({ seq, messages }) => messages.map((message) => ({ seq, message })));
      const own = numbered.filter(({ message }) => message.turnId === turnId);
      const visitor = own.find(({ message }) => message.role === 'user');
      const reply = own.find(({ message }) => message.role === 'assistant');
      if (!visitor) return null;
      const { heldBy, mergedInto } = visitor.message;
      const replySeq = reply?.seq ?? heldBy?.seq ?? mergedInto?.replySeq;
      const replyMessageId = reply?.message.messageId ?? heldBy?.messageId ?? mergedInto?.replyMessageId;
      return {
        turnId,
        messageId: visitor.message.messageId,
        outcome: replySeq === undefined ? 'failed' : 'answered',
        seq: visitor.seq,
        ...(replySeq !== undefined && { replySeq, replyMessageId: replyMessageId as string }),
        finishedAt: (reply ?? visitor).message.createdAt,
        ...(mergedInto && { mergedInto: mergedInto.messageId }),
      };
    },

    findLatest: async ({ _id, conversationId, seq: upTo }, limit) => {
      const first = Math.max(1, upTo - limit + 1);
      if (first > upTo) return [];
      const now = await readTexts(_id);
      if (now?.conversationId !== conversationId) return [];
      const inDocument = numbersOf(now.texts).filter((seq) => seq >= first && seq <= upTo);
      const missing = { from: first, to: (inDocument[0] ?? upTo + 1) - 1 };
      const stored =
        missing.to < missing.from
          ? []
          : await pages.find(pageRange(conversationId, missing)).sort({ _id: 1 }).toArray();
      return [
        ...stored.flatMap((page) => page.entries).filter(({ seq }) => seq >= first && seq <= upTo),
        ...inDocument.map((seq) => ({ seq, messages: now.texts[String(seq)] as Message[] })),
      ].flatMap(({ messages }) => messages);
    },

    readPage: async (conversation, { from = START, limit = HISTORY_MAX, finalOnly = false } = {}) => {
      // This page starts with the last entry of the previous page, because that entry may have more messages. Each
      // entry has at least one message.
      const first = Math.max(1, from.seq);
      const last = Math.min(conversation.seq, first + limit + 1);
      const messages: NumberedMessage[] = [];
      let bytes = 0;
      let next = from;
      /** Adds a message and its position. Returns false if the page is full. */
      const add = (message: NumberedMessage, position: HistoryPosition): boolean => {
        bytes += jsonBytesOf(message);
        if (messages.length === limit || (messages.length > 0 && bytes > HISTORY_MAX_BYTES)) return false;
        messages.push(message);
        next = position;
        return true;
      };

      for await (const entry of entriesOf(conversation, { from: first, to: last })) {
        const { seq } = entry;
        for (const [index, message] of entry.messages.entries()) {
          if (seq === from.seq && index <= from.index) continue;
          if (!add({ ...message, seq }, { ...from, seq, index })) return { messages, bytes, hasMore: true, next };
        }
      }
      const waiting = finalOnly ? [] : pendingMessages(conversation);
      const seen = waiting.findIndex(({ messageId }) => messageId === from.waitingAfter);
      for (const message of waiting.slice(seen + 1))
        if (!add(message, { ...next, waitingAfter: message.messageId }))
          return { messages, bytes, hasMore: true, next };
      return { messages, bytes, hasMore: false, next: null };
    },
  };
};
