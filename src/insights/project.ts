import type { Connection, mongo } from 'mongoose';
import {
  conversationModels,
  type Entry,
  type Message,
  type StoredConversation,
  type StoredPage,
} from '../conversations/conversation.ts';
import { pageRange } from '../conversations/message-pages.ts';
import type { Logger } from '../process/logger.ts';
import { inChunks } from '../mongo/batches.ts';
import { isMongoUnavailable } from '../mongo/failures.ts';
import { collectionOf, inTransaction, timeLimit } from '../mongo/mongo.ts';
import { createSlices } from '../process/slices.ts';
import { mapAtMost } from '../process/slots.ts';
import { foldSession, type ProjectedConversation, searchModel, searchWordsOf } from './conversation-search.ts';
import { countMessages, type Figures, hourOf, type Increment, incrementsOf } from './figures.ts';
import { fitStep, type Lesson, readLessons } from './misses.ts';
import type { PendingMisses } from './pending-misses.ts';

const LIST_WITHIN_MS = 3_000;
const LISTS_AT_ONCE = 4;
/**
 * At most this many messages of a conversation are read at once: up to 2.5 MB. A longer conversation is read in several
 * steps.
 */
const NUMBERS_AT_ONCE = 80;

export type ChangedConversation = Pick<StoredConversation, '_id' | 'assistantId' | 'updatedAt'>;
export type ChangePosition = { at: Date; id: string };

/** The fields that the projection reads. */
type ReadConversation = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'seq' | 'texts' | 'updatedAt' | 'resolutions'
>;

const CHANGE = { _id: 1, assistantId: 1, updatedAt: 1 } as const;
const READ = {
  conversationId: 1,
  assistantId: 1,
  sessionId: 1,
  channel: 1,
  seq: 1,
  texts: 1,
  updatedAt: 1,
  resolutions: 1,
} as const;

const oldestFirst = (a: ChangedConversation, b: ChangedConversation): number =>
  a.updatedAt.getTime() - b.updatedAt.getTime() || (a._id < b._id ? -1 : 1);

/** Reads what has changed in the conversations. The projection never writes to them. */
export const createChangedConversations = (connection: Connection) => {
  const models = conversationModels(connection);
  const conversations = collectionOf<StoredConversation>(models.conversations);
  const pages = collectionOf<StoredPage>(models.messages);

  const list = (filter: mongo.Filter<StoredConversation>, direction: 1 | -1, limit: number) =>
    conversations
      .find<ChangedConversation>(filter, { projection: CHANGE, ...timeLimit(LIST_WITHIN_MS) })
      .sort({ updatedAt: direction, _id: direction })
      .limit(limit)
      .toArray();

  return {
    /** Conversations that changed after this position, oldest change first. Only an index is read. */
    listAfter: async (
      assistantIds: string[],
      { at, id }: ChangePosition,
      limit: number,
    ): Promise<ChangedConversation[]> => {
      const after = { updatedAt: { $gte: at }, $or: [{ updatedAt: { $gt: at } }, { updatedAt: at, _id: { $gt: id } }] };
      const found = await mapAtMost(LISTS_AT_ONCE, inChunks(assistantIds), (some) =>
        list({ assistantId: { $in: some }, ...after }, 1, limit),
      );
      return found.flat().toSorted(oldestFirst).slice(0, limit);
    },

    /** Conversations of one assistant that changed before this position, latest change first. */
    listBefore: (assistantId: string, { at, id }: ChangePosition, limit: number): Promise<ChangedConversation[]> =>
      list(
        {
          assistantId,
          updatedAt: { $lte: at },
          $or: [{ updatedAt: { $lt: at } }, { updatedAt: at, _id: { $lt: id } }],
        },
        -1,
        limit,
      ),

    read: (keys: string[]): Promise<ReadConversation[]> =>
      conversations.find<ReadConversation>({ _id: { $in: keys } }, { projection: READ }).toArray(),

    /**
     * The entries after `seq`, in order, and the last number up to which they are complete. Messages move from the
     * document to the pages, so the document must be read before.
     */
    readEntries: async (
      { conversationId, texts, seq: last }: ReadConversation,
      after: number,
    ): Promise<{ entries: Entry[]; upTo: number }> => {
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
      const entries = [...bySeq]
        .filter(([seq]) => seq > after && seq <= upTo)
        .toSorted(([a], [b]) => a - b)
        .map(([seq, messages]) => ({ seq, messages }));
      return { entries, upTo };
    },

    /** Which of these conversations no longer exist, because they were erased. */
    findErased: async (read: Pick<ReadConversation, '_id' | 'conversationId'>[]): Promise<string[]> => {
      const rows = await conversations
        .find({ _id: { $in: read.map(({ _id }) => _id) } }, { projection: { conversationId: 1 } })
        .toArray();
      const existing = new Set(rows.map(({ conversationId }) => conversationId));
      return read.map(({ conversationId }) => conversationId).filter((id) => !existing.has(id));
    },
  };
};

export type ChangedConversations = ReturnType<typeof createChangedConversations>;

/** At most this many words of a conversation are searchable. Only a conversation that is meant to harm has more. */
const MAX_TERMS = 5_000;

/** What the projection writes for one conversation. `isBehind`: it has more messages than were read. */
type Plan = {
  conversation: ReadConversation;
  /** The last number that is read then. */
  seq: number;
  chars: number;
  statement: mongo.AnyBulkWriteOperation<ProjectedConversation>;
  increments: Increment[];
  /** What is to be learned, outside of the projection's transaction. */
  lessons: Lesson[];
  isBehind: boolean;
};

/** The words that are not known yet. Replies are written in between. */
const newTermsOf = async (
  entries: Entry[],
  { sessionId }: ReadConversation,
  known: string[],
): Promise<{ terms: string[]; chars: number }> => {
  const slices = createSlices();
  const all = new Set(known);
  const texts = entries.flatMap(({ messages }) =>
    messages.flatMap(({ role, content }) => (role === 'system' ? [] : [content])),
  );
  for (const text of known.length === 0 ? [sessionId, ...texts] : texts) {
    if (all.size >= MAX_TERMS) break;
    if (slices.isOver()) await slices.next();
    for (const word of searchWordsOf(text)) if (all.size < MAX_TERMS) all.add(word);
  }
  return { terms: [...all].slice(known.length), chars: texts.reduce((sum, { length }) => sum + length, 0) };
};

/** Answers before the first miss of a conversation teach nothing. */
const lessonsOf = (entries: Entry[], before: ProjectedConversation | null): Lesson[] => {
  const lessons = readLessons(entries);
  if (before?.hasMissed === true || before?.missId !== undefined) return lessons;
  const first = lessons.findIndex(({ kind }) => kind === 'miss');
  return first === -1 ? [] : lessons.slice(first);
};

/** True if the projection has already read this state of the conversation. */
const isCurrent = (read: ReadConversation, before: ProjectedConversation | null): boolean =>
  before !== null && before.seq >= read.seq && before.updatedAt.getTime() >= read.updatedAt.getTime();

/** Plans the next step of a conversation. The statement changes nothing if another worker has taken this step. */
const planProjection = async (
  conversation: ReadConversation,
  before: ProjectedConversation | null,
  read: { entries: Entry[]; upTo: number },
): Promise<Plan> => {
  const { entries, upTo } = fitStep(read);
  const { _id: key, conversationId, assistantId, sessionId, updatedAt } = conversation;
  const { terms, chars } = await newTermsOf(entries, conversation, before?.terms ?? []);
  const lessons = lessonsOf(entries, before);
  const counted = before?.resolvedAt ?? null;
  const resolutions = (conversation.resolutions ?? []).filter((at) => counted === null || at > counted);
  const resolvedAt = resolutions.at(-1) ?? counted;
  const fields = { updatedAt, seq: upTo, resolvedAt, ...(lessons.length > 0 && { hasMissed: true }) };
  const statement: Plan['statement'] = before
    ? {
        updateOne: {
          filter: { _id: conversationId, seq: before.seq, resolvedAt: counted },
          update: { $set: fields, ...(terms.length > 0 && { $push: { terms: { $each: terms } } }) },
        },
      }
    : {
        insertOne: {
          document: { _id: conversationId, key, assistantId, session: foldSession(sessionId), terms, ...fields },
        },
      };
  return {
    conversation,
    seq: upTo,
    chars,
    statement,
    increments: [
      ...countMessages(assistantId, entries),
      ...resolutions.map((at) => ({ assistantId, hour: hourOf(at), counts: { resolved: 1 } })),
    ],
    lessons,
    isBehind: upTo < conversation.seq,
  };
};

/** At most about this many characters are read for one transaction. */
const CHARS_AT_ONCE = 300_000;

/** A step that another worker has taken meanwhile. Nothing was written. */
class Overtaken extends Error {
  override name = 'Overtaken';
}

/** Conversations with more messages than were read, if any, and conversations that could not be projected. */
type Projected = { behind: string[]; failed: string[] };

type Dependencies = {
  connection: Connection;
  changed: ChangedConversations;
  figures: Figures;
  pendingMisses: Pick<PendingMisses, 'add'>;
  erase: (conversationIds: string[]) => Promise<void>;
  logger: Logger;
};

/**
 * Projects some conversations: reads their new messages, and writes search words, figures and what is to be learned in
 * one transaction. The transaction is guarded by the last projected `seq` of each conversation, so each message counts
 * exactly once, even if two workers project at the same time.
 */
export const createProject = ({ connection, changed, figures, pendingMisses, erase, logger }: Dependencies) => {
  const rows = collectionOf<ProjectedConversation>(searchModel(connection));
  const hours = collectionOf(figures.model);

  const write = (plans: Plan[]): Promise<void> =>
    inTransaction(connection, async (session) => {
      const statements = plans.map(({ statement }) => statement);
      const { matchedCount, insertedCount } = await rows.bulkWrite(statements, { session });
      if (matchedCount + insertedCount !== plans.length) throw new Overtaken('another worker has projected this');
      const increments = incrementsOf(plans.flatMap((plan) => plan.increments));
      if (increments.length > 0) await hours.bulkWrite(increments, { session });
      await pendingMisses.add(
        plans.map(({ conversation, seq, lessons }) => ({ ...conversation, seq, lessons })),
        session,
      );
    });

  const noteFailure = (cause: unknown, { conversationId, assistantId }: ReadConversation): void =>
    logger.warn({ err: cause, conversationId, assistantId }, 'a conversation was not projected');

  const plan = async (read: ReadConversation, before: ProjectedConversation | null): Promise<Plan> =>
    planProjection(read, before, await changed.readEntries(read, before?.seq ?? 0));

  /** Writes all plans together, or each on its own if that fails. So one bad conversation does not stop the others. */
  const writeAll = async (plans: Plan[]): Promise<Plan[]> => {
    if (plans.length === 0) return [];
    try {
      await write(plans);
      return [];
    } catch (cause) {
      if (isMongoUnavailable(cause)) throw cause;
      if (plans.length === 1) {
        for (const { conversation } of plans) noteFailure(cause, conversation);
        return plans;
      }
    }
    const failed: Plan[] = [];
    for (const one of plans) failed.push(...(await writeAll([one])));
    return failed;
  };

  return async (keys: string[]): Promise<Projected> => {
    const reads = (await changed.read(keys)).filter(({ channel }) => channel !== 'playground');
    const stored = await rows.find({ _id: { $in: reads.map(({ conversationId }) => conversationId) } }).toArray();
    const known = new Map(stored.map((row) => [row._id, row]));
    const plans: Plan[] = [];
    const [failed, unread]: [string[], string[]] = [[], []];
    let chars = 0;
    for (const read of reads) {
      if (chars > CHARS_AT_ONCE) {
        unread.push(read._id);
        continue;
      }
      const before = known.get(read.conversationId) ?? null;
      if (isCurrent(read, before)) continue;
      try {
        const planned = await plan(read, before);
        chars += planned.chars;
        plans.push(planned);
      } catch (cause) {
        if (isMongoUnavailable(cause)) throw cause;
        noteFailure(cause, read);
        failed.push(read._id);
      }
    }
    const unwritten = new Set(await writeAll(plans));
    const written = plans.filter((one) => !unwritten.has(one));
    // A conversation that was erased since it was read has left its words in the projection.
    const erased = await changed.findErased(written.map(({ conversation }) => conversation));
    if (erased.length > 0) await erase(erased);
    return {
      behind: [...unread, ...written.filter(({ isBehind }) => isBehind).map(({ conversation }) => conversation._id)],
      failed: [...failed, ...[...unwritten].map(({ conversation }) => conversation._id)],
    };
  };
};

export type Project = ReturnType<typeof createProject>;
