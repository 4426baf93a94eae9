import type { Connection } from 'mongoose';
import { createBatcher } from '../platform/batch.ts';
import { collectionOf, insertMany } from '../platform/mongo.ts';
import {
  conversationModels,
  type Message,
  type RecentTurn,
  type StoredConversation,
  type StoredEntry,
} from './conversation.ts';

export const HISTORY_MAX = 1000;
const LAST_SEQ = 999_999_999_999;

/** Conversation and number: history is a range on `_id`, and storing an entry twice stores it once. */
const entryIdOf = (conversationId: string, seq: number): string => `${conversationId}:${String(seq).padStart(12, '0')}`;

const entryRange = (conversationId: string, { after, upTo }: { after: number; upTo: number }) => ({
  _id: { $gt: entryIdOf(conversationId, after), $lte: entryIdOf(conversationId, upTo) },
});

export type NumberedMessage = Message & { seq: number | null };

/** Where a page of history ended: after the `index`-th message of `seq`, and perhaps after one still waiting. */
export type HistoryPosition = { seq: number; index: number; waitingAfter: string | null };

const START: HistoryPosition = { seq: 0, index: -1, waitingAfter: null };

export const encodePosition = ({ seq, index, waitingAfter }: HistoryPosition): string =>
  Buffer.from(JSON.stringify([seq, index, waitingAfter])).toString('base64url');

export const decodePosition = (cursor: string): HistoryPosition | null => {
  try {
    const [seq, index, waitingAfter] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[];
    const valid =
      Number.isSafeInteger(seq) &&
      Number.isSafeInteger(index) &&
      (waitingAfter === null || typeof waitingAfter === 'string');
    return valid ? { seq: seq as number, index: index as number, waitingAfter: waitingAfter } : null;
  } catch {
    return null;
  }
};

export type HistoryPage = { messages: NumberedMessage[]; hasMore: boolean; next: HistoryPosition | null };

/** Messages still waiting for their answer stand last and have no number; a resumed one has kept its own. */
const waitingMessages = ({ waiting }: Pick<StoredConversation, 'waiting'>): NumberedMessage[] =>
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

/** History by seq. Entries wait in the conversation document (`texts`) until a later write stores them here. */
export const createMessages = (connection: Connection) => {
  const models = conversationModels(connection);
  const entries = collectionOf<StoredEntry>(models.messages);
  const conversations = collectionOf<StoredConversation>(models.conversations);

  const erase = async (conversationId: string): Promise<void> => {
    await entries.deleteMany(entryRange(conversationId, { after: -1, upTo: LAST_SEQ }));
  };

  const store = createBatcher<StoredEntry, void>(async (items) => {
    const { writeErrors = [] } = await insertMany(connection, 'messages', items);
    const failed = writeErrors.find(({ code }) => code !== 11000);
    if (failed) throw new Error(`a message could not be stored (code ${failed.code})`);
    return items.map(() => undefined);
  });

  const findEntries = (conversationId: string, range: { after: number; upTo: number }, limit: number) =>
    entries.find(entryRange(conversationId, range)).sort({ _id: 1 }).limit(limit).toArray();

  return {
    /** Stores what stands in `texts`; idempotent. Every write that adds a text first awaits this for the older ones. */
    storeTexts: async ({
      conversationId,
      texts,
    }: Pick<StoredConversation, 'conversationId' | 'texts'>): Promise<string[]> => {
      const seqs = Object.keys(texts);
      await Promise.all(
        seqs.map((seq) => {
          const number = Number(seq);
          return store({
            _id: entryIdOf(conversationId, number),
            conversationId,
            seq: number,
            messages: texts[seq] as Message[],
          });
        }),
      );
      return seqs;
    },

    /** One entry, wherever it stands; the document must have been read before. */
    findEntry: async ({ conversationId, texts }: Pick<StoredConversation, 'conversationId' | 'texts'>, seq: number) =>
      texts[String(seq)] ?? (await entries.findOne({ _id: entryIdOf(conversationId, seq) }))?.messages ?? null,

    /** A finished turn that left `recent` long ago, as it would stand there; null = never finished here. */
    findSettledTurn: async (
      { conversationId }: Pick<StoredConversation, 'conversationId'>,
      turnId: string,
    ): Promise<RecentTurn | null> => {
      const found = await entries
        .find({ ...entryRange(conversationId, { after: 0, upTo: LAST_SEQ }), 'messages.turnId': turnId })
        .sort({ _id: -1 })
        .limit(2)
        .toArray();
      const numbered = found.flatMap(({ seq, messages }) => messages.map((message) => ({ seq, message })));
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

    /** The last `limit` entries below `upTo`, oldest first: what a turn's context is made of. */
    findLatest: async (
      conversation: Pick<StoredConversation, 'conversationId' | 'texts' | 'seq'>,
      limit: number,
    ): Promise<Message[]> => {
      const { conversationId, texts, seq } = conversation;
      const inDocument = Object.keys(texts)
        .map(Number)
        .toSorted((a, b) => a - b);
      const upTo = (inDocument[0] ?? seq + 1) - 1;
      const wanted = limit - inDocument.length;
      const stored =
        wanted > 0 && upTo > 0
          ? await entries
              .find(entryRange(conversationId, { after: 0, upTo }))
              .sort({ _id: -1 })
              .limit(wanted)
              .toArray()
          : [];
      return [
        ...stored.toReversed().flatMap(({ messages }) => messages),
        ...inDocument.flatMap((number) => texts[String(number)] as Message[]),
      ];
    },

    /**
     * A page of history. `conversation` must have been read before: the other order misses a reply. Only what the
     * document counts (seq ≤ its own) is shown, in order of seq; still waiting messages last, each once.
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
      // From the entry the last page ended in: part of it may be left.
      const stored = await findEntries(conversationId, { after: Math.max(0, from.seq - 1), upTo }, limit + 2);
      const bySeq = new Map<number, Message[]>(stored.map((entry) => [entry.seq, entry.messages]));
      const cutAt = stored.length === limit + 2 ? (stored.at(-1)?.seq ?? upTo) : upTo;
      for (const [seq, messages] of Object.entries(texts)) if (Number(seq) <= cutAt) bySeq.set(Number(seq), messages);

      const positions = [...bySeq.entries()]
        .toSorted(([a], [b]) => a - b)
        .flatMap(([seq, messages]) => messages.map((message, index) => ({ seq, index, message })))
        .filter(({ seq, index }) => seq > from.seq || (seq === from.seq && index > from.index));
      const waiting = finalOnly ? [] : waitingMessages(conversation);
      const seen = waiting.findIndex(({ messageId }) => messageId === from.waitingAfter);
      const unseen = waiting.slice(seen + 1);

      const finals = positions.slice(0, limit);
      const rest = positions.length > limit ? [] : unseen.slice(0, limit - finals.length);
      const hasMore = positions.length + unseen.length > limit;
      const last = finals.at(-1);
      const next: HistoryPosition = {
        seq: last?.seq ?? from.seq,
        index: last?.index ?? from.index,
        waitingAfter: rest.at(-1)?.messageId ?? from.waitingAfter,
      };
      const messages = [...finals.map(({ seq, message }) => ({ ...message, seq })), ...rest];
      return { messages, hasMore, next: hasMore ? next : null };
    },

    erase,

    /** After a write that matched nothing: texts stored for it must not outlive a conversation erased meanwhile. */
    eraseIfGone: async ({
      _id,
      conversationId,
    }: Pick<StoredConversation, '_id' | 'conversationId'>): Promise<void> => {
      const still = await conversations.findOne({ _id, conversationId }, { projection: { _id: 1 } });
      if (!still) await erase(conversationId);
    },
  };
};

export type Messages = ReturnType<typeof createMessages>;
