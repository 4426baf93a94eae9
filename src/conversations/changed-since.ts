import type { Connection, mongo } from 'mongoose';
import { inChunks } from '../platform/mongo/batches.ts';
import { collectionOf, createReader, timeLimit } from '../platform/mongo/mongo.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import {
  conversationModels,
  type Entry,
  type FieldsOf,
  IDENTITY,
  type Message,
  type StoredConversation,
  type StoredPage,
} from './conversation.ts';
import { pageRange } from './history.ts';

const LIST_WITHIN_MS = 3_000;
const LISTS_AT_ONCE = 4;
/**
 * At most this many messages of a conversation are read at once: up to 2.5 MB. A longer conversation is read in several
 * steps.
 */
const NUMBERS_AT_ONCE = 80;

export type ChangedConversation = Pick<StoredConversation, '_id' | 'assistantId' | 'updatedAt'>;
export type ChangePosition = { at: Date; id: string };

/** What the projection reads of a conversation. */
export type ReadConversation = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'seq' | 'texts' | 'updatedAt' | 'resolutions'
>;

const CHANGE = { _id: 1, assistantId: 1, updatedAt: 1 } as const satisfies FieldsOf<ChangedConversation>;
const READ = { ...IDENTITY, seq: 1, texts: 1, updatedAt: 1, resolutions: 1 } satisfies FieldsOf<ReadConversation>;

const oldestFirst = (a: ChangedConversation, b: ChangedConversation): number =>
  a.updatedAt.getTime() - b.updatedAt.getTime() || (a._id < b._id ? -1 : 1);

export type ReadEntries = { earlier: Entry[]; entries: Entry[]; upTo: number };

/** Reads what has changed in the conversations, for the projection, which never writes to them. */
export type ChangedConversations = {
  /** Conversations that changed after this position, oldest change first. Only an index is read. */
  listAfter: (assistantIds: string[], position: ChangePosition, limit: number) => Promise<ChangedConversation[]>;

  /** Conversations of one assistant that changed before this position, latest change first. */
  listBefore: (assistantId: string, position: ChangePosition, limit: number) => Promise<ChangedConversation[]>;

  /** In the order of the keys: ids begin with a part that visitors may choose, and a batch may not be read to its end. */
  read: (keys: string[]) => Promise<ReadConversation[]>;

  /**
   * The `entries` after the number `after`, in order. They are complete up to `upTo`. `earlier`: the entries up to
   * `after` that are still in the document. Read the document before this call, because messages move from the document
   * to the pages.
   */
  readEntries: (conversation: ReadConversation, after: number) => Promise<ReadEntries>;

  /** Which of these conversations no longer exist, because they were erased. */
  findErased: (read: Pick<ReadConversation, '_id' | 'conversationId'>[]) => Promise<string[]>;
};

export const createChangedConversations = (connection: Connection): ChangedConversations => {
  const models = conversationModels(connection);
  const conversations = collectionOf<StoredConversation>(models.conversations);
  const pages = collectionOf<StoredPage>(models.messages);
  const readOne: (key: string) => Promise<ReadConversation | null> = createReader(conversations, READ);

  const list = (filter: mongo.Filter<StoredConversation>, direction: 1 | -1, limit: number) =>
    conversations
      .find<ChangedConversation>(filter, { projection: CHANGE, ...timeLimit(LIST_WITHIN_MS) })
      .sort({ updatedAt: direction, _id: direction })
      .limit(limit)
      .toArray();

  return {
    listAfter: async (assistantIds, { at, id }, limit) => {
      const after = { updatedAt: { $gte: at }, $or: [{ updatedAt: { $gt: at } }, { updatedAt: at, _id: { $gt: id } }] };
      const found = await mapAtMost(LISTS_AT_ONCE, inChunks(assistantIds), (some) =>
        list({ assistantId: { $in: some }, ...after }, 1, limit),
      );
      return found.flat().toSorted(oldestFirst).slice(0, limit);
    },

    listBefore: (assistantId, { at, id }, limit) =>
      list(
        {
          assistantId,
          updatedAt: { $lte: at },
          $or: [{ updatedAt: { $lt: at } }, { updatedAt: at, _id: { $lt: id } }],
        },
        -1,
        limit,
      ),

    read: async (keys) => (await Promise.all(keys.map(readOne))).filter((one) => one !== null),

    readEntries: async ({ conversationId, texts, seq: last }, after) => {
      const upTo = Math.min(last, after + NUMBERS_AT_ONCE);
      const bySeq = new Map<number, Message[]>();
      const inDocument = Object.keys(texts).map(Number);
      const firstInDocument = Math.min(...inDocument, last + 1);
      if (firstInDocument > after + 1) {
        const range = pageRange(conversationId, { from: after + 1, to: upTo });
        for (const { entries } of await pages.find(range).toArray()) {
          for (const { seq, messages } of entries) bySeq.set(seq, messages);
        }
      }
      for (const seq of inDocument) bySeq.set(seq, texts[String(seq)] ?? []);
      const read = [...bySeq].toSorted(([a], [b]) => a - b).map(([seq, messages]) => ({ seq, messages }));
      const entries = read.filter(({ seq }) => seq > after && seq <= upTo);
      return { earlier: read.filter(({ seq }) => seq <= after), entries, upTo };
    },

    findErased: async (read) => {
      const rows = await conversations
        .find({ _id: { $in: read.map(({ _id }) => _id) } }, { projection: { conversationId: 1 } })
        .toArray();
      const existing = new Set(rows.map(({ conversationId }) => conversationId));
      return read.map(({ conversationId }) => conversationId).filter((id) => !existing.has(id));
    },
  };
};
