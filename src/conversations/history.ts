import type { Connection } from 'mongoose';
import * as z from 'zod';
import { createCursor } from '../platform/cursor.ts';
import { collectionOf, createReader } from '../platform/mongo.ts';
import {
  conversationModels,
  type Message,
  type RecentTurn,
  type StoredConversation,
  type StoredPage,
} from './conversation.ts';
import { LAST_SEQ, numbersOf, pageIdOf, pageOf, pageRange } from './message-pages.ts';

export const HISTORY_MAX = 1000;

export type NumberedMessage = Message & { seq: number | null };

/**
 * Where the previous page of history ended: after message `index` of `seq`, and after the pending message
 * `waitingAfter`, if any.
 */
const HistoryPosition = z.object({ seq: z.int(), index: z.int(), waitingAfter: z.string().nullable() });
export type HistoryPosition = z.infer<typeof HistoryPosition>;

const START: HistoryPosition = { seq: 0, index: -1, waitingAfter: null };

export const historyCursor = createCursor(HistoryPosition);

export type HistoryPage = { messages: NumberedMessage[]; hasMore: boolean; next: HistoryPosition | null };

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
export const createHistory = (connection: Connection) => {
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

  return {
    findEntry,

    /** Finds a final message. Null if the conversation was erased. */
    findMessage: async (
      { _id, conversationId }: Pick<StoredConversation, '_id' | 'conversationId'>,
      { seq, messageId }: { seq: number; messageId: string },
    ): Promise<Message | null> => {
      const now = await readTexts(_id);
      if (now?.conversationId !== conversationId) return null;
      const messages = await findEntry(now, seq);
      return messages?.find((message) => message.messageId === messageId) ?? null;
    },

    /**
     * Finds a finished turn that is no longer in `recent`, and returns it in the shape of `recent`. Null if no such
     * turn finished in this conversation.
     */
    findFinishedTurn: async (
      { conversationId }: Pick<StoredConversation, 'conversationId'>,
      turnId: string,
    ): Promise<RecentTurn | null> => {
      const found = await pages
        .find({ ...pageRange(conversationId, { from: 1, to: LAST_SEQ }), 'entries.messages.turnId': turnId })
        .sort({ _id: -1 })
        .limit(2)
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

    /**
     * The messages of the last `limit` entries, oldest first. Entries after the given conversation's `seq` are left
     * out. Empty if the conversation was erased.
     */
    findLatest: async (
      { _id, conversationId, seq: upTo }: Pick<StoredConversation, '_id' | 'conversationId' | 'seq'>,
      limit: number,
    ): Promise<Message[]> => {
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

    /**
     * A page of history: messages in order of `seq`, up to the `seq` of the conversation, then pending messages. Read
     * the conversation before this call. Otherwise the page could miss a reply that is stored between the two reads.
     */
    readPage: async (
      conversation: StoredConversation,
      {
        from = START,
        limit = HISTORY_MAX,
        finalOnly = false,
      }: { from?: HistoryPosition; limit?: number; finalOnly?: boolean } = {},
    ): Promise<HistoryPage> => {
      const { conversationId, texts, seq: upTo } = conversation;
      // This page starts with the last entry of the previous page, because that entry may have more messages. Each
      // entry has at least one message.
      const first = Math.max(1, from.seq);
      const last = Math.min(upTo, first + limit + 1);
      const stored =
        last >= first
          ? await pages
              .find(pageRange(conversationId, { from: first, to: last }))
              .sort({ _id: 1 })
              .toArray()
          : [];
      const bySeq = new Map<number, Message[]>(
        stored.flatMap(({ entries }) => entries.map((entry): [number, Message[]] => [entry.seq, entry.messages])),
      );
      for (const [seq, messages] of Object.entries(texts)) bySeq.set(Number(seq), messages);

      const positions = [...bySeq.entries()]
        .toSorted(([a], [b]) => a - b)
        .flatMap(([seq, messages]) => messages.map((message, index) => ({ seq, index, message })))
        .filter(({ seq }) => seq <= last)
        .filter(({ seq, index }) => seq > from.seq || (seq === from.seq && index > from.index));
      const waiting = finalOnly ? [] : pendingMessages(conversation);
      const seen = waiting.findIndex(({ messageId }) => messageId === from.waitingAfter);
      const unseen = waiting.slice(seen + 1);

      const finals = positions.slice(0, limit);
      const rest = positions.length > limit ? [] : unseen.slice(0, limit - finals.length);
      const hasMore = positions.length + unseen.length > limit;
      const end = finals.at(-1);
      const next: HistoryPosition = {
        seq: end?.seq ?? from.seq,
        index: end?.index ?? from.index,
        waitingAfter: rest.at(-1)?.messageId ?? from.waitingAfter,
      };
      const messages = [...finals.map(({ seq, message }) => ({ ...message, seq })), ...rest];
      return { messages, hasMore, next: hasMore ? next : null };
    },
  };
};

export type History = ReturnType<typeof createHistory>;
