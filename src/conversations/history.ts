import type { Connection } from 'mongoose';
import * as z from 'zod';
import { createCursor } from '../http/cursor.ts';
import { collectionOf, createReader } from '../mongo/mongo.ts';
import { createSlices } from '../process/slices.ts';
import {
  BY_TURN,
  conversationModels,
  type Entry,
  type Message,
  PAGE_SIZE,
  type RecentTurn,
  type StoredConversation,
  type StoredPage,
} from './conversation.ts';
import { lengthOfMessages, numbersOf, pageIdOf, pageOf, pageRange } from './stored-pages.ts';

export const HISTORY_MAX = 1000;
/** The visitor message and the reply of a resumed turn may be in two pages. */
const PAGES_OF_TURN = 2;
/** The JSON of the messages of one page. A page of long messages has fewer than its limit, and always at least one. */
export const HISTORY_MAX_BYTES = 1024 * 1024;
/** Characters that JSON escapes. */
// oxlint-disable-next-line no-control-regex -- these are control characters
const ESCAPED = /["\\\u0000-\u001f]/;

/** The length of a message as JSON. A text in which nothing is escaped is only counted, because that is faster. */
const jsonBytesOf = ({ content, ...others }: Message): number =>
  Buffer.byteLength(JSON.stringify(others)) +
  Buffer.byteLength(ESCAPED.test(content) || !content.isWellFormed() ? JSON.stringify(content) : content);

/** About how many characters are read at once, so that decoding them never holds the event loop for long. */
const READ_CHARS = 100_000;

export type NumberedMessage = Message & { seq: number | null };

/**
 * Where the previous page of history ended: after message `index` of `seq`, and after the pending message
 * `waitingAfter`, if any.
 */
const HistoryPosition = z.object({ seq: z.int(), index: z.int(), waitingAfter: z.string().nullable() });
export type HistoryPosition = z.infer<typeof HistoryPosition>;

const START: HistoryPosition = { seq: 0, index: -1, waitingAfter: null };

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
  const readTexts = createReader(collectionOf<StoredConversation>(models.conversations), {
    conversationId: 1,
    texts: 1,
  });

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
    const page = await pages.findOne({ _id: pageIdOf(conversationId, pageOf(seq)) });
    return page?.entries.find((entry) => entry.seq === seq)?.messages ?? null;
  };

  /**
   * The entries from one number to another, in order. Stored pages are read as the caller iterates: first one, then as
   * many as contain about `READ_CHARS`. Other requests run between two reads.
   */
  async function* entriesOf(
    { conversationId, texts }: Pick<StoredConversation, 'conversationId' | 'texts'>,
    { from, to }: { from: number; to: number },
  ): AsyncGenerator<Entry> {
    const inDocument = numbersOf(texts);
    const lastStored = Math.min(to, (inDocument[0] ?? to + 1) - 1);
    const slices = createSlices();
    for (let first = from, count = 1; first <= lastStored; ) {
      const last = Math.min(lastStored, (pageOf(first) + count) * PAGE_SIZE);
      const stored = await pages
        .find(pageRange(conversationId, { from: first, to: last }))
        .sort({ _id: 1 })
        .toArray();
      await slices.next();
      const entries = stored.flatMap((page) => page.entries);
      yield* entries.filter(({ seq }) => seq >= first && seq <= last);
      const chars = entries.reduce((sum, { messages }) => sum + lengthOfMessages(messages), 0);
      count = Math.max(1, Math.floor((READ_CHARS * stored.length) / Math.max(1, chars)));
      first = last + 1;
    }
    for (const seq of inDocument)
      if (seq >= from && seq <= to) yield { seq, messages: texts[String(seq)] as Message[] };
  }

  return {
    findMessage: async ({ _id, conversationId }, { seq, messageId }) => {
      const now = await readTexts(_id);
      if (now?.conversationId !== conversationId) return null;
      const messages = await findEntry(now, seq);
      return messages?.find((message) => message.messageId === messageId) ?? null;
    },

    findFinishedTurn: async ({ conversationId }, turnId) => {
      const found = await pages
        .find({ 'entries.messages.turnId': turnId, conversationId })
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
      const replySeq = reply?.seq ?? visitor.message.heldBy?.seq;
      const replyMessageId = reply?.message.messageId ?? visitor.message.heldBy?.messageId;
      return {
        turnId,
        messageId: visitor.message.messageId,
        outcome: replySeq === undefined ? 'failed' : 'answered',
        seq: visitor.seq,
        ...(replySeq !== undefined && { replySeq, replyMessageId: replyMessageId as string }),
        finishedAt: (reply ?? visitor).message.createdAt,
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
      /** Adds a message and its position, or tells that the page is full. */
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
